//! What the daemon and a worker say to each other: the seam between root and a process without
//! privileges.
//!
//! The daemon sends a [`Task`] and the descriptors that belong to it, each as a [`TaskInput`] with one
//! descriptor along, and then [`TaskInput::Start`]. The worker answers with [`Report`]s, the last of
//! which is `Finished` or `Failed`. Nothing else passes between them.
//!
//! The daemon trusts a report in this much only: that nothing more is to be read of the process,
//! whether the worker says that it has finished, and whether it calls its bundle complete. It takes
//! no path and no size from it, and it looks at the files of the bundle through descriptors, as at
//! those of any other user.

use crate::config::CorePolicy;
use crate::probe::{CrashSample, SiginfoDetail};
use backtrail_bundle::core::{CoreThread, Registers, SigInfo};
use backtrail_pt::{Avma, Pid, Tid};
use serde::{Deserialize, Serialize};

/// What the daemon gives a worker, each with one descriptor along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskInput {
    /// A [`Task`] as JSON, in memory.
    Task,
    /// The directory to write to. It is the worker's, and empty.
    Draft,
    /// The directory of copies of modules that bundles of this user share. It is closed before
    /// privileges are given up.
    Modules,
    /// The head of the kernel's core, in memory.
    Head,
    /// A pipe with the rest of the kernel's core, filled on [`Report::WantsCore`].
    Core,
    /// [`crate::hardware::RecordedHistory`] as JSON, a line feed, and its bytes, in memory.
    History,
    /// A packed bundle, of [`Work::Deposit`].
    Packed,
    /// Nothing more comes. No descriptor is along.
    Start,
}

/// What a worker reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// All files are open and privileges are given up.
    Confined,
    /// The process's memory cannot be read: the rest of its core is wanted.
    WantsCore,
    /// Nothing more is to be read of the process: it may go.
    Read,
    /// A bundle stands in the draft directory.
    Finished {
        /// Nothing is missing in it.
        complete: bool,
    },
    /// There is none.
    Failed {
        /// Why, in a sentence.
        why: String,
    },
}

/// The name of the finished bundle in the draft directory.
pub const BUNDLE: &str = "bundle";
/// How the names of shared copies in the draft directory begin; a number follows.
pub const SHARED: &str = "shared-";

/// What is to be done, and within which bounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// What is to be saved.
    pub work: Work,
    /// The user and group id to become.
    pub identity: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds: the process is let go then, and what was not read is
    /// missing.
    pub deadline: u64,
    /// Bytes that the bundle may take on the disk.
    pub allowance: u64,
    /// How much of memory is wanted.
    pub policy: Policy,
    /// What the daemon knows of the crash.
    pub description: Description,
    /// What the probe saw of it.
    #[serde(rename = "seen")]
    pub sample: Option<SampleRecord>,
}

/// What a worker saves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A process that the kernel keeps until its core is read.
    Held {
        /// The process.
        pid: u32,
        /// A thread of it that has its memory: the first one may have ended.
        witness: u32,
        /// When the daemon was told (`CLOCK_MONOTONIC`).
        received: u64,
    },
    /// A process that is gone: what the probe saw of it.
    #[serde(rename = "seen")]
    Unheld,
    /// A process that goes on, or the traces of all.
    Snapshot {
        /// The process.
        pid: Option<u32>,
    },
    /// A bundle that a recorder has written.
    Deposit {
        /// The process that it must be of.
        pid: u32,
        /// Whose recorder it is.
        user: u32,
        /// What the process ran when the recorder claimed it.
        program: Option<String>,
    },
}

impl Work {
    /// Whether files of a process are opened for it.
    pub(super) fn opens_a_process(&self) -> bool {
        matches!(self, Self::Held { .. } | Self::Snapshot { pid: Some(_) })
    }
}

/// How much of a process's memory is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// `crash.core` of the configuration.
    pub core: CorePolicy,
    /// `crash.core_limit`, in bytes.
    pub limit: u64,
    /// The same as its user wrote it.
    pub limit_text: String,
    /// `crash.hold_limit` as its user wrote it.
    pub hold_limit_text: String,
}

/// What the daemon knows of a crash, for the bundle's description.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Description {
    /// What made it save: `crash`, `snapshot`, `function`.
    pub trigger: String,
    /// The wall clock when it happened, in nanoseconds since 1970.
    pub time: Option<u64>,
    /// What told of it.
    pub probe: Option<String>,
    /// From the signal's delivery until it was read.
    pub crash_to_reader: Option<u64>,
    /// When the signal was delivered (`CLOCK_MONOTONIC`).
    pub crashed_at: Option<u64>,
    /// The process's real user id.
    pub user: Option<u32>,
    /// The thread's name, or the program's.
    pub name: String,
    /// Whether this machine records the history of its processors.
    pub records_history: bool,
    /// What should be there and is not, a sentence each.
    pub missing: Vec<String>,
    /// What the reader should know, a sentence each.
    pub notes: Vec<String>,
}

/// A [`CrashSample`] as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SampleRecord {
    pid: u32,
    tid: u32,
    name: String,
    siginfo: Vec<u8>,
    /// The siginfo tells the address of the fault.
    #[serde(rename = "tells_address")]
    has_fault_address: bool,
    registers: Vec<u64>,
    stack_at: u64,
    stack: Vec<u8>,
}

impl SampleRecord {
    /// The part of a sighting that goes into a bundle.
    #[must_use]
    pub fn new(sample: &CrashSample) -> Self {
        Self {
            pid: sample.pid.0,
            tid: sample.tid.0,
            name: sample.comm.clone(),
            siginfo: sample.siginfo.0.to_vec(),
            has_fault_address: sample.siginfo_detail >= SiginfoDetail::Address,
            registers: sample.registers.to_array().to_vec(),
            stack_at: sample.stack_at.0,
            stack: sample.stack.clone(),
        }
    }

    /// The process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.pid)
    }

    /// The thread that took the signal.
    #[must_use]
    pub fn tid(&self) -> Tid {
        Tid(self.tid)
    }

    /// The thread's name, empty where it was not told.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the signal said.
    #[must_use]
    pub fn siginfo(&self) -> SigInfo {
        let mut bytes = [0; SigInfo::SIZE];
        for (to, from) in bytes.iter_mut().zip(&self.siginfo) {
            *to = *from;
        }
        SigInfo(bytes)
    }

    /// The thread as a core has it. What was not told of the signal would read as an address and a
    /// sender that it never had, and is left out.
    #[must_use]
    pub fn thread(&self) -> CoreThread {
        let mut registers = Registers::default().to_array();
        for (to, from) in registers.iter_mut().zip(&self.registers) {
            *to = *from;
        }
        let siginfo = self.siginfo();
        CoreThread {
            tid: self.tid(),
            signal: siginfo.signal(),
            registers: Registers::from_array(registers),
            siginfo: self.has_fault_address.then_some(siginfo),
            ..CoreThread::default()
        }
    }

    /// The address whose use was the fault, where that was told.
    #[must_use]
    pub fn fault_address(&self) -> Option<Avma> {
        self.siginfo().address().filter(|_| self.has_fault_address)
    }

    /// The top of the stack, and the address of its first byte.
    #[must_use]
    pub fn stack(&self) -> (Avma, &[u8]) {
        (Avma(self.stack_at), &self.stack)
    }
}
