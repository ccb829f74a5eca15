//! Doing something as if standing elsewhere, and coming back.

use super::Navigator;
use backtrail_pt::Tid;

impl Navigator {
    /// Does something in a thread, before an instruction of it; all is afterwards as if nothing had
    /// moved.
    pub fn visiting<T>(&mut self, tid: Tid, index: u64, act: impl FnOnce(&mut Self) -> T) -> T {
        let (current, frame, listed) = (self.current, self.frame, self.listed.take());
        let (done, undone) = (self.done.clone(), self.undone.clone());
        let left_at = self.positions.insert(tid, index);
        self.current = tid;
        self.frame = 0;
        let answer = act(self);
        if let Some(left_at) = left_at {
            self.positions.insert(tid, left_at);
        }
        (self.current, self.frame, self.listed) = (current, frame, listed);
        (self.done, self.undone) = (done, undone);
        answer
    }

    /// Acts in a thread, before one of its instructions, and keeps the new position if the action
    /// moves. Without a move, the old position is restored.
    pub fn going_from<T>(&mut self, tid: Tid, index: u64, act: impl FnOnce(&mut Self) -> T) -> T {
        let home = self.position();
        if (tid, index) == (self.current, self.index()) {
            return act(self);
        }
        let (current, frame, listed) = (self.current, self.frame, self.listed.take());
        let (done, undone) = (self.done.clone(), self.undone.clone());
        let left_at = self.position_of(tid);
        self.positions.insert(tid, index);
        self.current = tid;
        self.frame = 0;
        self.done.push(home);
        self.undone.clear();
        let there = self.position();
        let answer = act(self);
        // Indexes change when more of the history is decoded in between.
        if self.position() == there {
            if let Ok(index) = self
                .session
                .thread(tid)
                .and_then(|thread| thread.index_of(left_at))
            {
                self.positions.insert(tid, index);
            }
            (self.current, self.frame, self.listed) = (current, frame, listed);
            (self.done, self.undone) = (done, undone);
        }
        answer
    }
}
