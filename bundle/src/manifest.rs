//! The description of a trace in types that every crate uses, independent of any file format.

use crate::BundlePath;
use crate::context::PublishedContext;
use backtrail_pt::{
    Avma, BuildId, Cpu, CpuModel, FileOffset, Nanos, Pid, Svma, Tid, TimingParams, TscConversion,
};

/// The description of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The traced processor.
    pub cpu: CpuModel,
    /// Parameters that a decoder needs to refine timestamps.
    pub timing: TimingParams,
    /// The conversion from TSC to perf's clock. Always present when `cpus` is not empty.
    pub tsc: Option<TscConversion>,
    /// The address ranges that were traced. If empty, everything was.
    pub filters: Vec<AddressFilter>,
    /// The traced processes.
    pub processes: Vec<Process>,
    /// Traces kept by processor. A bundle has either these or [`Thread::trace`], never both.
    pub cpus: Vec<CpuTrace>,
    /// The ELF core of the crash.
    pub core: Option<BundlePath>,
    /// The origin of the trace, and its end.
    pub meta: Meta,
}

/// An `IA32_RTIT_ADDRn` range. With filters, only code in one of the ranges was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFilter {
    /// The first traced address.
    pub from: Avma,
    /// The last traced address (inclusive).
    pub to: Avma,
}

/// A traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: Pid,
    /// The known threads.
    pub threads: Vec<Thread>,
    /// The mapped ELF files. Later ones cover earlier ones.
    pub modules: Vec<Module>,
    /// Code that comes from no ELF file. It covers the modules.
    pub images: Vec<RawImage>,
    /// The file with the [`CodeVersions`](crate::versions::CodeVersions), if there are any. They
    /// cover the images.
    pub versions: Option<BundlePath>,
    /// The memory that the process shared with others at any time. `None`: unknown.
    pub shared_memory: Option<Vec<SharedMemory>>,
}

/// Memory that a process shared with other processes, at least for some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedMemory {
    /// The first address.
    pub start: Avma,
    /// The size in bytes.
    pub size: u64,
    /// Whether the value logs may lack the call that mapped it: a parent made the call, or the
    /// recording began later.
    pub is_unseen: bool,
}

/// A thread of a traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// The thread id.
    pub tid: Tid,
    /// The thread's name (`comm`).
    pub name: Option<String>,
    /// The PT packets, if traces are kept by thread.
    pub trace: Option<BundlePath>,
    /// The [`ValueLog`](crate::value_log::ValueLog), if values were recorded.
    pub values: Option<BundlePath>,
}

/// An ELF file mapped into a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// The path on the traced system.
    pub path: String,
    /// The copy in the bundle. `None` if the file was not found.
    pub file: Option<BundlePath>,
    /// The build id, if the file has one.
    pub build_id: Option<BuildId>,
    /// The address of the page of the lowest `PT_LOAD` (LLDB's `loadAddress`).
    pub base: Avma,
    /// The known mappings. If empty, the `PT_LOAD` segments are mapped at [`Self::bias`].
    pub mappings: Vec<Mapping>,
    /// The number of the boundary (see [`CodeVersions`](crate::versions::CodeVersions)) from which
    /// the module is mapped. 0 means from the beginning.
    pub mapped_from: u32,
    /// The number of the boundary from which other code is mapped in its place, if any.
    pub mapped_until: Option<u32>,
}

impl Module {
    /// Returns actual minus stated addresses (mod 2^64) of this module. `lowest_load` is the
    /// `p_vaddr` of the lowest `PT_LOAD` in its program headers.
    #[must_use]
    pub fn bias(&self, lowest_load: Svma) -> u64 {
        self.base.0.wrapping_sub(lowest_load.0 & !(crate::PAGE_SIZE - 1))
    }
}

/// A part of a module's file mapped into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: Avma,
    /// The file offset of the first address.
    pub offset: FileOffset,
    /// The size in bytes.
    pub size: u64,
    /// The time at which it replaced other code, on perf's clock. `None`: there was no other code
    /// at its addresses before.
    pub from: Option<Nanos>,
    /// The time at which its code was replaced or unmapped. `None`: it was not.
    pub until: Option<Nanos>,
}

/// Raw code in a file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawImage {
    /// The first address.
    pub start: Avma,
    /// The file.
    pub file: BundlePath,
    /// The file offset of the code.
    pub offset: FileOffset,
    /// The size in bytes.
    pub size: u64,
}

