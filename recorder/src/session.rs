//! A running recording: its threads and processes, and the handling of their stops.
//!
//! The modules below handle its start and end, new and ending threads, and signals.

mod claims;
mod clones;
mod crashes;
mod ending;
mod files;
mod lifecycle;
mod mappings;
mod process_state;
mod signals;
mod start;
mod state;
mod syscalls;
mod tracers;
mod translated;
mod unrecorded;

use crate::descriptors::{RaisedLimit, ReservedDescriptors};
use crate::destination::Destination;
use crate::error::Result;
use crate::options::{Engine, Pin, ValueOptions};
use crate::outcome::ProcessCounts;
use crate::packet_stream::PacketStream;
use crate::program_filter::ProgramFilter;
use crate::ptrace::{self, CpuSet, RawTid, Stop, WaitResult};
use crate::recorded::{RecordedProcess, Recording};
use crate::signal_state::has_forced_pending;
use crate::spawn::Spawned;
use crate::stepped::StepPosition;
use crate::thread::{FollowMode, RunState, Thread};
use crate::translate::{CodeStore, EncoderPool};
use crate::unique_names::UniqueNames;
use crate::values::ValueRecorder;
use crate::{Ending, clock};
use backtrail_bundle::BundlePath;
use backtrail_bundle::context::PublishedContext;
use backtrail_bundle::manifest::Crash;
use backtrail_process::module_file::ModuleFiles;
use backtrail_process::status::{self, Disposition};
use backtrail_pt::EncoderOptions;
use process_state::ProcessState;
use state::{EndedThread, PendingClones};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use tracers::FrozenThread;
use unrecorded::Unrecorded;

/// The state shared by the tracing thread and the thread that watches the time.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// Recording is to end.
    pub(crate) stop: AtomicBool,
    pub(crate) instructions: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) threads: AtomicUsize,
    /// The program that the recorder started.
    pub(crate) program: ProgramPid,
}

/// The process id of the started program, shared between threads.
#[derive(Debug, Default)]
pub(crate) struct ProgramPid(AtomicI32);

/// The value of a [`ProgramPid`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramStatus {
    /// The program has not started.
    NotStarted,
    /// The program runs as this process.
    Running(RawTid),
    /// The program has ended.
    Ended,
}

impl ProgramPid {
    const ENDED: i32 = -1;

    /// Records the start of the program.
    fn set_started(&self, pid: RawTid) {
        self.0.store(pid, Ordering::Release);
    }

    /// Records the end of the program.
    fn set_ended(&self) {
        self.0.store(Self::ENDED, Ordering::Release);
    }

    /// Returns the current status.
    pub(crate) fn status(&self) -> ProgramStatus {
        match self.0.load(Ordering::Acquire) {
            0 => ProgramStatus::NotStarted,
            Self::ENDED => ProgramStatus::Ended,
            pid => ProgramStatus::Running(pid),
        }
    }
}

/// The settings of the engines.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) follow: bool,
    pub(crate) only: ProgramFilter,
    pub(crate) golden: bool,
    pub(crate) ring: Option<usize>,
    pub(crate) encoder: EncoderOptions,
    pub(crate) engine: Engine,
    pub(crate) pin: Pin,
    /// Bytes of the code cache near each module.
    pub(crate) cache: u64,
    /// Translates all code into superblocks.
    pub(crate) all_superblocks: bool,
    /// Logs calls of allocator functions. Engine `translate` only.
    pub(crate) heap: bool,
    /// Records values. Engine `step` only.
    pub(crate) values: Option<ValueOptions>,
    /// Keeps the last lines of standard error. Engine `translate` only.
    pub(crate) standard_error: bool,
    /// Keeps processes dumpable, and shows them the value that they have set.
    pub(crate) emulates_dumpable: bool,
}

/// The threads that are not resumed after a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Nobody,
    Process(RawTid),
    All,
}

impl Hold {
    /// Returns whether the threads of a process are not resumed.
    fn holds(self, process: RawTid) -> bool {
        match self {
            Self::Nobody => false,
            Self::Process(pid) => process == pid,
            Self::All => true,
        }
    }
}

