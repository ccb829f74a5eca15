//! The state of the processes of a host, which all recordings of it share.

use crate::kernel::Kernel;
use crate::kernel_walker::WalkerChanges;
use crate::modules::Modules;
use crate::python::PythonCode;
use crate::tasks::Tasks;
use crate::thread_context::ThreadContexts;
use backtrail_perf::record::{Record, RecordEvent};
use backtrail_pt::Pid;
use std::time::Duration;

/// The memory of all unwind tables.
const TABLE_BUDGET: usize = 40 << 20;

/// The processes, their code and their requests, at the time of the last record.
#[derive(Debug)]
pub(crate) struct Host {
    pub tasks: Tasks,
    pub modules: Modules,
    pub kernel: Kernel,
    pub python: PythonCode,
    pub contexts: ThreadContexts,
}

impl Host {
    /// Returns a host without processes. The kernel is mapped if it is sampled.
    pub fn new(has_kernel: bool) -> Self {
        let mut modules = Modules::new(TABLE_BUDGET);
        let mut tasks = Tasks::default();
        let kernel = match has_kernel {
            true => tasks.map_kernel(&mut modules),
            false => Kernel::default(),
        };
        Self {
            tasks,
            modules,
            kernel,
            python: PythonCode::default(),
            contexts: ThreadContexts::default(),
        }
    }

    /// Reads the mappings of a process that no record describes.
    pub fn look_up(&mut self, pid: Pid) {
        self.tasks.look_up(pid, &mut self.modules);
    }

    /// Reads the mappings of all processes that run already.
    pub fn look_up_all(&mut self) {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        for pid in pids {
            self.look_up(Pid(pid));
        }
    }

    /// Applies a change of a process or thread.
    pub fn apply(&mut self, record: &Record) {
        match &record.event {
            RecordEvent::Comm { pid, exec: true, .. } => self.contexts.forget(*pid),
            RecordEvent::Exit { pid, tid } if pid.0 == tid.0 => self.contexts.forget(*pid),
            _ => {}
        }
        self.tasks.apply(record, &mut self.modules);
    }

    /// Forgets processes that have ended. Every record before must have been applied.
    pub fn forget_ended(&mut self) {
        for pid in self.tasks.forget_ended() {
            self.python.forget(pid);
        }
    }

    /// Returns the changes since the last call, for the programs that walk stacks.
    pub fn take_changes(&mut self) -> WalkerChanges {
        WalkerChanges {
            decided: self.modules.take_decided(),
            mapped: self.tasks.take_changed(),
            slots: self.contexts.take_changed(),
            wanted: Vec::new(),
        }
    }

    /// Returns all that a new program needs to know. `wanted` are the processes that are sampled.
    pub fn all(&self, wanted: Vec<Pid>) -> WalkerChanges {
        WalkerChanges {
            decided: self.modules.all_decided(),
            slots: self.contexts.all_slots(),
            wanted,
            ..WalkerChanges::default()
        }
    }

    /// Returns the processor time that went into reading the files and mappings of processes.
    pub fn first_looks(&self) -> Duration {
        self.modules.reading() + self.tasks.reading()
    }

    /// Returns sentences about code whose names or stacks are incomplete.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.modules.excluded() > 0 {
            notes.push(format!(
                "the unwind tables of {} files exceed the memory for tables; stacks end there",
                self.modules.excluded()
            ));
        }
        notes.extend(self.python.note());
        notes.extend(self.modules.python_notes());
        notes
    }
}
