//! The daemon: what runs, in which order it begins, and that it ends as if it had never been.

mod control;
mod deposits;
mod functions;
mod kept;
mod listen;
mod minded;
mod queue;
mod recorders;
mod relay;
mod socket;
mod watch;
mod work;

use crate::config::{Config, Hold};
use crate::crash::{self, Holds, Promises, Saver, Sightings, Snapshot};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::pattern::{Saved, Sysctl};
use crate::probe::{Probe, ProbeOptions};
use crate::runtime::{Runtime, Tenancy};
use crate::spool::Spool;
use crate::users::Users;
use crate::wire::Listener;
use crate::worker::Workers;
use crate::{clock, privilege, realtime};
use backtrail_pt::Pid;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How often the daemon looks after what nobody tells it of.
const TICK: Duration = Duration::from_secs(1);
/// How long a recorder may take to ask for what the probe saw of its process, in nanoseconds.
const RECORDER: u64 = 600_000_000_000;
/// How long what is being saved may take at the end.
const LAST_JOBS: Duration = Duration::from_secs(10);

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration.
    pub config: Config,
    /// Where it came from, to read it again.
    pub file: Option<PathBuf>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    saver: Saver,
    started: Instant,
    runtime: Runtime,
    minded: minded::Minded,
    /// The processes that are kept.
    holds: Holds,
}

/// Runs until SIGTERM or SIGINT; SIGHUP reads the configuration again. Call it while the process has one thread.
///
/// # Errors
/// When it cannot start. What fails later is logged, and the daemon goes on.
pub fn run(options: Options) -> Result<()> {
    let signals = block_signals()?;
    let mut daemon = Daemon::start(options, &signals)?;
    daemon.mind(&signals);
    daemon.stop()
}

/// Signals that are read, not delivered.
fn block_signals() -> Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGUSR1] {
        set.add(signal);
    }
    let failed = || Error::system("set up signals");
    set.thread_block().map_err(failed())?;
    SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(failed())
}

impl Shared {
    /// Saves a process that lives on, or the traces of all.
    fn snapshot(&self, pid: Option<Pid>) -> Result<crash::Saved> {
        let freezer = self.saver.history.as_ref().map(History::freezer);
        self.saver.save_snapshot(&Snapshot {
            pid,
            trigger: "snapshot",
            note: None,
            at: clock::monotonic(),
            frozen: freezer.map(|freezer| freezer.freeze(None, None)),
        })
    }
}

struct Daemon {
    options: Options,
    shared: Arc<Shared>,
    sysctl: Sysctl,
    /// What stood in `core_pattern`.
    saved: Option<Saved>,
    tenancy: Tenancy,
    guard: Option<Guard>,
    listener: Arc<Listener>,
    recorders: Arc<Listener>,
    socket: Option<Arc<UnixListener>>,
    threads: work::Threads,
}

impl Daemon {
    fn start(options: Options, _signals: &SignalFd) -> Result<Self> {
        let config = options.config.clone();
        let runtime = Runtime::new(&config.runtime);
        let tenancy = runtime.succeed()?;
        let spool = Spool::create(&config.spool, config.spool_limit, config.spool_free)?;
        let probe = attach(&config)?;
        let history = History::start(&config)?;
        let functions = functions::attach(&config.function);
        let listener = Arc::new(Listener::bind(&runtime.crash_socket())?);
        let recorders = Arc::new(Listener::bind_for_all(&runtime.recorder_socket())?);
        let control = control::bind(&runtime.control_socket())?;
        if let Err(error) = realtime::lock_memory() {
            tracing::warn!("memory is not locked ({error}): crashes may be read later");
        }
        let sysctl = Sysctl::default();
        let socket = match config.crash.hold {
            Hold::Socket => Some(Arc::new(socket::bind(&runtime.core_socket())?)),
            _ => None,
        };
        let (guard, saved) = hold(&sysctl, &runtime, &config).unzip();
        privilege::drop_rest(config.user.as_deref(), &config.spool)?;
        let shared = Arc::new(Shared {
            saver: Saver {
                spool,
                sightings: Sightings::default(),
                metrics: Metrics::default(),
                limiter: Mutex::new(Limiter::new(config.limit)),
                users: Users::default(),
                probe: probe.as_ref().map(|probe| probe.kind().to_string()),
                chain: saved.as_ref().is_some_and(|saved| saved.chain),
                workers: Workers::default(),
                promises: Promises::default(),
                history,
                config: RwLock::new(Arc::new(config)),
            },
            started: Instant::now(),
            runtime,
            minded: minded::Minded::default(),
            holds: Holds::default(),
        });
        shared.saver.workers.prepare();
        let mut threads = work::Threads::start(&shared)?;
        threads.listen(&shared, &listener)?;
        threads.mind_recorders(&shared, &recorders)?;
        if let Some(socket) = &socket {
            threads.take_from_kernel(&shared, socket)?;
        }
        if let Some(probe) = probe {
            threads.watch(&shared, probe)?;
        }
        if shared.saver.history.is_some() {
            threads.mind_history(&shared)?;
        }
        if !functions.is_empty() {
            threads.watch_functions(&shared, functions)?;
        }
        threads.control(&shared, control)?;
        tracing::info!("ready");
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        Ok(Self {
            options,
            shared,
            sysctl,
            saved,
            tenancy,
            guard,
            listener,
            recorders,
            socket,
            threads,
        })
    }

