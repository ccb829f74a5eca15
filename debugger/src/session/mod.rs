//! An opened trace: its processes with code and symbols, its threads with their histories, and the
//! state that the core kept.

mod binaries;
mod call_name;
mod code_mode;
mod core_modules;
mod decoding;
mod functions;
mod identity;
mod instances;
mod load;
mod modules;
mod open_core;
mod process;
mod thread;
mod threads;

use crate::coverage::Coverage;
use crate::error::{Error, Result};
use crate::replay::ThreadReplay;
use crate::time::Timebase;
use backtrail_bundle::context::ThreadContext;
use backtrail_bundle::core::{Core, Registers};
use backtrail_bundle::manifest::{Crash, Ending};
use backtrail_decoder::{CpuReport, Engine, Forest, Stage, Watch};
use backtrail_pt::Tid;
use backtrail_symbolizer::Symbolizer;
pub use call_name::CallName;
use decoding::UndecodedHistory;
pub use functions::SymbolFunctions;
pub use load::Prepared;
pub(crate) use load::process_of;
pub(crate) use modules::{loads, lowest};
pub use process::{CodeMode, Process};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub use thread::Thread;
pub(crate) use thread::{PositionCount, begins_unseen};
use threads::Threads;

/// The options for opening a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Another decode engine, to compare with; `None` uses the decoder's own.
    pub engine: Option<&'static dyn Engine>,
    /// The number of CPUs to use; `None` uses all.
    pub jobs: Option<NonZeroUsize>,
    /// Decodes about this number of bytes at the end of each trace; `None` decodes all.
    pub last: Option<u64>,
    /// Of a much longer trace, decodes about this number of bytes at first, and the rest when it is
    /// needed; `None` decodes all at once.
    pub first: Option<u64>,
    /// Finds the calls of the main thread while decoding, because most sessions need them.
    pub main_calls: bool,
    /// Additional directories for source files.
    pub source_paths: Vec<PathBuf>,
    /// Root directories of the recorded machine's binaries and debug files (`--symfs`), searched by
    /// path and by build id.
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
    warnings: Vec<String>,
    /// The thread to begin with.
    main: Option<Tid>,
    /// The history that is not decoded yet.
    earlier: Option<UndecodedHistory>,
    /// The bundle, whose unpacked files exist as long as this.
    bundle: Option<backtrail_bundle::Bundle>,
}

impl Session {
    /// Returns the name of the opened file or directory.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of the bundle.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the directories of source files.
    #[must_use]
    pub fn source_paths(&self) -> &[PathBuf] {
        &self.source_paths
    }

    /// All threads, by id.
    #[must_use]
    pub fn threads(&self) -> &[Thread] {
        self.threads.list()
    }

    /// Returns how each CPU's trace was split into threads; empty if the trace is per thread.
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

    /// Returns the symbols of the modules that were mapped before instruction `index` of a thread.
    #[must_use]
    pub fn symbols_at(&self, thread: &Thread, index: u64) -> Option<&Arc<Symbolizer>> {
        let process = self.process(thread)?;
        Some(match thread.history.is_empty() {
            true => process.symbols_at_end(),
            false => process.symbols_at(thread.history.version(index)),
        })
    }

