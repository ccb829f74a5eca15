//! The threads of a session, and where each is by its id.

use super::Thread;
use backtrail_bundle::core::Core;
use backtrail_bundle::manifest::{Crash, Manifest};
use backtrail_decoder::{Decoded, HistoryBuilder};
use backtrail_pt::Tid;
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

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

/// The thread that a signal ended the process in, by a crash or not.
pub(super) fn ended_thread(crash: Option<&Crash>, core: Option<&Core>) -> Option<Tid> {
    let of_core = || core.and_then(Core::crashed_thread).map(|thread| thread.tid);
    crash.map(|crash| crash.tid).or_else(of_core)
}

/// Returns the decoded threads, and those that only the core has.
pub(super) fn decoded_threads(manifest: &Manifest, decoded: Decoded, core: Option<&Core>) -> Vec<Thread> {
    let mut by_tid: HashMap<Tid, (usize, &Option<String>)> = HashMap::new();
    for (index, process) in manifest.processes.iter().enumerate() {
        for thread in &process.threads {
            // Of several threads with one id, the first is used.
            by_tid.entry(thread.tid).or_insert((index, &thread.name));
        }
    }
    let described = |tid: Tid| by_tid.get(&tid).map(|&(index, name)| (index, name.clone()));
    let Decoded {
        threads: histories,
        mut forests,
        ..
    } = decoded;
    let mut threads: Vec<Thread> = histories
        .into_iter()
        .map(|history| {
            let (process, name) = described(history.tid()).unwrap_or_default();
            let forest = forests.remove(&history.tid());
            let mut thread = Thread::new(history, name, process);
            thread.forest = forest.map(OnceCell::from).unwrap_or_default();
            thread
        })
        .collect();
    let of_core = core
        .map(|core| core.contents().threads.as_slice())
        .unwrap_or_default();
    let mut known: HashSet<Tid> = threads.iter().map(|thread| thread.tid).collect();
    for thread in of_core {
        let raw = threads.len() == 1 && described(thread.tid).is_none();
        if !raw && known.insert(thread.tid) {
            let (process, name) = described(thread.tid).unwrap_or_default();
            let history = HistoryBuilder::new(thread.tid).finish();
            threads.push(Thread::new(history, name, process));
        }
    }
    threads.sort_by_key(|thread| thread.tid);
    threads
}

pub(super) fn without_history(tid: Tid) -> Thread {
    Thread::new(HistoryBuilder::new(tid).finish(), None, 0)
}
