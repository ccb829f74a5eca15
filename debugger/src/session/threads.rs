//! The threads of a session, and where each is by its id.

use super::Thread;
use backtrail_pt::Tid;
use std::collections::HashMap;

/// Threads in a fixed order, found by id in constant time: a trace may have tens of thousands.
pub(super) struct Threads {
    list: Vec<Thread>,
    by_tid: HashMap<Tid, usize>,
}

impl Threads {
    /// Keeps the order of `list`; of several threads with one id the first is found.
    pub fn new(list: Vec<Thread>) -> Self {
        let mut by_tid = HashMap::with_capacity(list.len());
        for (index, thread) in list.iter().enumerate() {
            by_tid.entry(thread.tid).or_insert(index);
        }
        Self { list, by_tid }
    }

    /// Returns all of them.
    pub fn list(&self) -> &[Thread] {
        &self.list
    }

    /// Returns the thread with this id.
    pub fn get(&self, tid: Tid) -> Option<&Thread> {
        self.list.get(*self.by_tid.get(&tid)?)
    }
}
