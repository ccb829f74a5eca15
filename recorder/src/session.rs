//! A recording that runs: its threads and processes, and what is done at each of their stops.
//!
//! How it begins and ends, which threads come and go, and what signals mean stands in the files beneath.

mod begin;
mod crashes;
mod ending;
mod files;
mod lifecycle;
mod mappings;
mod signals;
mod translated;

use crate::descriptors::{RaisedLimit, Reserve};
use crate::error::Result;
use crate::names::Names;
use crate::options::{Engine, Pin};
use crate::ptrace::{self, CpuSet, RawTid, Stop, Wait};
use crate::recorded::Process;
use crate::spawn::Spawned;
use crate::stepped::Place;
use crate::stream::Stream;
use crate::thread::{Following, Run, Thread};
use crate::translate::Scribe;
use crate::{Ending, clock};
use backtrail_bundle::BundlePath;
use backtrail_bundle::manifest::Crash;
use backtrail_process::module_file::ModuleFiles;
use backtrail_process::status;
use backtrail_pt::EncoderOptions;
pub(crate) use crashes::{Crashes, Destination, Draft};
use lifecycle::Ended;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use translated::Kindred;

/// What the tracing thread and the one that minds it tell each other.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Recording is to end.
    pub(crate) stop: AtomicBool,
    pub(crate) instructions: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) threads: AtomicUsize,
    /// The program that the recorder has started; 0: not yet; [`ROOT_GONE`]: it has ended.
    pub(crate) root: AtomicI32,
}

/// See [`Shared::root`].
pub(crate) const ROOT_GONE: i32 = -1;

/// How threads are recorded.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) follow: bool,
    pub(crate) golden: bool,
    pub(crate) ring: Option<usize>,
    pub(crate) encoder: EncoderOptions,
    pub(crate) engine: Engine,
    pub(crate) pin: Pin,
    /// Bytes of translated code near each part of the program.
    pub(crate) cache: u64,
    /// All code is translated wide.
    pub(crate) all_wide: bool,
}

/// The threads that stay stopped when they stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Nobody,
    Process(RawTid),
    All,
}

impl Hold {
    /// Whether the threads of a process stay stopped.
    fn holds(self, process: RawTid) -> bool {
        match self {
            Self::Nobody => false,
            Self::Process(pid) => process == pid,
            Self::All => true,
        }
    }
}