    /// The calls of a thread; found on first use.
    ///
    /// # Errors
    /// When canceled.
    pub fn forest<'a>(&'a self, thread: &'a Thread, watch: &Watch<'_>) -> Result<&'a Forest> {
        if let Some(known) = thread.forest.get() {
            return Ok(known);
        }
        let functions = match self.process(thread) {
            Some(process) => SymbolFunctions::over_time(&process.modules),
            None => SymbolFunctions::new(Arc::default()),
        };
        let forest = Forest::build(&thread.history, &functions, watch)?;
        Ok(thread.forest.get_or_init(|| forest))
    }

    /// Returns the execution counts of a thread's lines, computed at the first request.
    ///
    /// # Errors
    ///
    /// If the beginning of the history is not decoded yet; when canceled.
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

    /// The command that made the bundle, such as `record --engine step`; `None`: no bundle was
    /// opened, or it does not say.
    #[must_use]
    pub fn made_by(&self) -> Option<&str> {
        self.bundle.as_ref()?.manifest().meta.created_by.as_deref()
    }

    /// The crash that ended the trace.
    #[must_use]
    pub fn crash(&self) -> Option<&Crash> {
        self.crash.as_ref()
    }

    /// Returns the request that a thread worked on at the end, if its process published one.
    #[must_use]
    pub fn request_of(&self, tid: Tid) -> Option<&ThreadContext> {
        let context = self.bundle.as_ref()?.manifest().meta.context.as_ref()?;
        context.thread(tid)
    }

    /// Returns the last lines that the program wrote to standard error, if the bundle has them.
    #[must_use]
    pub fn standard_error(&self) -> Option<&str> {
        self.bundle.as_ref()?.manifest().meta.standard_error.as_deref()
    }

    /// Returns how the program ended, if the bundle has it.
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

    /// Returns whether values of the past were recorded.
    #[must_use]
    pub fn has_values(&self) -> bool {
        self.threads().iter().any(|thread| self.replay(thread).is_some())
    }

    /// Returns the replay of a thread whose values were recorded.
    pub(crate) fn replay<'a>(&self, thread: &'a Thread) -> Option<&'a ThreadReplay> {
        let find = || {
            let pid = self.process(thread)?.pid;
            let log = self.bundle()?.value_log(pid, thread.tid).ok()??;
            // A redacted log is empty.
            (!log.segments().is_empty()).then(|| ThreadReplay::new(log, &thread.history))
        };
        thread.replay.get_or_init(find).as_ref()
    }

    /// Returns the time base, which converts time stamps.
    #[must_use]
    pub fn times(&self) -> &Timebase {
        &self.times
    }

    /// Returns notes for the reader, one sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns those notes that a user must not miss: about files that are not used because they
    /// are of another build, or that may be.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the main thread: the one that crashed or that a signal ended.
    ///
    /// Otherwise it is the thread whose history ends last or, without time stamps, the one with the
    /// longest history. Without any history it is the first thread of the core.
    #[must_use]
    pub fn main_thread(&self) -> Option<&Thread> {
        self.threads.get(self.main?)
    }

    /// See [`Self::main_thread`].
    fn find_main(&self) -> Option<Tid> {
        let ended = threads::ended_thread(self.crash.as_ref(), self.core.as_ref());
        let ended = ended.and_then(|tid| self.threads.get(tid));
        let without_history = self.threads().iter().all(|thread| thread.history.is_empty());
        let first = self
            .core
            .as_ref()
            .and_then(|core| core.contents().threads.first());
        let first = first.filter(|_| without_history);
        let first = || first.and_then(|thread| self.threads.get(thread.tid));
        let end = |thread: &Thread| thread.history.arrival(thread.history.len()).map(|time| time.tsc);
        let last = || {
            self.threads()
                .iter()
                .max_by_key(|thread| (end(thread), thread.history.len()))
        };
        ended.or_else(first).or_else(last).map(|thread| thread.tid)
    }

    /// Returns whether older history is not decoded yet.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.earlier.is_some()
    }

    /// Begins to decode older history in the background, because it will be needed.
    pub fn decode_ahead(&mut self) {
        if let Some(earlier) = &mut self.earlier {
            earlier.begin();
        }
    }

    /// Returns whether older history has been decoded in the background and is ready.
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
        let mut threads = threads::decoded_threads(bundle.manifest(), decoded, self.core.as_ref());
        for thread in &mut threads {
            let Some(known) = self.threads.get(thread.tid) else {
                continue;
            };
            thread.from_end = known.from_end;
            if !thread.history.ends_with(&known.history) {
                self.notes.push(format!(
                    "decoding the rest of the trace changed the end of thread {}: its positions changed",
                    thread.tid
                ));
            }
        }
        self.threads = Threads::new(threads);
        Ok(())
    }

    /// Returns whether these threads were at the ends of their histories at one time.
    ///
    /// A crash ends all threads of its process at once, and a core has all threads at one time.
    pub(crate) fn end_at_once(&self, one: &Thread, other: &Thread) -> bool {
        let is_saved = |thread: &Thread| {
            let core = self.core.as_ref();
            core.is_some_and(|core| core.thread(thread.tid).is_some())
        };
        self.crash_of(one.tid).is_some() || is_saved(one) && is_saved(other)
    }

    /// The crash, when it ended this thread.
    #[must_use]
    pub fn crash_of(&self, tid: Tid) -> Option<&Crash> {
        let only = self.threads().len() == 1;
        self.crash.as_ref().filter(|crash| crash.tid == tid || only)
    }
}
