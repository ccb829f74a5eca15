//! The daemon's threads.

use super::crash_queue::{self, CrashQueue};
use super::deposits::{self, DepositQueue};
use super::jobs::{Job, Jobs};
use super::queue::QueueLimits;
use super::report::log_outcome;
use super::state::DaemonState;
use super::{control, functions, listen, probe_reader, recorders, socket};
use crate::crash::SaveOutcome;
use crate::error::{Error, Result};
use crate::probe::Probe;
use crate::wire::Listener;
use backtrail_pt::Pid;
use std::io::{self, PipeWriter};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Threads that save crashes.
const WORKERS: usize = 4;
/// Maximum number of waiting and running crashes, of all users and of one user, and the reserve for
/// system users.
const LIMITS: QueueLimits = QueueLimits {
    capacity: 256,
    running: WORKERS,
    running_of_user: 2,
    running_reserve: 1,
};

/// The threads, and the pipes that stop them.
#[derive(Debug)]
pub(super) struct Threads {
    jobs: Arc<Jobs>,
    deposits: Arc<DepositQueue>,
    running: Vec<JoinHandle<()>>,
    /// The thread that saves all traces after SIGUSR1.
    saving_all: Option<JoinHandle<()>>,
    /// Dropping these stops the threads.
    alive: Vec<PipeWriter>,
}

impl Threads {
    /// Starts the threads that save crashes.
    pub(super) fn start(shared: &Arc<DaemonState>) -> Result<Self> {
        let mut threads = Self {
            jobs: Arc::new(Jobs::new(LIMITS)),
            deposits: Arc::new(DepositQueue::new()),
            running: Vec::new(),
            saving_all: None,
            alive: Vec::new(),
        };
        for _ in 0..WORKERS {
            let (shared, jobs) = (Arc::clone(shared), Arc::clone(&threads.jobs));
            threads.spawn("save", move || save(&shared, &jobs))?;
        }
        for _ in 0..deposits::THREADS {
            let (shared, deposits) = (Arc::clone(shared), Arc::clone(&threads.deposits));
            threads.spawn("unpack", move || deposits.run(&shared))?;
        }
        let timer = Arc::clone(shared);
        threads.spawn("release", move || timer.held.run())?;
        Ok(threads)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = Builder::new().name(name.to_owned()).spawn(run);
        self.running
            .push(thread.map_err(Error::system("start a thread"))?);
        Ok(())
    }

    /// Returns the queue of crashes.
    pub(super) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Returns the queue of recorders' bundles.
    pub(super) fn deposits(&self) -> &DepositQueue {
        &self.deposits
    }

    pub(super) fn listen(&mut self, shared: &Arc<DaemonState>, listener: &Arc<Listener>) -> Result<()> {
        let (shared, listener, jobs) = (Arc::clone(shared), Arc::clone(listener), Arc::clone(&self.jobs));
        self.spawn("listen", move || listen::run(&shared, &listener, &jobs))
    }

    pub(super) fn serve_recorders(
        &mut self,
        shared: &Arc<DaemonState>,
        listener: &Arc<Listener>,
    ) -> Result<()> {
        let (shared, listener) = (Arc::clone(shared), Arc::clone(listener));
        let deposits = Arc::clone(&self.deposits);
        self.spawn("recorders", move || recorders::run(&shared, &listener, &deposits))
    }

    pub(super) fn serve_core_socket(
        &mut self,
        shared: &Arc<DaemonState>,
        socket: &Arc<UnixListener>,
    ) -> Result<()> {
        let (shared, socket, jobs) = (Arc::clone(shared), Arc::clone(socket), Arc::clone(&self.jobs));
        self.spawn("socket", move || socket::run(&shared, &socket, &jobs))
    }

    pub(super) fn read_probe(&mut self, shared: &Arc<DaemonState>, probe: Probe) -> Result<()> {
        let (stop, alive) = io::pipe().map_err(Error::system("make a pipe"))?;
        let poller = probe_reader::Poller::new(&probe, &stop)?;
        self.alive.push(alive);
        let queue = Arc::new(CrashQueue::new());
        let (delivering, source) = (Arc::clone(shared), Arc::clone(&queue));
        self.spawn("deliver", move || crash_queue::deliver(&delivering, &source))?;
        let shared = Arc::clone(shared);
        self.spawn("probe", move || {
            probe_reader::run(&shared, probe, &poller, &queue);
            drop(stop);
        })
    }

