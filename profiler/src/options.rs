//! The options of a recording.

use crate::event::SampledEvent;
use backtrail_pt::Pid;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The programs that are sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All processes, and the kernel.
    All,
    /// A process with its threads, and the threads and processes that they start.
    Process(Pid),
    /// The processes of a control group: its directory, or its path below the hierarchy's root.
    Cgroup(PathBuf),
    /// A program that is started for the recording, with the processes that it starts.
    Program(Vec<OsString>),
}

/// The way in which stacks of programs are walked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackMethod {
    /// By an eBPF program where the kernel permits, otherwise by copies.
    #[default]
    Auto,
    /// By an eBPF program when a sample is taken.
    Ebpf,
    /// The kernel copies the stack, and the recorder walks the copy.
    Copy,
}

/// The place of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingOutput {
    /// A file, which is a ring.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether an existing file is replaced.
        overwrite: bool,
        /// The size that the file stays below, apart from one block. Older samples are replaced.
        max_bytes: u64,
    },
    /// A directory of files, which another program takes and removes.
    Spool(SpoolOptions),
}

/// The options of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolOptions {
    /// The directory.
    pub directory: PathBuf,
    /// The time that a file covers.
    pub interval: Duration,
    /// The size that all complete files stay below. Older ones are removed.
    pub max_bytes: u64,
}

/// The options of [`record`](crate::record).
#[derive(Clone, Debug)]
pub struct RecordOptions {
    /// The programs that are sampled.
    pub target: Target,
    /// The events, without doubles.
    pub events: Vec<SampledEvent>,
    /// The samples a second of each busy processor.
    pub frequency: u64,
    /// The way in which stacks are walked.
    pub stack_method: StackMethod,
    /// The length of the recording. `None`: until the target ends or the caller stops it.
    pub duration: Option<Duration>,
    /// The place of the recording.
    pub output: RecordingOutput,
    /// The processor time that recording may take, in percent of all processors.
    pub cpu_budget: f64,
}
