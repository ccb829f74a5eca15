//! The daemon: starts its parts in order, and restores the system when it ends.

mod claimed;
mod control;
mod crash_queue;
mod deposits;
mod functions;
mod jobs;
mod listen;
mod probe_reader;
mod queue;
mod recorders;
mod report;
mod socket;
mod state;
mod work;

use crate::config::{Config, HoldMethod};
use crate::crash::{DiskBudget, HeldProcesses, PendingCrashes, Saver};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::heap::HeapHistory;
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::pattern::{SavedPattern, Sysctl};
use crate::probe::{Probe, ProbeOptions};
use crate::profile_agent::{AgentSettings, AgentSupervisor};
use crate::runtime::{Runtime, RuntimeLock};
use crate::sender::SenderSupervisor;
use crate::spool::Spool;
use crate::users::Users;
use crate::wire::Listener;
use crate::worker::Workers;
use crate::{clock, privilege, realtime};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use state::DaemonState;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often the daemon does its periodic work.
const TICK: Duration = Duration::from_secs(1);
/// How long a recorder may take to ask for the probe's data of its process, in nanoseconds.
const RECORDER: u64 = 600_000_000_000;
/// How long unfinished bundles may take when the daemon ends.
const LAST_JOBS: Duration = Duration::from_secs(10);

/// How to run the daemon.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// The configuration.
    pub config: Config,
    /// The file to read on reload.
    pub file: Option<PathBuf>,
}

/// Runs until SIGTERM or SIGINT. SIGHUP reloads the configuration. Call this while the process has
/// one thread.
///
/// # Errors
/// When the daemon cannot start. Later errors are logged, and the daemon continues.
pub fn run(options: DaemonOptions) -> Result<()> {
    let signals = block_signals()?;
    let mut daemon = Daemon::start(options, &signals)?;
    daemon.run(&signals);
    daemon.stop()
}

/// Blocks the daemon's signals and returns a descriptor that reads them.
fn block_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        set.add(signal);
    }
    let failed = || Error::system("set up signals");
    set.thread_block().map_err(failed())?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed())
}

struct Daemon {
    options: DaemonOptions,
    shared: Arc<DaemonState>,
    sysctl: Sysctl,
    /// The previous `core_pattern`.
    saved: Option<SavedPattern>,
    runtime_lock: RuntimeLock,
    guard: Option<Guard>,
    listener: Arc<Listener>,
    recorders: Arc<Listener>,
    socket: Option<Arc<UnixListener>>,
    threads: work::Threads,
    sender: SenderSupervisor,
    /// The profiler, if it was enabled at the start.
    profiler: Option<AgentSupervisor>,
}

impl Daemon {
    fn start(options: DaemonOptions, _signals: &SignalFd) -> Result<Self> {
        let config = options.config.clone();
        let runtime = Runtime::new(&config.runtime);
        let runtime_lock = runtime.lock_after_predecessor()?;
        let spool = Spool::create(&config.spool, config.spool_limit, config.spool_free)?;
        let probe = attach(&config)?;
        let history = History::start(&config)?;
        let functions = functions::attach(&config.function);
        let heap = start_heap(&config);
        let listener = Arc::new(Listener::bind(&runtime.crash_socket())?);
        let recorders = Arc::new(Listener::bind_for_all(&runtime.recorder_socket())?);
        let control = control::bind(&runtime.control_socket())?;
        if let Err(error) = realtime::lock_memory() {
            tracing::warn!("memory cannot be locked ({error}): page faults may delay the reading of crashes");
        }
        let sysctl = Sysctl::default();
        let socket = match config.crash.hold {
            HoldMethod::Socket => Some(Arc::new(socket::bind(&runtime.core_socket())?)),
            _ => None,
        };
        let (guard, saved) = install_handler(&sysctl, &runtime, &config).unzip();
        privilege::drop_unneeded(
            config.user.as_deref(),
            &config.spool,
            privilege::Uses {
                uprobes: heap.is_some(),
                profiler: config.profile.enabled,
            },
        )?;
        let shared = Arc::new(DaemonState {
            saver: Saver {
                spool,
                pending: PendingCrashes::default(),
                metrics: Metrics::default(),
                limiter: Mutex::new(Limiter::new(config.limit)),
                users: Users::default(),
                probe: probe.as_ref().map(|probe| probe.kind().to_string()),
                chain: saved.as_ref().is_some_and(|saved| saved.chain),
                workers: Workers::default(),
                disk_budget: DiskBudget::default(),
                history,
                heap,
                config: RwLock::new(Arc::new(config)),
            },
            started: Instant::now(),
            runtime,
            claimed: claimed::ClaimedProcesses::default(),
            held: HeldProcesses::default(),
        });
        shared.saver.workers.prepare();
        let mut threads = work::Threads::start(&shared)?;
        threads.listen(&shared, &listener)?;
        threads.serve_recorders(&shared, &recorders)?;
        if let Some(socket) = &socket {
            threads.serve_core_socket(&shared, socket)?;
        }
        if let Some(probe) = probe {
            threads.read_probe(&shared, probe)?;
        }
        if shared.saver.history.is_some() {
            threads.read_history(&shared)?;
        }
        if shared.saver.heap.is_some() {
            threads.read_heap(&shared)?;
        }
        if !functions.is_empty() {
            threads.read_functions(&shared, functions)?;
        }
        threads.control(&shared, control)?;
        let sender = {
            let (configured, marking) = (Arc::clone(&shared), Arc::clone(&shared));
            SenderSupervisor::start(
                &shared.saver.config().spool,
                Box::new(move || configured.saver.config().hub.clone()),
                Box::new(move |id| marking.saver.spool.mark_sent(id)),
            )?
        };
        let profiler = start_profiler(&shared)?;
        tracing::info!("ready");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        Ok(Self {
            options,
            shared,
            sysctl,
            saved,
            runtime_lock,
            guard,
            listener,
            recorders,
            socket,
            threads,
            sender,
            profiler,
        })
    }

