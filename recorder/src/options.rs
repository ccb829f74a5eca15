//! The options of a recording.

use crate::crash_sink::CrashSink;
use crate::program_filter::ProgramFilter;
use backtrail_bundle::Overwrite;
use backtrail_pt::Pid;
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The program or processes to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// Runs a program with arguments. The program is found as a shell finds it.
    ///
    /// The program is killed if recording ends first.
    Command(Vec<OsString>),
    /// Attaches to all threads of running processes. They are detached when recording ends.
    Processes(Vec<Pid>),
}

/// The engine that records the control flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Runs the program in a code cache. The recorder gets control only when the cache cannot go
    /// on.
    #[default]
    Translate,
    /// Executes one instruction at a time.
    Step,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Translate => "translate",
            Self::Step => "step",
        })
    }
}

/// The processors that the recorder and the program run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// [`Self::Together`] with [`Engine::Step`], which switches between both at every instruction;
    /// otherwise [`Self::Off`].
    #[default]
    Auto,
    /// The program and the tracing thread share one processor, which makes switching faster.
    /// Packets are encoded on the others. The program sees one processor.
    Together,
    /// Any processor.
    Off,
}

/// The output of a recording.
pub enum Output<'a> {
    /// One bundle of all processes, written when recording ends.
    Bundle {
        /// The path of the bundle.
        path: PathBuf,
        /// Whether the new bundle may replace an existing one, after it is complete.
        overwrite: Overwrite,
    },
    /// One bundle for each process that a signal ends, and for each other one that the sink keeps,
    /// written after its end. Needs [`RecordOptions::ring`]: without a ring, memory use grows
    /// without bound.
    Crashes(&'a mut dyn CrashSink),
}

impl From<PathBuf> for Output<'_> {
    /// Writes a bundle to a path that does not exist yet.
    fn from(path: PathBuf) -> Self {
        Self::Bundle {
            path,
            overwrite: Overwrite::Never,
        }
    }
}

/// The amount of values to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueOptions {
    /// About this many compressed bytes of the newest values of each thread; `None` keeps all.
    pub limit: Option<usize>,
    /// About this many bytes make a segment, at most 1 MiB; `None` is the best size. Tests use
    /// small segments: each begins with the registers of the processor. [`Engine::Translate`] only.
    pub segment: Option<u64>,
}

impl ValueOptions {
    /// Returns the size of a segment in bytes.
    pub(crate) fn segment(self) -> u64 {
        self.segment
            .map_or(MOST_SEGMENT, |size| size.clamp(LEAST_SEGMENT, MOST_SEGMENT))
    }
}

/// The sizes of a segment of values in bytes.
const LEAST_SEGMENT: u64 = 1 << 10;
const MOST_SEGMENT: u64 = 1 << 20;

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Instructions recorded, summed over all threads.
    pub instructions: u64,
    /// Packet bytes written, including those that a ring has dropped.
    pub bytes: u64,
    /// Threads that are running.
    pub threads: usize,
}

/// The options of a recording; [`RecordOptions::new`] returns the defaults.
pub struct RecordOptions<'a> {
    /// The program or processes to record.
    pub target: Target,
    /// The engine.
    pub engine: Engine,
    /// The processors to run on.
    pub pin: Pin,
    /// Bytes of the code cache near each module, within [`Self::CACHE`]. A full cache is flushed.
    /// [`Engine::Translate`] only.
    pub cache: u64,
    /// Where translated code is kept for later recordings. [`Engine::Translate`] only.
    pub translations: Option<TranslationDirectory>,
    /// Translates all code into superblocks at once, instead of only frequently executed code.
    /// Tests use this to avoid long runs. [`Engine::Translate`] only.
    pub all_superblocks: bool,
    /// Records heap events: calls of allocator functions, and the blocks that these return.
    /// [`Engine::Translate`] only.
    pub heap: bool,
    /// Records values, so that a debugger can replay all registers and memory accesses.
    pub values: Option<ValueOptions>,
    /// Keeps the last lines that each process writes to standard error. Each write stops its thread
    /// for a moment, and is otherwise unchanged. [`Engine::Translate`] only.
    pub standard_error: bool,
    /// Keeps about this many bytes of the newest packets of each thread; `None` keeps all packets.
    pub ring: Option<usize>,
    /// Also records processes that the program forks, and ends with the last of them. Without this
    /// they run untraced.
    pub follow: bool,
    /// The programs to record. The processes of others run without translation until they execute
    /// one of these. [`Target::Command`] with [`Self::follow`] only.
    pub only: ProgramFilter,
    /// Randomizes the load addresses, as the system does. Without this, runs use the same
    /// addresses.
    pub randomize_addresses: bool,
    /// Writes time packets between PSB packets: an MTC at least every millisecond, and a CYC with
    /// every packet.
    pub fine_time: bool,
    /// Compresses returns to their call into one TNT bit (RET compression), as hardware does. This
    /// often saves a third of the bytes.
    pub compress_returns: bool,
    /// Stores the address of every executed instruction of each thread
    /// ([`crate::Outcome::golden`]), 8 bytes each, for tests. [`Engine::Step`] only.
    pub golden: bool,
    /// Ends recording when set to true.
    pub stop: &'a AtomicBool,
    /// The maximum duration of the recording.
    pub duration: Option<Duration>,
    /// Called with the progress several times a second.
    pub progress: Option<&'a mut (dyn FnMut(Progress) + Send)>,
    /// Called once with the process of the program after it has started. [`Target::Command`] only.
    pub started: Option<&'a mut (dyn FnMut(Pid) + Send)>,
    /// Numbers of signals to forward to the program. After the program has ended and only its child
    /// processes are left, a signal ends the recording and the children instead.
    /// [`Target::Command`] only.
    pub signals: Option<Receiver<i32>>,
    /// The output.
    pub output: Output<'a>,
}

/// A directory for translated code, which recordings of one user share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslationDirectory {
    /// The path. The directory is created if needed. It must belong to the user, and no other
    /// user may write to it; otherwise it is not used.
    pub path: PathBuf,
    /// The maximum size of all files, in bytes. Those that were not used for longest are removed.
    pub limit: u64,
}

impl<'a> RecordOptions<'a> {
    /// The allowed range of [`Self::cache`], 64 KiB to 64 MiB. Other values are clamped.
    pub const CACHE: RangeInclusive<u64> = 64 << 10..=64 << 20;

    /// Returns the defaults: records one process completely, until it ends or `stop` is set.
    #[must_use]
    pub fn new(target: Target, output: impl Into<Output<'a>>, stop: &'a AtomicBool) -> Self {
        Self {
            target,
            engine: Engine::default(),
            pin: Pin::default(),
            cache: *Self::CACHE.end(),
            translations: None,
            all_superblocks: false,
            heap: false,
            values: None,
            standard_error: true,
            ring: None,
            follow: false,
            only: ProgramFilter::default(),
            randomize_addresses: true,
            fine_time: true,
            compress_returns: true,
            golden: false,
            stop,
            duration: None,
            progress: None,
            started: None,
            signals: None,
            output: output.into(),
        }
    }
}