/// A running recording, on the thread that traces.
pub(crate) struct Session<'a> {
    pub(crate) settings: Settings,
    shared: &'a Shared,
    pub(crate) destination: Destination<'a>,
    /// The processor that tracer and tracees share: handing over on one is much faster than across two.
    cpu: Option<CpuSet>,
    /// Where the program might run before.
    free: Option<CpuSet>,
    /// Where the threads attached to might run before.
    pinned: HashMap<RawTid, CpuSet>,
    threads: HashMap<RawTid, Thread>,
    pub(crate) processes: BTreeMap<RawTid, Process>,
    /// The child that has not become the program yet.
    pending: Option<Spawned>,
    /// The process the recording is about.
    pub(crate) root: RawTid,
    /// Threads attached to that have not stopped yet.
    attached: HashSet<RawTid>,
    /// We started it.
    ours: bool,
    hold: Hold,
    pub(crate) ending: Ending,
    pub(crate) crash: Option<Crash>,
    pub(crate) core: Option<BundlePath>,
    pub(crate) notes: Vec<String>,
    pub(crate) instructions: u64,
    pub(crate) gaps: u64,
    /// Engine `translate`: writes the packets.
    scribe: Option<Scribe>,
    kindred: Kindred,
    pub(crate) names: Names,
    /// The open files of all processes' modules.
    files: ModuleFiles,
    /// How many descriptors there may be.
    limit: RaisedLimit,
    /// Descriptors that saving needs.
    reserve: Reserve,
    /// Stops of the program's threads so far.
    pub(crate) stops: u64,
    /// Threads that have ended, the oldest first, and the bytes that are kept of each.
    ended: VecDeque<Ended>,
    /// Threads of which nothing is kept any more.
    pub(crate) left_out: u64,
    /// Bytes of the streams that have ended.
    bytes: u64,
    /// Recording has ended; what is still traced is only seen off.
    over: bool,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        settings: Settings,
        shared: &'a Shared,
        destination: Destination<'a>,
        limit: RaisedLimit,
    ) -> Self {
        let mut reserve = Reserve::default();
        reserve.fill();
        let free = ptrace::affinity(0);
        let together = match settings.pin {
            // Stepping hands over at every instruction; what runs in the cache seldom does, and is better
            // off on as many processors as it wants.
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
            ours: false,
            hold: Hold::Nobody,
            ending: Ending::Running,
            crash: None,
            core: None,
            notes: Vec::new(),
            instructions: 0,
            gaps: 0,
            scribe: None,
            kindred: Kindred::default(),
            names: Names::default(),
            files: ModuleFiles::default(),
            limit,
            reserve,
            stops: 0,
            ended: VecDeque::new(),
            left_out: 0,
            bytes: 0,
            over: false,
        }
    }

    /// Runs until nothing is traced any more.
    pub(crate) fn run(&mut self) -> Result<()> {
        let mut stopping = false;
        loop {
            self.stops = self.stops.wrapping_add(1);
            if self.stops.is_multiple_of(1024) {
                self.publish();
            }
            if !stopping && self.shared.stop.load(Ordering::Relaxed) {
                stopping = true;
                self.stop_recording();
            }
            match ptrace::wait_any()? {
                Wait::Report(tid, stop) => self.on_stop(tid, stop)?,
                Wait::Interrupted => {}
                Wait::Nobody => break,
            }
        }
        self.publish();
        self.end_processes();
        match self.pending.take() {
            Some(spawned) if !stopping => Err(spawned.failure()),
            _ => Ok(()),
        }
    }

    fn publish(&self) {
        let running: (u64, u64) = self
            .threads
            .values()
            .map(Thread::progress)
            .fold((0, 0), |sum, thread| (sum.0 + thread.0, sum.1 + thread.1));
        let translated = self.scribe.as_ref().map_or(0, Scribe::bytes);
        self.shared
            .instructions
            .store(self.instructions + running.0, Ordering::Relaxed);
        let bytes = self.bytes + running.1 + translated;
        self.shared.bytes.store(bytes, Ordering::Relaxed);
        self.shared.threads.store(self.threads.len(), Ordering::Relaxed);
    }

    /// Handles a report. A thread that is killed while we work on it is no failure: its end comes next.
    fn on_stop(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        match self.handle(tid, stop) {
            Err(error) if error.is_gone() => Ok(()),
            done => done,
        }
    }

    fn handle(&mut self, tid: RawTid, stop: Stop) -> Result<()> {
        if let Stop::Exited(_) | Stop::Killed(_) = stop {
            self.on_gone(tid, stop);
            return Ok(());
        }
        if stop == Stop::Event(libc::PTRACE_EVENT_EXEC) {
            return self.on_exec(tid);
        }
        // A thread that was killed meanwhile answers no request; its end will be reported.
        let Ok(registers) = ptrace::registers(tid) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return self.on_new(tid, stop, &registers);
        };
        thread.run = Run::Stopped;
        match &mut thread.following {
            Following::Translated(_) => return self.on_translated(tid, stop, &registers),
            Following::Arriving => return self.on_arriving(tid, stop, &registers),
            Following::Stepped(stepped) => stepped.stream.set_time(clock::now()),
            Following::Over => {}
        }
        match stop {
            Stop::Signal(signal) => self.on_signal(tid, signal, &registers)?,
            Stop::Event(libc::PTRACE_EVENT_EXIT) => self.on_exit(tid, &registers)?,
            Stop::Event(_) => {
                if let Following::Stepped(stepped) = &mut thread.following {
                    stepped.left_by_itself(registers.pc());
                }
            }
            Stop::Group(_) if self.hold == Hold::Nobody => {
                thread.run = Run::Listening;
                let _ = ptrace::listen(tid);
                return Ok(());
            }
            Stop::Interrupted | Stop::Group(_) if status::is_pending(tid, libc::SIGTRAP) => {
                // The trap of its last step comes next. Let go before, the program would die of it.
                thread.run = Run::Running;
                let _ = ptrace::step(tid, 0);
                return Ok(());
            }
            _ => {}
        }
        self.go_on(tid);
        Ok(())
    }

    /// Whether the thread stays stopped.
    fn is_held(&self, tid: RawTid) -> bool {
        self.threads
            .get(&tid)
            .is_some_and(|thread| self.hold.holds(thread.pid))
    }

    /// Resumes the thread unless it is held.
    fn go_on(&mut self, tid: RawTid) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        if self.hold.holds(thread.pid) || thread.run != Run::Stopped {
            return;
        }
        if matches!(thread.following, Following::Translated(_)) {
            return self.go_on_translated(tid);
        }
        let signal = thread.signal.take().map_or(0, |info| info.signal());
        thread.run = Run::Running;
        // Failing means that it was killed: its end will be reported.
        let _ = match &mut thread.following {
            Following::Stepped(stepped) => {
                stepped.delivered = signal != 0;
                match stepped.place {
                    Place::User(_) => {
                        stepped.prepare();
                        ptrace::step(tid, signal)
                    }
                    Place::Kernel { .. } => ptrace::step(tid, signal),
                    Place::Closed => ptrace::resume(tid, signal),
                }
            }
            Following::Arriving => ptrace::step(tid, signal),
            Following::Translated(_) | Following::Over => ptrace::resume(tid, signal),
        };
    }

    /// The processors that the program does not share with the recorder, where it shares one.
    fn others(&self) -> Option<CpuSet> {
        let (cpu, free) = (self.cpu.as_ref()?, self.free.as_ref()?);
        Some(ptrace::without(free, cpu).unwrap_or(*free))
    }

    /// Whether a process is being recorded, or was.
    pub(crate) fn has_begun(&self) -> bool {
        !self.processes.is_empty()
    }

    /// How many descriptors the recorder may have.
    pub(crate) fn descriptor_limit(&self) -> u64 {
        self.limit.now()
    }

    /// Frees the descriptors that saving needs.
    pub(crate) fn release_reserve(&mut self) {
        self.reserve.release();
    }

    /// Whether the recorder has started the program.
    pub(crate) fn ours(&self) -> bool {
        self.ours
    }

    fn stream(&self) -> Stream {
        Stream::new(
            self.settings.encoder,
            self.settings.ring,
            self.settings.golden,
            clock::now(),
        )
    }

    fn tids(&self, wanted: impl Fn(&Thread) -> bool) -> Vec<RawTid> {
        self.threads
            .values()
            .filter(|thread| wanted(thread))
            .map(|thread| thread.tid)
            .collect()
    }

    /// Lets processes that live on run where they might before.
    pub(crate) fn unpin(&self) {
        for pid in self.processes.keys().filter(|_| !self.ours) {
            for tid in status::threads(*pid) {
                if let Some(free) = self.pinned.get(&tid).or(self.free.as_ref()) {
                    ptrace::set_affinity(tid, free);
                }
            }
        }
    }
}