    /// Until a signal says that it is enough.
    fn mind(&mut self, signals: &SignalFd) {
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
        if !saver.sightings.is_empty() {
            let limit = saver.config().crash.hold_limit.0;
            for mut sighting in saver.sightings.overdue(2 * limit) {
                let (seen, age) = (
                    &sighting.seen,
                    clock::monotonic().saturating_sub(sighting.seen.at),
                );
                let users = [seen.user, seen.effective_user];
                if age < RECORDER && self.shared.minded.is_kept(seen.pid.0, users) {
                    // Its recorder still writes the bundle, and will ask. It has a history of its own.
                    sighting.frozen = None;
                    if saver.sightings.add(sighting).is_some() {
                        saver.metrics.crashes_limited.count();
                    }
                    continue;
                }
                kept::save_unheld(&self.shared, self.threads.jobs(), sighting);
            }
        }
        // The timer has let these processes go; what the probe saw of them waits among the sightings.
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
            tracing::warn!("the guard of core_pattern is gone; starting another one");
            self.guard = Guard::start(&self.shared.runtime).ok();
        }
    }

    /// Takes what can change while the daemon runs from the configuration's file.
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
                    tracing::warn!(
                        "{what} has changed: that takes effect when the collector is started anew"
                    );
                }
                *config = Arc::new(new);
                tracing::info!("configuration reloaded");
            }
            Err(error) => tracing::error!("the configuration stays as it was: {error}"),
        }
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }

    /// Puts everything back, saves what is kept, and ends.
    fn stop(mut self) -> Result<()> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        tracing::info!("stopping");
        let restored = self.sysctl.restore(&self.shared.runtime, self.saved.as_ref());
        self.listener.shut_down();
        self.recorders.shut_down();
        if let Some(socket) = &self.socket {
            let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        }
        if !self.threads.finish(&self.shared, LAST_JOBS) {
            tracing::warn!("what was being saved took too long, and is lost");
        }
        drop(self.tenancy);
        match (restored, self.guard) {
            (Ok(_), _) => Ok(()),
            // The user that we have become may not; the guard, who has not, may.
            (Err(_), Some(guard)) => guard.release(),
            (Err(error), None) => Err(error),
        }
    }
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
                tracing::debug!("{kind} is not used: {why}");
            }
            tracing::info!("crashes are told by: {}", probe.kind());
            Ok(Some(probe))
        }
        Err(error) if config.crash.hold == Hold::None => Err(Error::Unable(error.to_string())),
        Err(error) => {
            tracing::warn!("crashes are told by core_pattern alone: {error}");
            Ok(None)
        }
    }
}

/// Has crashing processes kept; what that cannot be, is logged. The guard, and what stood there before.
fn hold(sysctl: &Sysctl, runtime: &Runtime, config: &Config) -> Option<(Guard, Saved)> {
    let limit = config.crash.hold_limit.0;
    let install = || -> Result<(Guard, Saved)> {
        let saved = match config.crash.hold {
            Hold::Socket => sysctl.install_socket(runtime, limit)?,
            _ => sysctl.install(runtime, config.crash.chain, limit)?,
        };
        tracing::info!("core_pattern was {:?}, and is {:?}", saved.previous, saved.ours);
        // It remembers what is saved now, so it comes second.
        let guard = Guard::start(runtime);
        if guard.is_err() {
            sysctl.restore(runtime, Some(&saved))?;
        }
        Ok((guard?, saved))
    };
    if config.crash.hold == Hold::None {
        return None;
    }
    install()
        .map_err(|error| tracing::error!("processes that crash are not kept: {error}"))
        .ok()
}

/// The keys that differ and are looked at only at the start.
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
        ("function", old.function != new.function),
    ];
    fixed
        .into_iter()
        .filter(|(_, differs)| *differs)
        .map(|(key, _)| key)
        .collect()
}
