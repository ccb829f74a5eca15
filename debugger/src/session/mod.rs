//! An opened trace: its processes with code and symbols, its threads with their histories, and the
//! state that the core kept.

mod call_name;
mod decoding;
mod functions;
mod identity;
mod load;
mod modules;
mod thread;
mod threads;

use crate::code::{CodeMap, Lines};
use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::time::Timebase;
use backtrail_bundle::core::{Core, Registers};
use backtrail_bundle::manifest::{Crash, Ending};
use backtrail_decoder::{CpuReport, EngineKind, Forest, Image, Stage, Version, Watch};
use backtrail_pt::{Avma, Pid, Tid};
use backtrail_symbolizer::{Function, Symbolizer};
pub use call_name::CallName;
use decoding::UndecodedHistory;
pub use functions::SymbolFunctions;
use iced_x86::{Decoder, DecoderOptions};
pub use load::Prepared;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use thread::Thread;
pub(crate) use thread::begins_unseen;
use threads::Threads;

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What decodes it.
    pub engine: EngineKind,
    /// How many processors to use; `None`: as many as there are.
    pub jobs: Option<NonZeroUsize>,
    /// Decodes only about so many bytes of each trace, the last ones; `None`: all.
    pub last: Option<u64>,
    /// Decodes at first only about so many bytes of each trace that is much longer, the last ones, and the rest when it is
    /// asked for; `None`: all at once.
    pub first: Option<u64>,
    /// Finds the calls of the thread that crashed, or has the longest trace, meanwhile, for they will be asked for.
    pub main_calls: bool,
    /// Directories to look for source files in, beside where the debug information says.
    pub source_paths: Vec<PathBuf>,
    /// More roots of separate debug files.
    pub debug_roots: Vec<PathBuf>,
}

impl OpenOptions {
    /// Enough of a long trace to begin with: decoded within a fraction of a second.
    pub const FIRST: u64 = 2 << 20;
}

/// An opened trace.
pub struct Session {
    name: String,
    program: Option<String>,
    root: PathBuf,
    processes: Vec<Process>,
    threads: Threads,
    cpus: Vec<CpuReport>,
    core: Option<Core>,
    crash: Option<Crash>,
    times: Timebase,
    source_paths: Vec<PathBuf>,
    notes: Vec<String>,
    /// The thread to begin with.
    main: Option<Tid>,
    /// What is not decoded yet.
    earlier: Option<UndecodedHistory>,
    /// What a packed bundle was unpacked to lives as long as this.
    bundle: Option<backtrail_bundle::Bundle>,
}

/// A traced process: its code and symbols.
pub struct Process {
    /// Its id.
    pub pid: Pid,
    /// Its symbols.
    pub symbols: Arc<Symbolizer>,
    /// Its code bytes.
    pub image: Arc<Image>,
    code: CodeMap,
}

impl Session {
    /// Opens a bundle, its directory or its packed file, and decodes it; or opens an ELF core alone,
    /// which has the state at the crash and no history.
    ///
    /// # Errors
    /// When the input cannot be read, is malformed, or holds no thread; when canceled.
    pub fn open(path: &Path, options: &OpenOptions, watch: &Watch<'_>) -> Result<Self> {
        load::open(path, options, watch)
    }

    /// What was opened.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the bundle.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directories to look for source files in.
    #[must_use]
    pub fn source_paths(&self) -> &[PathBuf] {
        &self.source_paths
    }