    /// Handles signals and periodic work until SIGTERM or SIGINT.
    fn run(&mut self, signals: &SignalFd) {
        loop {
            let timeout = PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX);
            let _ = poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], timeout);
            while let Ok(Some(signal)) = signals.read_signal() {
                match Signal::try_from(signal.ssi_signo as i32) {
                    Ok(Signal::SIGHUP) => self.reload(),
                    Ok(Signal::SIGUSR1) => self.threads.save_all(&self.shared),
                    _ => return,
                }
            }
            self.tick();
        }
    }

    fn tick(&mut self) {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        let saver = &self.shared.saver;
        if !saver.pending.is_empty() {
            let limit = saver.config().crash.hold_limit.0;
            for mut crash in saver.pending.overdue(2 * limit) {
                let (sample, age) = (&crash.sample, clock::monotonic().saturating_sub(crash.sample.at));
                let users = [sample.user, sample.effective_user];
                if age < RECORDER && self.shared.claimed.has_live_recorder(sample.pid.0, users) {
                    // The recorder is still writing the bundle and will ask. It has its own
                    // history.
                    crash.frozen = None;
                    if saver.pending.add(crash).is_some() {
                        saver.metrics.crashes_limited.count();
                    }
                    continue;
                }
                jobs::accept_unheld(&self.shared, self.threads.jobs(), crash);
            }
        }
        // The timer has released these processes. Their probe events are still pending.
        self.threads.deposits().expire();
        let late = self.threads.jobs().overdue(Instant::now());
        saver
            .metrics
            .crashes_limited
            .add(late.iter().filter(|job| job.is_unheld()).count() as u64);
        saver.workers.reap();
        if let Some(guard) = &mut self.guard
            && !guard.is_alive()
        {
            tracing::warn!("the guard of core_pattern has ended; starting another one");
            self.guard = Guard::start(&self.shared.runtime).ok();
        }
    }

    /// Reloads the settings that can change while the daemon runs.
    fn reload(&mut self) {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
        match Config::load(self.options.file.as_deref()) {
            Ok(new) => {
                let saver = &self.shared.saver;
                saver
                    .limiter
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .set(new.limit);
                saver.spool.set_limits(new.spool_limit, new.spool_free);
                let mut config = saver.config.write().unwrap_or_else(PoisonError::into_inner);
                for what in needs_restart(&config, &new) {
                    tracing::warn!("{what} has changed; restart the collector to apply it");
                }
                *config = Arc::new(new);
                tracing::info!("configuration reloaded");
            }
            Err(error) => tracing::error!("the configuration is unchanged: {error}"),
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    /// Restores the system, saves the remaining crashes, and ends.
    fn stop(mut self) -> Result<()> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        tracing::info!("stopping");
        self.sender.stop();
        if let Some(profiler) = &mut self.profiler {
            profiler.stop();
        }
        let restored = self.sysctl.restore(&self.shared.runtime, self.saved.as_ref());
        self.listener.shut_down();
        self.recorders.shut_down();
        if let Some(socket) = &self.socket {
            let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        }
        if !self.threads.finish(&self.shared, LAST_JOBS) {
            tracing::warn!("saving the remaining crashes took too long; they are lost");
        }
        drop(self.runtime_lock);
        match (restored, self.guard) {
            (Ok(_), _) => Ok(()),
            // The daemon may have lost the privileges for this. The guard has not.
            (Err(_), Some(guard)) => guard.release(),
            (Err(error), None) => Err(error),
        }
    }
}