/// The trace of one processor, with all threads that ran on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTrace {
    /// The processor's number.
    pub cpu: Cpu,
    /// The PT packets.
    pub trace: BundlePath,
    /// The context switches, in the format of [`backtrail_perf::switch`].
    pub switches: BundlePath,
}

/// The source of the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// A processor's Intel PT.
    Hardware,
    /// The software recorder.
    Software,
    /// The source is unknown.
    #[default]
    Unknown,
}

/// The maximum length of [`Meta::standard_error`] in bytes.
pub const MAX_STANDARD_ERROR: usize = 4096;

/// The origin of a trace, and its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// The source of the packets.
    pub source: Source,
    /// The command that made the bundle: `record --engine step`, `import perf`.
    pub created_by: Option<String>,
    /// The creation time in seconds since 1970.
    pub created_at: Option<u64>,
    /// The traced program's path.
    pub program: Option<String>,
    /// The program's arguments, starting with its name.
    pub command_line: Vec<String>,
    /// The crash that ended the trace.
    pub crash: Option<Crash>,
    /// The exit of the recorded program, or of the first of several. `None` if unknown, or if it
    /// kept running.
    pub ending: Option<Ending>,
    /// The host name of the traced machine.
    pub host: Option<String>,
    /// The kernel release of the traced machine.
    pub kernel: Option<String>,
    /// The cost of recording in software.
    pub overhead: Option<Overhead>,
    /// The version of the heap events in the trace ([`crate::heap`]). `None` if it has none.
    pub heap_events: Option<u64>,
    /// The last lines that the crashed or first process wrote to standard error, as the program
    /// wrote them. At most [`MAX_STANDARD_ERROR`] bytes are kept.
    pub standard_error: Option<String>,
    /// The context that the process published, of the crash or of the end of the trace.
    pub context: Option<PublishedContext>,
    /// The circumstances under which the collector saved the bundle.
    pub collected: Option<Collected>,
    /// Notes for the user, one sentence each: lost, missing or guessed data.
    pub notes: Vec<String>,
}

/// The cost of recording in software. All times are in nanoseconds. Latencies in the trace include
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Wall-clock time from the start of recording to its end.
    pub wall: u64,
    /// Processor time of the program, including overhead that recording adds. `None` if unknown.
    pub program_cpu: Option<u64>,
    /// Processor time of the recorder.
    pub recorder_cpu: u64,
    /// The number of times the program was stopped.
    pub stops: u64,
}

/// The circumstances under which the collector saved a bundle. All times are in nanoseconds. `None`
/// means unknown or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The trigger: `crash`, `snapshot`, `function`.
    pub trigger: String,
    /// The wall-clock time of the trigger, since 1970.
    pub time: Option<u64>,
    /// The source of the crash report: an eBPF attach type, or the core dump alone.
    pub probe: Option<String>,
    /// Time from signal delivery until the collector read the crash event.
    pub crash_to_reader: Option<u64>,
    /// Time from signal delivery until the trace of its processor was paused.
    pub crash_to_stop: Option<u64>,
    /// Bytes of older trace that were overwritten in that time.
    pub overwritten: Option<u64>,
    /// Time from signal delivery until the collector began to read the process's memory.
    pub crash_to_held: Option<u64>,
    /// The time for which the process was held.
    pub held: Option<u64>,
    /// The size of the PT packets in bytes.
    pub history: u64,
    /// The real user id of the process, in the initial user namespace.
    pub user: Option<u32>,
    /// The systemd service of the process, without `.service`.
    pub service: Option<String>,
    /// The user whose recorder submitted the bundle. That user controls everything else in it.
    pub deposited_by: Option<u32>,
    /// Missing data, one sentence each. If empty, the bundle is complete.
    pub missing: Vec<String>,
}

/// The exit of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The program exited with this status.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
}

/// Returns whether a process killed by this signal crashed: the signal's default action dumps core
/// (signal(7)). Users send the other signals to end a healthy process.
#[must_use]
pub fn is_crash(signal: i32) -> bool {
    // SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ and SIGSYS of
    // x86-64 Linux, whatever platform the reader runs on.
    matches!(signal, 3..=8 | 11 | 24 | 25 | 31)
}

/// The signal that killed a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The process.
    pub pid: Pid,
    /// The thread the signal was delivered to.
    pub tid: Tid,
    /// `si_signo`.
    pub signal: i32,
    /// `si_code`.
    pub code: i32,
    /// `si_addr`, for signals that have one.
    pub fault_address: Option<Avma>,
    /// The instruction pointer at delivery.
    pub pc: Avma,
}
