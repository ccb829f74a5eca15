//! What to record, and how.

use crate::crash_sink::CrashSink;
use backtrail_bundle::Overwrite;
use backtrail_pt::Pid;
use std::ffi::OsString;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// What to record.
#[derive(Clone, Debug)]
pub enum Target {
    /// Runs a program, found as a shell finds it, with its arguments.
    ///
    /// It lives as long as the recorder: when recording ends first, it is killed.
    Command(Vec<OsString>),
    /// Attaches to running processes, all their threads. They are let go when recording ends.
    Processes(Vec<Pid>),
}

/// How a program is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// It runs in a code cache; stopped only for what the cache does not know.
    #[default]
    Translate,
    /// One instruction at a time.
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

/// Which processors recorder and program run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// Together with [`Engine::Step`], which hands over at each instruction; else anywhere.
    #[default]
    Auto,
    /// The program and the thread that minds it share one processor, and hand over faster; packets are
    /// written on others. The program sees that it has one processor.
    Together,
    /// Anywhere.
    Off,
}

/// What a recording makes.
pub enum Output<'a> {
    /// One bundle of all processes, when recording ends.
    Bundle {
        /// Where it goes.
        path: PathBuf,
        /// Whether an earlier bundle there gives way, once the new one is complete.
        overwrite: Overwrite,
    },
    /// One for each process that a signal ends, once it is gone; of processes that end by themselves nothing is
    /// kept. Only with [`RecordOptions::ring`]: else it would take more memory as long as it runs.
    Crashes(&'a mut dyn CrashSink),
}

impl From<PathBuf> for Output<'_> {
    /// A bundle where none stands yet.
    fn from(path: PathBuf) -> Self {
        Self::Bundle {
            path,
            overwrite: Overwrite::Never,
        }
    }
}

/// How far recording has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Instructions recorded, of all threads.
    pub instructions: u64,
    /// Bytes of packets written, those a ring has dropped included.
    pub bytes: u64,
    /// Threads that run now.
    pub threads: usize,
}

/// How to record; [`RecordOptions::new`] gives the usual way.
pub struct RecordOptions<'a> {
    /// What.
    pub target: Target,
    /// How.
    pub engine: Engine,
    /// On which processors.
    pub pin: Pin,
    /// Bytes of translated code near each part of the program, within [`Self::CACHE`]: when they are full, it is
    /// translated anew. [`Engine::Translate`] only.
    pub cache: u64,
    /// Translates all code at once as it otherwise does what is found to be executed often: so that tests
    /// need no long runs. [`Engine::Translate`] only.
    pub all_wide: bool,
    /// Keeps the newest bytes of packets of each thread, about this many; `None` keeps all.
    pub ring: Option<usize>,
    /// Records the processes that the program forks too, and ends with the last of them; else they run
    /// free.
    pub follow: bool,
    /// Loads the program at other addresses each time, as the system does. Off makes runs alike.
    pub randomize_addresses: bool,
    /// Tells time between PSB packets: at least every millisecond (MTC) and at every packet (CYC).
    pub fine_time: bool,
    /// Tells a return to where its call said by one bit, as hardware does: often a third of the bytes.
    pub compress_returns: bool,
    /// Keeps the exact list of executed instruction pointers of each thread
    /// ([`crate::Outcome::golden`]): 8 bytes each, for tests. [`Engine::Step`] only.
    pub golden: bool,
    /// Ends recording when it becomes true.
    pub stop: &'a AtomicBool,
    /// Ends recording after this time.
    pub duration: Option<Duration>,
    /// Is told how far recording has come, several times a second.
    pub progress: Option<&'a mut (dyn FnMut(Progress) + Send)>,
    /// Is called once with the process of the program, when that is started. [`Target::Command`] only.
    pub started: Option<&'a mut (dyn FnMut(Pid) + Send)>,
    /// Signals (their numbers) that are sent on to the program, [`Target::Command`] only. Once that has ended and
    /// only processes that it started are left, one of them ends the recording instead, and these with it.
    pub signals: Option<Receiver<i32>>,
    /// What it makes.
    pub output: Output<'a>,
}

impl<'a> RecordOptions<'a> {
    /// What [`Self::cache`] may be: 64 KiB to 64 MiB. Less is taken as the least, more as the most.
    pub const CACHE: RangeInclusive<u64> = 64 << 10..=64 << 20;

    /// Everything that one process does, until it ends or `stop` is set.
    #[must_use]
    pub fn new(target: Target, output: impl Into<Output<'a>>, stop: &'a AtomicBool) -> Self {
        Self {
            target,
            engine: Engine::default(),
            pin: Pin::default(),
            cache: *Self::CACHE.end(),
            all_wide: false,
            ring: None,
            follow: false,
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
