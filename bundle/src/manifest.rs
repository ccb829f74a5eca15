//! What a bundle says of its trace: the types every part uses, free of any file format.

use crate::BundlePath;
use backtrail_pt::{Avma, BuildId, Cpu, CpuModel, FileOffset, Pid, Svma, Tid, TimingParams, TscConversion};

/// The whole description of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The traced processor.
    pub cpu: CpuModel,
    /// What a decoder needs to refine time.
    pub timing: TimingParams,
    /// The way from TSC to perf's clock; always there when `cpus` is not empty.
    pub tsc: Option<TscConversion>,
    /// Where tracing was allowed at all; empty: everywhere.
    pub filters: Vec<AddressFilter>,
    /// The traced processes.
    pub processes: Vec<Process>,
    /// Traces kept by processor. Either these or [`Thread::trace`] are used, never both.
    pub cpus: Vec<CpuTrace>,
    /// The ELF core of the crash.
    pub core: Option<BundlePath>,
    /// Where the trace comes from and how it ended.
    pub meta: Meta,
}

/// An `IA32_RTIT_ADDRn` range: only code in one of them was traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFilter {
    /// The first traced address.
    pub from: Avma,
    /// The last traced address, itself included.
    pub to: Avma,
}

/// A traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// Its threads, as far as known.
    pub threads: Vec<Thread>,
    /// The ELF files mapped into it. Where two overlap, the later one counts.
    pub modules: Vec<Module>,
    /// Code that comes from no ELF file. Laid over the modules.
    pub images: Vec<RawImage>,
    /// The file of its [`CodeVersions`](crate::CodeVersions), when it has any. They lie over the images.
    pub versions: Option<BundlePath>,
}

/// A thread of a traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Its id.
    pub tid: Tid,
    /// Its name (`comm`).
    pub name: Option<String>,
    /// Its PT packets, when traces are kept by thread.
    pub trace: Option<BundlePath>,
}

/// An ELF file mapped into a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Where the traced system had it.
    pub path: String,
    /// The copy in the bundle; `None` when it could not be found.
    pub file: Option<BundlePath>,
    /// Its build id, when it has one.
    pub build_id: Option<BuildId>,
    /// Where the page of its lowest `PT_LOAD` lies (LLDB's `loadAddress`).
    pub base: Avma,
    /// What of it was mapped where, when known; empty: its `PT_LOAD` segments at [`Self::bias`].
    pub mappings: Vec<Mapping>,
}

impl Module {
    /// Actual minus stated address (mod 2^64) of this module, `lowest_load` being the `p_vaddr` of
    /// the lowest `PT_LOAD` in its program headers.
    #[must_use]
    pub fn bias(&self, lowest_load: Svma) -> u64 {
        self.base.0.wrapping_sub(lowest_load.0 & !(crate::PAGE_SIZE - 1))
    }
}

/// A part of a module's file mapped into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: Avma,
    /// The file offset that lies there.
    pub offset: FileOffset,
    /// In bytes.
    pub size: u64,
}

/// Raw code in a file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawImage {
    /// The first address.
    pub start: Avma,
    /// The file.
    pub file: BundlePath,
    /// Where in it the code starts.
    pub offset: FileOffset,
    /// In bytes.
    pub size: u64,
}

/// The trace of a processor, of all threads that ran there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTrace {
    /// Its number.
    pub cpu: Cpu,
    /// Its PT packets.
    pub trace: BundlePath,
    /// Its context switches, as [`backtrail_perf::switch`] reads them.
    pub switches: BundlePath,
}

/// What made the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Source {
    /// A processor's Intel PT.
    Hardware,
    /// The software recorder.
    Software,
    /// Not known.
    #[default]
    Unknown,
}

/// Where a trace comes from, and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// What made the packets.
    pub source: Source,
    /// Which command made the bundle: `record --engine step`, `import perf`.
    pub created_by: Option<String>,
    /// When, in seconds since 1970.
    pub created_at: Option<u64>,
    /// The traced program's path.
    pub program: Option<String>,
    /// Its arguments, the first being its name.
    pub command_line: Vec<String>,
    /// The crash that ended the trace.
    pub crash: Option<Crash>,
    /// How the recorded program ended; of several processes, the first one. `None`: not known, or it ran on.
    pub ending: Option<Ending>,
    /// Name of the traced machine.
    pub host: Option<String>,
    /// Release of its kernel.
    pub kernel: Option<String>,
    /// What recording in software cost.
    pub overhead: Option<Overhead>,
    /// How the collector came by it.
    pub collected: Option<Collected>,
    /// What the reader should know: what was lost, not found or guessed, a sentence each.
    pub notes: Vec<String>,
}

/// What recording in software cost, all times in nanoseconds: latencies in the trace are those of the
/// recorded run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// From the beginning of recording to its end.
    pub wall: u64,
    /// Processor time of the program, what recording adds to it included; `None`: not known.
    pub program_cpu: Option<u64>,
    /// Processor time of the recorder.
    pub recorder_cpu: u64,
    /// How often the program was stopped.
    pub stops: u64,
}

/// How the collector came by a bundle. All times are in nanoseconds; `None`: not known, or there was none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// What made it save: `crash`, `snapshot`, `function`.
    pub trigger: String,
    /// The wall clock when it happened, since 1970.
    pub time: Option<u64>,
    /// What told of the crash, in words: an eBPF attach type, or the core dump alone.
    pub probe: Option<String>,
    /// From the signal's delivery until the collector read of it.
    pub crash_to_reader: Option<u64>,
    /// From the signal's delivery until its processor's trace was paused.
    pub crash_to_stop: Option<u64>,
    /// Bytes of trace that overwrote older ones between the two.
    pub overwritten: Option<u64>,
    /// From the signal's delivery until the process's memory began to be read.
    pub crash_to_held: Option<u64>,
    /// How long the process was kept.
    pub held: Option<u64>,
    /// Bytes of PT packets.
    pub history: u64,
    /// The real user id of the process, in the initial user namespace.
    pub user: Option<u32>,
    /// The user whose recorder handed the bundle in. Everything else in it is that user's word.
    pub deposited_by: Option<u32>,
    /// What should be there and is not, a sentence each; empty: the bundle is complete.
    pub missing: Vec<String>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
}

/// Whether a process that a signal ends has crashed: the signal's default action dumps core (signal(7)). The others are how a user
/// ends a process that does well.
#[must_use]
pub fn is_crash(signal: i32) -> bool {
    // SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU, SIGXFSZ and SIGSYS of x86-64 Linux, whatever the reader
    // runs on.
    matches!(signal, 3..=8 | 11 | 24 | 25 | 31)
}

/// The signal that ended a process.
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
    /// `si_addr`, of signals that have one.
    pub fault_address: Option<Avma>,
    /// The instruction pointer at delivery.
    pub pc: Avma,
}
