//! The state of all processes at a moment, as far as a trace needs it: executable mappings, thread
//! names, parents. The kernel's records update it.

use backtrail_perf::kernel_code::KernelCode;
use backtrail_perf::record::AuxFlags;
use backtrail_process::beneath::FileId;
use backtrail_pt::{Avma, BuildId, FileOffset, Nanos, Pid, Tid};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum executable mappings of a process. The oldest are dropped, because a process that maps
/// without end must not exhaust memory.
const MAX_MAPPINGS: usize = 16 << 10;

/// An executable mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutableMapping {
    /// The first address.
    pub start: Avma,
    /// The size in bytes.
    pub size: u64,
    /// The file offset at `start`.
    pub offset: FileOffset,
    /// The mapped file, shared by all processes that map it.
    pub file: Arc<MappedFile>,
}

/// The content of a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MappedFile {
    /// The path of the file, a name in brackets, or `//anon`.
    pub path: String,
    /// Its build id, if the kernel reported it.
    pub build_id: Option<BuildId>,
    /// Its device and inode, if the kernel reported them.
    pub id: Option<FileId>,
}

/// The known state of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// Its parent, if known.
    pub parent: Option<Pid>,
    /// Its threads and their names.
    pub threads: BTreeMap<Tid, Arc<str>>,
    /// The executable mappings in order of time. Shared with child processes until one of them maps
    /// something.
    pub mappings: Arc<Vec<ExecutableMapping>>,
    /// The time of this state. It includes all earlier records.
    pub as_of: Nanos,
    /// When the last thread ended.
    pub ended: Option<Nanos>,
}

/// A change of state by a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Memory was mapped executable.
    Map(Pid, ExecutableMapping),
    /// A thread changed its name, or executed a program.
    Comm {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The name.
        name: Arc<str>,
        /// Whether this was `execve`. All mappings and all other threads are gone then.
        exec: bool,
    },
    /// A thread started. It is in a new process if `pid` is not `parent`.
    Fork {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
        /// The process that started it.
        parent: Pid,
        /// The thread that started it.
        by: Tid,
    },
    /// A thread ended.
    Exit {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Tid,
    },
    /// A process was read again because records were lost. `None`: it has ended.
    Rescan(Pid, Option<ProcessState>),
    /// Kernel code was added or removed.
    KernelCode(KernelCode),
    /// The number of lost records.
    Lost(u64),
    /// An error in the trace of this processor.
    Trace(AuxFlags),
}

/// All processes at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// The processes by id.
    pub processes: BTreeMap<Pid, ProcessState>,
}

impl World {
    /// Applies a change at `time`. With `keep_dead`, an ended process is marked and stays until its
    /// id is used again.
    pub fn apply(&mut self, time: Nanos, change: &Change, keep_dead: bool) {
        match change {
            Change::Map(pid, mapped) => {
                if let Some(process) = self.process_at(*pid, time) {
                    process.map(mapped);
                }
            }
            Change::Comm { pid, tid, name, exec } => {
                let Some(process) = self.process_at(*pid, time) else {
                    return;
                };
                if *exec {
                    process.mappings = Arc::default();
                    process.threads.clear();
                }
                process.threads.insert(*tid, name.clone());
            }
            Change::Fork { pid, tid, parent, by } => self.fork(time, (*pid, *tid), (*parent, *by)),
            Change::Exit { pid, tid } => {
                let Some(process) = self.process_at(*pid, time) else {
                    return;
                };
                let name = process.threads.remove(tid);
                if !process.threads.is_empty() {
                    return;
                }
                if keep_dead {
                    process.ended = Some(time);
                    // The last thread stays for its name.
                    process.threads.extend(name.map(|name| (*tid, name)));
                } else {
                    self.processes.remove(pid);
                }
            }
            Change::Rescan(pid, Some(state)) => {
                self.processes.insert(*pid, state.clone());
            }
            Change::Rescan(pid, None) => {
                if keep_dead {
                    if let Some(process) = self.process_at(*pid, time) {
                        process.ended.get_or_insert(time);
                    }
                } else if self.process_at(*pid, time).is_some() {
                    self.processes.remove(pid);
                }
            }
            Change::KernelCode(_) | Change::Lost(_) | Change::Trace(_) => {}
        }
    }

    /// Returns the process, and creates it if it is unknown. `None`: its state is newer than
    /// `time`.
    fn process_at(&mut self, pid: Pid, time: Nanos) -> Option<&mut ProcessState> {
        let process = self.processes.entry(pid).or_default();
        (time > process.as_of || process.as_of == Nanos(0)).then_some(process)
    }

    fn fork(&mut self, time: Nanos, (pid, tid): (Pid, Tid), (parent, by): (Pid, Tid)) {
        let parent_state = self.processes.get(&parent);
        let name = parent_state
            .and_then(|parent| parent.threads.get(&by))
            .cloned()
            .unwrap_or_default();
        if pid == parent {
            if let Some(process) = self.process_at(pid, time) {
                process.threads.entry(tid).or_insert(name);
            }
            return;
        }
        let known = self.processes.get(&pid);
        if known.is_some_and(|known| time <= known.as_of && known.as_of != Nanos(0)) {
            return;
        }
        let state = ProcessState {
            parent: Some(parent),
            threads: BTreeMap::from([(tid, name)]),
            mappings: parent_state
                .map(|parent| parent.mappings.clone())
                .unwrap_or_default(),
            as_of: Nanos(0),
            ended: None,
        };
        self.processes.insert(pid, state);
    }
}

impl ProcessState {
    /// Converts all times to another clock.
    pub(super) fn convert_times(&mut self, clock: &impl Fn(Nanos) -> Nanos) {
        // Zero means unknown.
        if self.as_of != Nanos(0) {
            self.as_of = clock(self.as_of);
        }
        self.ended = self.ended.map(clock);
    }

    /// Adds a mapping and removes what it covers. The kernel does not record `munmap`, but a new
    /// mapping replaces older ones at its addresses.
    fn map(&mut self, mapped: &ExecutableMapping) {
        let mappings = Arc::make_mut(&mut self.mappings);
        let (start, end) = (mapped.start.0, mapped.start.0.saturating_add(mapped.size));
        let overlaps =
            |old: &ExecutableMapping| old.start.0 < end && start < old.start.0.saturating_add(old.size);
        if mappings.iter().any(overlaps) {
            let old = std::mem::take(mappings);
            for piece in old {
                if overlaps(&piece) {
                    mappings.extend(piece.without(start, end));
                } else {
                    mappings.push(piece);
                }
            }
        }
        mappings.push(mapped.clone());
        if let Some(excess) = mappings.len().checked_sub(MAX_MAPPINGS) {
            mappings.drain(..excess);
        }
    }
}

impl ExecutableMapping {
    /// Returns the parts outside of `start..end`.
    fn without(&self, start: u64, end: u64) -> impl Iterator<Item = Self> {
        let own_end = self.start.0.saturating_add(self.size);
        let piece = |from: u64, to: u64| {
            (from < to).then(|| Self {
                start: Avma(from),
                size: to - from,
                offset: FileOffset(self.offset.0.wrapping_add(from - self.start.0)),
                file: self.file.clone(),
            })
        };
        let before = piece(self.start.0, start.min(own_end).max(self.start.0));
        let after = piece(end.max(self.start.0).min(own_end), own_end);
        [before, after].into_iter().flatten()
    }
}
