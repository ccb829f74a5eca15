//! The options of a recording.

use backtrail_perf::sampling::Counter;
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

/// An event that samples are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampledEvent {
    /// Processor time.
    Cpu,
    /// Time in which threads wait.
    OffCpu,
    /// Cycles of the processor. Where the machine cannot count them, processor time.
    Cycles,
    /// Instructions.
    Instructions,
    /// Cache misses.
    CacheMisses,
    /// Page faults.
    PageFaults,
}

impl SampledEvent {
    /// Returns the name in profiles.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "off-cpu",
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::CacheMisses => "cache-misses",
            Self::PageFaults => "page-faults",
        }
    }

    /// Returns the unit of weights.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Cpu | Self::OffCpu => "nanoseconds",
            _ => "count",
        }
    }

    pub(crate) fn counter(self) -> Counter {
        match self {
            Self::Cpu => Counter::CpuClock,
            Self::OffCpu => Counter::ContextSwitches,
            Self::Cycles => Counter::Cycles,
            Self::Instructions => Counter::Instructions,
            Self::CacheMisses => Counter::CacheMisses,
            Self::PageFaults => Counter::PageFaults,
        }
    }
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
    /// The length of the recording. `None`: until the target ends or the caller stops it.
    pub duration: Option<Duration>,
    /// The file of the recording.
    pub output: PathBuf,
    /// Whether an existing file is replaced.
    pub overwrite: bool,
    /// The size that the file stays below, apart from one block. Older samples are replaced.
    pub max_bytes: u64,
    /// The processor time that recording may take, in percent of all processors.
    pub cpu_budget: f64,
}
