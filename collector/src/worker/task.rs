//! The messages between the daemon and a worker: the boundary between root and a sandboxed process.
//!
//! The daemon sends a [`Task`] and its descriptors, each as a [`TaskInput`] with one descriptor,
//! and then [`TaskInput::Start`]. The worker answers with [`Report`]s. The last one is `Finished`
//! or `Failed`. There are no other messages.
//!
//! The daemon trusts a report only for three facts: nothing more of the process is needed, the
//! worker has finished, and the bundle is complete. It takes no path and no size from a report. It
//! accesses the files of the bundle through descriptors, like those of any other user.

use crate::config::CorePolicy;
use crate::probe::{CrashSample, SiginfoDetail};
use backtrail_bundle::core::{CoreThread, Registers, SigInfo};
use backtrail_pt::{Avma, Pid, Tid};
use serde::{Deserialize, Serialize};

/// An input that the daemon gives a worker, each with one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskInput {
    /// A [`Task`] as JSON, in a memory file.
    Task,
    /// The empty directory to write to. The worker owns it.
    Draft,
    /// The directory of modules that bundles of this user share. It is closed before privileges are
    /// dropped.
    Modules,
    /// The head of the kernel's core, in a memory file.
    Head,
    /// A pipe with the rest of the kernel's core, which is filled after [`Report::WantsCore`].
    Core,
    /// [`crate::hardware::RecordedHistory`] as JSON, a line feed, and its bytes, in a memory file.
    History,
    /// The heap records of the process ([`backtrail_bundle::heap_records`]), in a memory file.
    Heap,
    /// A packed bundle, for [`Work::Deposit`].
    Packed,
    /// The last input, without a descriptor.
    Start,
}

/// A worker's report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// All files are open and privileges are dropped.
    Confined,
    /// The process's memory cannot be read, so the rest of its core is needed.
    WantsCore,
    /// Nothing more of the process is needed, so it can be released.
    Read,
    /// The draft directory contains a bundle.
    Finished {
        /// Whether nothing is missing in it.
        complete: bool,
    },
    /// There is no bundle.
    Failed {
        /// The reason, in one sentence.
        why: String,
    },
}

/// The name of the finished bundle in the draft directory.
pub const BUNDLE: &str = "bundle";
/// The directory of new modules in the draft directory, which the daemon moves to the shared ones.
pub const NEW_MODULES: &str = "new-modules";
/// The prefix of links to shared modules in the draft directory. A number follows.
pub const SHARED: &str = "shared-";

/// A task with its limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The kind of work.
    pub work: Work,
    /// The user and group id of the sandbox.
    pub identity: u32,
    /// When the process is released (`CLOCK_MONOTONIC`, nanoseconds). Anything unread by then is
    /// missing.
    pub deadline: u64,
    /// Maximum bytes of the bundle on disk.
    pub allowance: u64,
    /// How much memory is saved.
    pub policy: Policy,
    /// The daemon's data about the crash.
    pub description: Description,
    /// The probe's data about the crash.
    #[serde(rename = "seen")]
    pub sample: Option<SampleRecord>,
}

/// The kind of work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Save a process that the kernel holds until its core is read.
    Held {
        /// The process.
        pid: u32,
        /// A thread that still has the memory. The first thread may have exited.
        witness: u32,
        /// When the daemon received the request (`CLOCK_MONOTONIC`).
        received: u64,
    },
    /// Save the probe's data of a process that has ended.
    #[serde(rename = "seen")]
    Unheld,
    /// Save a running process, or the traces of all processors.
    Snapshot {
        /// The process.
        pid: Option<u32>,
    },
    /// Save a bundle of a recorder.
    Deposit {
        /// The process that the bundle must describe.
        pid: u32,
        /// The user of the recorder.
        user: u32,
        /// The program of the process when the recorder claimed it.
        program: Option<String>,
        /// The systemd service of the process when the recorder claimed it.
        service: Option<String>,
    },
}

impl Work {
    /// Returns whether the worker opens files of a process.
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
    /// The same in the user's notation.
    pub limit_text: String,
    /// `crash.hold_limit` in the user's notation.
    pub hold_limit_text: String,
}

/// The daemon's data about a crash, for the bundle's manifest.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Description {
    /// The cause: `crash`, `snapshot` or `function`.
    pub trigger: String,
    /// The wall clock time of the crash, in nanoseconds since 1970.
    pub time: Option<u64>,
    /// The kind of probe that reported it.
    pub probe: Option<String>,
    /// Nanoseconds from the signal's delivery to the probe reader.
    pub crash_to_reader: Option<u64>,
    /// When the signal was delivered (`CLOCK_MONOTONIC`).
    pub crashed_at: Option<u64>,
    /// The process's real user id.
    pub user: Option<u32>,
    /// The name of the thread or the program.
    pub name: String,
    /// The systemd service of the process.
    pub service: Option<String>,
    /// Whether this machine records the traces of its processors.
    pub records_history: bool,
    /// The missing parts, one sentence each.
    pub missing: Vec<String>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

/// A [`CrashSample`] as plain data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SampleRecord {
    pid: u32,
    tid: u32,
    name: String,
    siginfo: Vec<u8>,
    /// Whether the siginfo contains the fault address.
    #[serde(rename = "tells_address")]
    has_fault_address: bool,
    registers: Vec<u64>,
    stack_at: u64,
    stack: Vec<u8>,
}

impl SampleRecord {
    /// Copies the parts of a sample that a bundle needs.
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

    /// Returns the process.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.pid)
    }

    /// Returns the thread that took the signal.
    #[must_use]
    pub fn tid(&self) -> Tid {
        Tid(self.tid)
    }

    /// Returns the thread's name, or an empty string if it is unknown.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the siginfo of the signal.
    #[must_use]
    pub fn siginfo(&self) -> SigInfo {
        let mut bytes = [0; SigInfo::SIZE];
        for (to, from) in bytes.iter_mut().zip(&self.siginfo) {
            *to = *from;
        }
        SigInfo(bytes)
    }

    /// Returns the thread for a core. An incomplete siginfo is left out, because it would look like
    /// an address and a sender.
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

    /// Returns the address of the fault, if it is known.
    #[must_use]
    pub fn fault_address(&self) -> Option<Avma> {
        self.siginfo().address().filter(|_| self.has_fault_address)
    }

    /// Returns the top of the stack, and the address of its first byte.
    #[must_use]
    pub fn stack(&self) -> (Avma, &[u8]) {
        (Avma(self.stack_at), &self.stack)
    }
}