    pub(super) fn read_history(&mut self, shared: &Arc<DaemonState>) -> Result<()> {
        let (stop, alive) = io::pipe().map_err(Error::system("make a pipe"))?;
        self.alive.push(alive);
        let shared = Arc::clone(shared);
        self.spawn("history", move || {
            if let Some(history) = &shared.saver.history {
                history.run(&stop);
            }
        })
    }

    pub(super) fn read_heap(&mut self, shared: &Arc<DaemonState>) -> Result<()> {
        let (stop, alive) = io::pipe().map_err(Error::system("make a pipe"))?;
        self.alive.push(alive);
        let shared = Arc::clone(shared);
        self.spawn("heap", move || {
            if let Some(heap) = &shared.saver.heap {
                heap.run(&stop);
            }
        })
    }

    pub(super) fn read_functions(
        &mut self,
        shared: &Arc<DaemonState>,
        triggers: Vec<functions::Trigger>,
    ) -> Result<()> {
        let (stop, alive) = io::pipe().map_err(Error::system("make a pipe"))?;
        self.alive.push(alive);
        let shared = Arc::clone(shared);
        self.spawn("functions", move || functions::run(&shared, triggers, &stop))
    }

    /// Saves the traces of all processors after SIGUSR1. A second signal during that time has no
    /// effect.
    pub(super) fn save_all(&mut self, shared: &Arc<DaemonState>) {
        if self
            .saving_all
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            tracing::info!("SIGUSR1: the traces of all processors are already being saved");
            return;
        }
        let shared = Arc::clone(shared);
        let save = move || match shared.snapshot(None) {
            Ok(SaveOutcome::Bundle(id)) => {
                tracing::info!("SIGUSR1: saved the traces of all processors: {id}")
            }
            Ok(SaveOutcome::Limited) => {}
            Err(error) => tracing::warn!("SIGUSR1: {error}"),
        };
        let thread = Builder::new().name("signal".to_owned()).spawn(save);
        match thread {
            Ok(thread) => self.saving_all = Some(thread),
            Err(error) => tracing::error!("SIGUSR1: cannot start a thread ({error})"),
        }
    }

    pub(super) fn control(&mut self, shared: &Arc<DaemonState>, socket: control::Socket) -> Result<()> {
        let (stop, alive) = io::pipe().map_err(Error::system("make a pipe"))?;
        self.alive.push(alive);
        let shared = Arc::clone(shared);
        self.spawn("control", move || control::run(&shared, socket, stop))
    }

    /// Stops the threads after they finish their current work. Returns `false` if that takes longer
    /// than `patience`.
    pub(super) fn finish(&mut self, shared: &DaemonState, timeout: Duration) -> bool {
        self.jobs.close();
        self.deposits.close();
        self.alive.clear();
        self.running.extend(self.saving_all.take());
        let deadline = Instant::now() + timeout;
        let is_timer = |thread: &JoinHandle<()>| thread.thread().name() == Some("release");
        let at_work = |thread: &&JoinHandle<()>| !thread.is_finished() && !is_timer(thread);
        while self.running.iter().any(|thread| at_work(&thread)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let is_done = !self.running.iter().any(|thread| at_work(&thread));
        // No process stays held when the daemon ends.
        shared.held.close();
        is_done
    }
}

/// Saves crashes until the queue is closed and empty.
fn save(shared: &DaemonState, jobs: &Jobs) {
    while let Some((user, job)) = jobs.pop() {
        match job {
            // The timer has released the process. Its probe event is saved separately.
            Job::Held(held) if !held.is_held() => {}
            Job::Held(held) => log_outcome(
                "a crash ended",
                shared.saver.save_held(&held),
                Pid(held.crash.pid),
            ),
            Job::Unheld(crash) => {
                log_outcome(
                    "a crash ended",
                    shared.saver.save_unheld(&crash),
                    crash.sample.pid,
                );
            }
        }
        jobs.done(user);
    }
}
