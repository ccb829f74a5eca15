//! Doing something as if standing elsewhere, and coming back.

use super::Navigator;
use backtrail_pt::Tid;

impl Navigator {
    /// Does something in a thread, before an instruction of it; all is afterwards as if nothing had moved.
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
}