    /// All threads, by id.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        self.threads.list()
    }

    /// How each processor's trace was split into threads; empty when the trace is by thread.
    #[must_use]
    pub fn cpus(&self) -> &[CpuReport] {
        &self.cpus
    }

    /// The bundle; `None` when a core alone was opened.
    #[must_use]
    pub fn bundle(&self) -> Option<&backtrail_bundle::Bundle> {
        self.bundle.as_ref()
    }

    /// A thread.
    ///
    /// # Errors
    /// When there is none with this id.
    pub fn thread(&self, tid: Tid) -> Result<&Thread> {
        let found = self.threads.get(tid);
        found.ok_or_else(|| Error::NoThread(tid.to_string()))
    }

    /// All processes.
    #[must_use]
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process of a thread.
    #[must_use]
    pub fn process(&self, thread: &Thread) -> Option<&Process> {
        self.processes.get(thread.process)
    }

    /// The calls of a thread; found when first asked for.
    ///
    /// # Errors
    /// When canceled.
    pub fn forest<'a>(&'a self, thread: &'a Thread, watch: &Watch<'_>) -> Result<&'a Forest> {
        if let Some(known) = thread.forest.get() {
            return Ok(known);
        }
        let symbols = self
            .process(thread)
            .map(|process| Arc::clone(&process.symbols))
            .unwrap_or_default();
        let forest = Forest::build(&thread.history, &SymbolFunctions::new(symbols), watch)?;
        Ok(thread.forest.get_or_init(|| forest))
    }

    /// How often the lines of a thread ran; counted when first asked for.
    ///
    /// # Errors
    /// When canceled; when the beginning of the history is not decoded yet.
    pub fn coverage<'a>(&'a self, thread: &'a Thread, watch: &Watch<'_>) -> Result<&'a Coverage> {
        thread.needs_beginning()?;
        if let Some(known) = thread.coverage.get() {
            return Ok(known);
        }
        let coverage = match self.process(thread) {
            Some(process) => Coverage::of(&thread.history, process, watch)?,
            None => Coverage::default(),
        };
        Ok(thread.coverage.get_or_init(|| coverage))
    }

    /// The traced program, if known.
    #[must_use]
    pub fn program(&self) -> Option<&str> {
        self.program.as_deref()
    }

    /// The command that made the bundle, such as `record --engine step`; `None`: no bundle was opened, or it does not say.
    #[must_use]
    pub fn made_by(&self) -> Option<&str> {
        self.bundle.as_ref()?.manifest().meta.created_by.as_deref()
    }

    /// The crash that ended the trace.
    #[must_use]
    pub fn crash(&self) -> Option<&Crash> {
        self.crash.as_ref()
    }

    /// How the program ended, where the bundle says it.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.bundle.as_ref()?.manifest().meta.ending
    }

    /// The core of the crash.
    #[must_use]
    pub fn core(&self) -> Option<&Core> {
        self.core.as_ref()
    }

    /// The registers of a thread as the core has them: those at the end of its history.
    #[must_use]
    pub fn end_registers(&self, tid: Tid) -> Option<&Registers> {
        let core = self.core.as_ref()?;
        let found = core.thread(tid);
        // A raw import knows no thread id; the thread that crashed is meant.
        let only = || core.crashed_thread().filter(|_| self.threads().len() == 1);
        found.or_else(only).map(|thread| &thread.registers)
    }

    /// How times are told.
    #[must_use]
    pub fn times(&self) -> &Timebase {
        &self.times
    }

    /// What the reader should know of the trace, a sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The thread that crashed, or that a signal ended otherwise; without one, the one whose history ends last, and where no time
    /// tells that the one with the longest.
    #[must_use]
    pub fn main_thread(&self) -> Option<&Thread> {
        self.threads.get(self.main?)
    }

    /// See [`Self::main_thread`].
    fn find_main(&self) -> Option<Tid> {
        let ended = load::ended_thread(self.crash.as_ref(), self.core.as_ref());
        let ended = ended.and_then(|tid| self.threads.get(tid));
        let end = |thread: &Thread| thread.history.arrival(thread.history.len()).map(|time| time.tsc);
        let last = || {
            self.threads()
                .iter()
                .max_by_key(|thread| (end(thread), thread.history.len()))
        };
        ended.or_else(last).map(|thread| thread.tid)
    }

    /// Older history is there to be decoded.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.earlier.is_some()
    }

    /// Begins to decode it, in the background, for it will be asked for.
    pub fn decode_ahead(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.begin();
        }
    }

    /// Older history has been decoded in the background and can be had at once.
    #[must_use]
    pub fn is_decoded_ahead(&self) -> bool {
        self.earlier.as_ref().is_some_and(UndecodedHistory::is_ready)
    }

    /// Decodes what was left out at first: histories get longer at their beginnings.
    ///
    /// # Errors
    /// When canceled; then all is as before.
    pub(crate) fn decode_earlier(&mut self, watch: &Watch<'_>) -> Result<()> {
        let (Some(earlier), Some(bundle)) = (&mut self.earlier, &self.bundle) else {
            return Ok(());
        };
        let decoded = earlier.wait(watch)?;
        watch.end(Stage::Decode);
        self.earlier = None;
        let mut threads = load::threads(bundle.manifest(), decoded, self.core.as_ref());
        for thread in &mut threads {
            let Some(known) = self.threads.get(thread.tid) else {
                continue;
            };
            thread.from_end = known.from_end;
            if !thread.history.ends_with(&known.history) {
                self.notes.push(format!(
                    "the end of thread {}'s trace reads otherwise now that the rest is decoded: its positions are others",
                    thread.tid
                ));
            }
        }
        self.threads = Threads::new(threads);
        Ok(())
    }

    /// The crash, when it ended this thread.
    #[must_use]
    pub fn crash_of(&self, tid: Tid) -> Option<&Crash> {
        let only = self.threads().len() == 1;
        self.crash.as_ref().filter(|crash| crash.tid == tid || only)
    }
}

impl Process {
    /// Copies code bytes from `at`, as they were in a version, and says how many there are.
    pub fn read(&self, version: Version, at: Avma, out: &mut [u8]) -> usize {
        self.image.read_version(version, at, out)
    }

    /// Instruction `index` of a thread's history, decoded; `None`: its bytes are not known.
    pub(crate) fn decoded(&self, thread: &Thread, index: u64) -> Option<iced_x86::Instruction> {
        let executed = thread.history.instruction(index)?;
        self.decoded_at(thread.history.version(index), executed.pc, executed.len)
    }

    /// The instruction of so many bytes at an address, in a version of the code.
    pub(crate) fn decoded_at(&self, version: Version, pc: Avma, len: u8) -> Option<iced_x86::Instruction> {
        let mut code = [0; 15];
        let code = code.get_mut(..usize::from(len))?;
        if self.read(version, pc, code) < code.len() {
            return None;
        }
        let instruction = Decoder::with_ip(64, code, pc.0, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// What stepping by lines asks.
    #[must_use]
    pub fn lines(&self) -> &dyn Lines {
        &self.code
    }

    /// Where a breakpoint on a function belongs: see [`CodeMap::after_prologue`].
    #[must_use]
    pub fn after_prologue(&self, function: &Function<Avma>) -> Avma {
        self.code.after_prologue(function)
    }

    /// "the 3 modules with symbols", for errors.
    #[must_use]
    pub fn describe_modules(&self) -> String {
        let mut files: Vec<_> = self
            .symbols
            .modules()
            .iter()
            .filter(|module| module.file.is_some())
            .map(|module| &module.name)
            .collect();
        files.dedup();
        match files.len() {
            0 => "this process, which has no symbols at all".to_owned(),
            1 => format!(
                "the one module with symbols ({})",
                files.first().map_or("", |name| name)
            ),
            count => format!("the {count} modules with symbols"),
        }
    }
}