/// A running recording, owned by the tracing thread.
pub(crate) struct Session<'a> {
    pub(crate) settings: Settings,
    shared: &'a SharedState,
    pub(crate) destination: Destination<'a>,
    /// The processor that tracer and tracees share. Switching on one processor is much faster than
    /// across two.
    cpu: Option<CpuSet>,
    /// The original processor set of the program.
    free: Option<CpuSet>,
    /// The original processor sets of attached threads.
    pinned: HashMap<RawTid, CpuSet>,
    threads: HashMap<RawTid, Thread>,
    pub(crate) processes: BTreeMap<RawTid, RecordedProcess>,
    /// The child process that has not executed the program yet.
    pending: Option<Spawned>,
    /// The main recorded process.
    pub(crate) root: RawTid,
    /// Attached threads that have not stopped yet.
    attached: HashSet<RawTid>,
    /// The time until which attached threads must have stopped.
    attach_deadline: Option<Instant>,
    /// The recorder started the program.
    owns_program: bool,
    hold: Hold,
    pub(crate) ending: Ending,
    pub(crate) crash: Option<Crash>,
    pub(crate) core: Option<BundlePath>,
    /// The context that the process of the core published.
    pub(crate) context: Option<PublishedContext>,
    pub(crate) notes: Vec<String>,
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
    /// Encodes the logs of translated threads. Engine `translate` only.
    encoders: Option<EncoderPool>,
    pending_clones: PendingClones,
    process_states: HashMap<RawTid, ProcessState>,
    /// Threads that are stopped on behalf of a program that traces them.
    frozen: HashMap<RawTid, FrozenThread>,
    /// Processes that are no longer recorded, because a program traces them.
    released: HashSet<RawTid>,
    /// Threads of programs that are not recorded.
    unrecorded: Unrecorded,
    pub(crate) counts: ProcessCounts,
    pub(crate) names: UniqueNames,
    /// The open module files of all processes.
    files: ModuleFiles,
    /// Translations that processes share, if they do.
    store: Option<Arc<CodeStore>>,
    /// The raised limit on file descriptors.
    limit: RaisedLimit,
    /// File descriptors reserved for saving.
    reserve: ReservedDescriptors,
    /// The number of thread stops so far.
    pub(crate) stops: u64,
    /// Ended threads with the size of their packets, oldest first.
    ended: VecDeque<EndedThread>,
    /// The number of threads whose packets were dropped.
    pub(crate) left_out: u64,
    /// Bytes of the packet streams that have ended.
    bytes: u64,
    /// Recording has ended; tracees are only waited for.
    is_over: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        settings: Settings,
        shared: &'a SharedState,
        destination: Destination<'a>,
        limit: RaisedLimit,
        store: Option<Arc<CodeStore>>,
    ) -> Self {
        let mut reserve = ReservedDescriptors::default();
        reserve.fill();
        let files = match destination {
            Destination::Bundle(_) => ModuleFiles::default(),
            Destination::Crashes(_) => ModuleFiles::of_many_bundles(),
        };
        let free = ptrace::affinity(0);
        let together = match settings.pin {
            // Stepping switches to the tracer at every instruction. Translated code rarely does,
            // and runs best on all processors.
            Pin::Auto => settings.engine == Engine::Step,
            Pin::Together => true,
            Pin::Off => false,
        };
        let cpu = together.then(ptrace::current_cpu).flatten();
        if let Some(cpu) = &cpu {
            ptrace::set_affinity(0, cpu);
        }
        Self {
            settings,
            shared,
            destination,
            cpu,
            free,
            pinned: HashMap::new(),
            threads: HashMap::new(),
            processes: BTreeMap::new(),
            pending: None,
            root: 0,
            attached: HashSet::new(),
            attach_deadline: None,
            owns_program: false,
            hold: Hold::Nobody,
            ending: Ending::Running,
            crash: None,
            core: None,
            context: None,
            notes: Vec::new(),
            instructions: 0,
            gaps: 0,
            encoders: None,
            pending_clones: PendingClones::default(),
            process_states: HashMap::new(),
            frozen: HashMap::new(),
            released: HashSet::new(),
            unrecorded: Unrecorded::default(),
            counts: ProcessCounts::default(),
            names: UniqueNames::default(),
            files,
            store,
            limit,
            reserve,
            stops: 0,
            ended: VecDeque::new(),
            left_out: 0,
            bytes: 0,
            is_over: false,
        }
    }

    /// Handles stops until no tracee is left.
    pub(crate) fn run(&mut self) -> Result<()> {
        let mut stopping = None;
        loop {
            self.stops = self.stops.wrapping_add(1);
            if self.stops.is_multiple_of(1024) {
                self.publish();
            }
            if stopping.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                stopping = Some(self.end_deadline());
                self.attach_deadline = None;
                self.stop_recording();
            }
            match self.next_report(stopping.or(self.attach_deadline))? {
                WaitResult::Report(tid, stop) => self.on_stop(tid, stop)?,
                WaitResult::Interrupted => {
                    let is_late = |deadline: Instant| Instant::now() >= deadline;
                    if stopping.is_some_and(is_late) {
                        self.abandon();
                        break;
                    }
                    if self.attach_deadline.is_some_and(is_late) {
                        self.on_attach_timeout()?;
                    }
                }
                WaitResult::NoTracees => break,
            }
        }
        self.publish();
        self.end_processes();
        match self.pending.take() {
            Some(spawned) if stopping.is_none() => Err(spawned.failure()),
            _ => Ok(()),
        }
    }

    /// Waits for a report, until `deadline` if there is one.
    fn next_report(&self, deadline: Option<Instant>) -> Result<WaitResult> {
        let is_waiting = !self.attached.is_empty() || self.is_over;
        match deadline.filter(|_| is_waiting) {
            Some(deadline) => ptrace::wait_within(deadline),
            None => ptrace::wait_any(),
        }
    }

    fn publish(&self) {
        let running: (u64, u64) = self
            .threads
            .values()
            .map(Thread::progress)
            .fold((0, 0), |sum, thread| (sum.0 + thread.0, sum.1 + thread.1));
        let translated = self.encoders.as_ref().map_or(0, EncoderPool::bytes);
        self.shared
            .instructions
            .store(self.instructions + running.0, Ordering::Relaxed);
        let bytes = self.bytes + running.1 + translated;
        self.shared.bytes.store(bytes, Ordering::Relaxed);
        self.shared.threads.store(self.threads.len(), Ordering::Relaxed);
    }

    /// Handles a report. If the thread is killed during handling, the error is ignored: its end is
    /// reported next.
    fn on_stop(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        match self.handle(tid, stop) {
            Err(error) if error.is_gone() || status::is_ending(tid) => Ok(()),
            done => done,
        }
    }

    fn handle(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        if let Stop::Exited(_) | Stop::Killed(_) = stop {
            self.on_thread_end(tid, stop);
            return Ok(());
        }
        if stop == Stop::Event(libc::PTRACE_EVENT_EXEC) {
            return self.on_exec(tid);
        }
        if self.is_unrecorded(tid) {
            return self.on_unrecorded(tid, stop);
        }
        // A thread that was killed in the meantime fails every request. Its end is reported later.
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.on_new(tid, stop, &registers);
        };
        thread.run = RunState::Stopped;
        match &mut thread.mode {
            FollowMode::Translated(_) => return self.on_translated(tid, stop, &registers),
            FollowMode::AwaitingUserCode => return self.on_awaiting_user_code(tid, stop, &registers),
            FollowMode::Stepped(stepped) => stepped.stream.set_time(clock::now()),
            FollowMode::Untraced => {}
        }
        match stop {
            Stop::Signal(signal) => self.on_signal(tid, signal, &registers)?,
            Stop::Event(libc::PTRACE_EVENT_EXIT) => self.on_exit(tid, &registers)?,
            Stop::Event(_) => {
                if let FollowMode::Stepped(stepped) = &mut thread.mode {
                    stepped.left_by_itself(registers.pc());
                }
            }
            Stop::Group(_) if self.hold == Hold::Nobody => {
                thread.run = RunState::Listening;
                let _ = ptrace::listen(tid);
                return Ok(());
            }
            Stop::Interrupted | Stop::Group(_) if has_forced_pending(tid) => {
                // The trap of its last step is pending. If the thread were detached first, that
                // trap would kill the program.
                thread.run = RunState::Running;
                let _ = ptrace::step(tid, 0);
                return Ok(());
            }
            _ => {}
        }
        self.resume_thread(tid);
        Ok(())
    }

    /// Returns whether the thread stays stopped.
    fn is_held(&self, tid: RawTid) -> bool {
        self.frozen.contains_key(&tid)
            || self
                .threads
                .get(&tid)
                .is_some_and(|thread| self.hold.holds(thread.pid))
    }

    /// Resumes the thread unless it is on hold.
    fn resume_thread(&mut self, tid: RawTid) {
        let is_held = self.is_held(tid);
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if is_held || thread.run != RunState::Stopped {
            return;
        }
        if matches!(thread.mode, FollowMode::Translated(_)) {
            return self.resume_translated(tid);
        }
        if thread.signals.forced != 0 || thread.signal.is_some() {
            self.restore_stepped_signals(tid, false);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let signal = thread.signal.take().map_or(0, |info| info.signal());
        let is_handler_next = signal != 0 && status::disposition(tid, signal) == Disposition::Handled;
        let version = self
            .processes
            .get(&thread.pid)
            .map_or(0, |process| process.code_version);
        if let FollowMode::Stepped(stepped) = &mut thread.mode
            && let StepPosition::User(_) = stepped.position
            && stepped.prepare(is_handler_next, version)
            && self.on_stepped_tracing_call(tid).unwrap_or(false)
        {
            return;
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.run = RunState::Running;
        thread.signals.delivered = signal;
        // A failure means that the thread was killed. Its end is reported later.
        let _ = match &mut thread.mode {
            FollowMode::Stepped(stepped) => {
                stepped.delivered = signal != 0;
                match stepped.position {
                    StepPosition::User(_) | StepPosition::Kernel { .. } => ptrace::step(tid, signal),
                    StepPosition::Closed => ptrace::resume(tid, signal),
                }
            }
            FollowMode::AwaitingUserCode => ptrace::step(tid, signal),
            FollowMode::Translated(_) | FollowMode::Untraced => ptrace::resume(tid, signal),
        };
    }

    /// Returns the processors that the program and the tracer do not use, if these two share one.
    fn others(&self) -> Option<CpuSet> {
        let (cpu, free) = (self.cpu.as_ref()?, self.free.as_ref()?);
        Some(ptrace::without(free, cpu).unwrap_or(*free))
    }

    /// Returns the output of the session, and the recording to write.
    pub(crate) fn into_recording(self) -> (Destination<'a>, Recording) {
        let recording = Recording {
            engine: self.settings.engine,
            heap: self.settings.heap,
            root: self.root,
            processes: self.processes,
            ending: self.ending,
            crash: self.crash,
            core: self.core,
            context: self.context,
            notes: self.notes,
            gaps: self.gaps,
            left_out: self.left_out,
            names: self.names,
        };
        (self.destination, recording)
    }

    /// Returns whether recording of at least one process has begun.
    pub(crate) fn has_begun(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Returns the file descriptor limit of the recorder.
    pub(crate) fn descriptor_limit(&self) -> u64 {
        self.limit.now()
    }

    /// Closes the file descriptors reserved for saving.
    pub(crate) fn release_reserve(&mut self) {
        self.reserve.release();
    }

    /// Returns whether the recorder started the program.
    pub(crate) fn owns_program(&self) -> bool {
        self.owns_program
    }

    fn stream(&self) -> PacketStream {
        PacketStream::new(
            self.settings.encoder,
            self.settings.ring,
            self.settings.golden,
            clock::now(),
        )
    }

    /// Returns the value log of a new thread, if values are recorded.
    pub(crate) fn value_recorder(&self) -> Option<ValueRecorder> {
        let options = self.settings.values?;
        Some(ValueRecorder::new(options.limit))
    }

    fn tids(&self, wanted: impl Fn(&Thread) -> bool) -> Vec<RawTid> {
        self.threads
            .values()
            .filter(|thread| wanted(thread))
            .map(|thread| thread.tid)
            .collect()
    }

    /// Restores the original processor sets of processes that continue.
    pub(crate) fn unpin(&self) {
        for pid in self.processes.keys().filter(|_| !self.owns_program) {
            for tid in status::threads(*pid) {
                if let Some(free) = self.pinned.get(&tid).or(self.free.as_ref()) {
                    ptrace::set_affinity(tid, free);
                }
            }
        }
    }
}