/// Starts the profiler, if it is enabled.
fn start_profiler(shared: &Arc<DaemonState>) -> Result<Option<AgentSupervisor>> {
    let config = shared.saver.config();
    if !config.profile.enabled {
        return Ok(None);
    }
    let configured = Arc::clone(shared);
    let settings = move || {
        let config = configured.saver.config();
        AgentSettings {
            hub: config.hub.clone(),
            profile: config.profile.clone(),
        }
    };
    AgentSupervisor::start(&config.spool, Box::new(settings)).map(Some)
}

fn attach(config: &Config) -> Result<Option<Probe>> {
    let options = ProbeOptions {
        signals: config.crash.signals,
        attach: match config.crash.attach.as_str() {
            "auto" => None,
            kind => kind.parse().ok(),
        },
        ..ProbeOptions::default()
    };
    match Probe::attach(&options) {
        Ok(probe) => {
            for (kind, why) in probe.refused() {
                tracing::debug!("cannot attach the probe as {kind}: {why}");
            }
            tracing::info!("crashes are reported by: {}", probe.kind());
            Ok(Some(probe))
        }
        Err(error) if config.crash.hold == HoldMethod::None => Err(Error::Unable(error.to_string())),
        Err(error) => {
            tracing::warn!("crashes are reported by core_pattern only: {error}");
            Ok(None)
        }
    }
}

/// Starts the heap history, if it is configured and possible.
fn start_heap(config: &Config) -> Option<HeapHistory> {
    HeapHistory::start(&config.heap)
        .inspect_err(|error| tracing::error!("the heap of services is not recorded: {error}"))
        .ok()
        .flatten()
}

/// Installs the crash handler in `core_pattern`. Logs an error on failure. Returns the guard and
/// the previous pattern.
fn install_handler(sysctl: &Sysctl, runtime: &Runtime, config: &Config) -> Option<(Guard, SavedPattern)> {
    let limit = config.crash.hold_limit.0;
    let install = || -> Result<(Guard, SavedPattern)> {
        let saved = match config.crash.hold {
            HoldMethod::Socket => sysctl.install_socket(runtime, limit)?,
            _ => sysctl.install(runtime, config.crash.chain, limit)?,
        };
        tracing::info!(
            "changed core_pattern from {:?} to {:?}",
            saved.previous,
            saved.ours
        );
        // The guard reads the saved pattern when it starts, so it starts after the installation.
        let guard = Guard::start(runtime);
        if guard.is_err() {
            sysctl.restore(runtime, Some(&saved))?;
        }
        Ok((guard?, saved))
    };
    if config.crash.hold == HoldMethod::None {
        return None;
    }
    install()
        .map_err(|error| tracing::error!("crashing processes are not held: {error}"))
        .ok()
}

/// Returns the changed keys that take effect only at a restart.
fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    let fixed = [
        ("spool", old.spool != new.spool),
        ("runtime", old.runtime != new.runtime),
        ("user", old.user != new.user),
        ("log", old.log != new.log || old.log_json != new.log_json),
        ("crash.attach", old.crash.attach != new.crash.attach),
        ("crash.hold", old.crash.hold != new.crash.hold),
        ("crash.chain", old.crash.chain != new.crash.chain),
        ("crash.priority", old.crash.priority != new.crash.priority),
        ("trace", old.trace != new.trace),
        ("heap", old.heap != new.heap),
        ("profile.enabled", old.profile.enabled != new.profile.enabled),
        ("function", old.function != new.function),
    ];
    fixed
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| key)
        .collect()
}
