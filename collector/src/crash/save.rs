//! One crash into the spool: from the handler's request, or from the probe's sighting alone.
//!
//! The daemon decides here whether a bundle is made, and has a worker make it. Nothing that the
//! process could have written is parsed here.

use super::hold::{Hold, core_pipe};
use super::room::Promises;
use super::sightings::{Sighting, Sightings};
use crate::clock;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hardware::Frozen;
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::spool::Spool;
use crate::users::{User, Users};
use crate::worker::{Description, Give, Order, Policy, Sealed, Seen, Task, Work, Workers};
use backtrail_process::{RawTid, status};
use backtrail_pt::Pid;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// What a crash came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Saved {
    /// A bundle of this name.
    Bundle(String),
    /// None: its user or its executable had caused too many.
    Limited,
}

/// Has bundles of crashes written.
#[derive(Debug)]
pub struct Saver {
    /// Where they go.
    pub spool: Spool,
    /// What the probe has seen.
    pub sightings: Sightings,
    /// What is counted.
    pub metrics: Metrics,
    /// The configuration; it may be another one at each crash.
    pub config: RwLock<Arc<Config>>,
    /// Who may cause how many.
    pub limiter: Mutex<Limiter>,
    /// Who answers for a user id.
    pub users: Users,
    /// What tells of crashes, in words; `None`: nothing but the core's handler.
    pub probe: Option<String>,
    /// What is recorded of all processors.
    pub history: Option<History>,
    /// Whether cores go on to where they went before.
    pub chain: bool,
    /// Who writes bundles.
    pub workers: Workers,
    /// How much of the disk they may take.
    pub promises: Promises,
}

/// How long the probe's event may take that came before the handler was started.
const PATIENCE: Duration = Duration::from_millis(500);
/// A bundle takes no more room than this beside its core: binaries, and a history.
const BESIDE_THE_CORE: u64 = 1 << 30;

/// A bundle that is to be made.
pub(super) struct Wanted<'a> {
    pub(super) work: Work,
    pub(super) pid: Pid,
    pub(super) user: User,
    pub(super) description: Description,
    pub(super) seen: Option<Seen>,
    pub(super) frozen: Option<&'a Frozen>,
    /// Whose history; `None`: that of all.
    pub(super) history_of: Option<Pid>,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) deadline: u64,
    pub(super) gives: Vec<(Give, OwnedFd)>,
}

impl Saver {
    /// The configuration as it is now.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a user's executable, or a function, may cause one more bundle now.
    pub(crate) fn admits(&self, user: User, executable: &str) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admits = limiter.admits(user, executable, Instant::now());
        if !admits {
            self.metrics.crashes_limited.count();
        }
        admits
    }

    /// Whether a kept process is to be saved: its signal counts, and its user and executable have
    /// not caused too many.
    #[must_use]
    pub fn wants(&self, hold: &Hold) -> bool {
        let (signal, witness) = (hold.crash.signal, hold.crash.tid.max(hold.crash.pid));
        if signal != 0 && !self.config().crash.signals.contains(signal) {
            return false;
        }
        let executable = status::program(witness as RawTid);
        self.admits(
            hold.user,
            executable.as_deref().unwrap_or(&hold.crash.display_name()),
        )
    }

    /// Saves a process that is kept and wanted, and lets it go as soon as nothing more is to be
    /// read.
    ///
    /// # Errors
    /// When there is no bundle in the end. The process is let go in any case.
    pub fn save_held(&self, hold: &Hold) -> Result<Saved> {
        self.metrics.processes_held.count();
        let saved = self.counted(self.hold_and_save(hold));
        hold.release(None);
        saved
    }

    fn hold_and_save(&self, hold: &Hold) -> Result<Saved> {
        let pid = Pid(hold.crash.pid);
        let patience = if self.probe.is_some() {
            PATIENCE
        } else {
            Duration::ZERO
        };
        let sighting = self.sightings.take_asked_at(pid, hold.received, patience);
        // Known to the one who waits, or to the probe. The first thread may have ended before the
        // others, and has no memory then; the one that crashed has.
        let tid = match hold.crash.tid {
            0 => sighting.as_ref().map_or(pid.0, |it| it.seen.tid.0),
            tid => tid,
        };
        if let Some(sighting) = &sighting
            && !self
                .config()
                .crash
                .signals
                .contains(sighting.seen.siginfo.signal())
        {
            return Ok(Saved::Limited);
        }
        let failed = || Error::system("hand the core to a worker");
        let (head, why) = hold.read_head().map_err(failed())?;
        let mut description = self.describe("crash", sighting.as_ref(), hold.user);
        description.user = Some(hold.crash.uid);
        description.name = hold.crash.display_name();
        description.missing.extend(why);
        if sighting.is_none() && self.probe.is_some() {
            let missing = "the probe did not tell of the crash: how long it took is not known";
            description.missing.push(missing.to_owned());
        }
        let (rest, to) = core_pipe().map_err(failed())?;
        let mut to = Some(to);
        let wanted = Wanted {
            work: Work::Held {
                pid: pid.0,
                witness: tid,
                received: hold.received,
            },
            pid,
            user: hold.user,
            description,
            seen: sighting.as_ref().map(|it| Seen::new(&it.seen)),
            frozen: sighting.as_ref().and_then(|it| it.frozen.as_ref()),
            history_of: Some(pid),
            deadline: hold.deadline,
            gives: vec![(Give::Head, head.share().map_err(failed())?), (Give::Core, rest)],
        };
        let mut send_core = || {
            // Closed once all was sent.
            if let Some(to) = to.take() {
                hold.send_core(&to);
            }
        };
        let saved = self.save(wanted, &mut || hold.release(Some(&head)), &mut send_core);
        match (saved, sighting) {
            (Err(error), Some(sighting)) => {
                tracing::warn!(
                    "process {pid} could not be read, and what the probe saw of it is saved: {error}"
                );
                let missing = format!("the process could not be read: {error}");
                self.save_seen(&sighting, hold.user, missing)
            }
            (saved, _) => saved,
        }
    }

    /// Saves what the probe has seen of a process that was not kept.
    ///
    /// # Errors
    /// When there is no bundle in the end.
    pub fn save_unheld(&self, sighting: &Sighting) -> Result<Saved> {
        let seen = &sighting.seen;
        let user = sighting.user;
        let executable = status::program(seen.tid.0 as RawTid);
        if !self.admits(user, executable.as_deref().unwrap_or(&seen.comm)) {
            return Ok(Saved::Limited);
        }
        self.metrics.crashes_unheld.count();
        let missing = "the process was not kept (no core is dumped of it, or too many crashed at once): there is only what the probe saw";
        self.counted(self.save_seen(sighting, user, missing.to_owned()))
    }

    fn save_seen(&self, sighting: &Sighting, user: User, missing: String) -> Result<Saved> {
        let seen = &sighting.seen;
        let mut description = self.describe("crash", Some(sighting), user);
        description.user = seen.user;
        description.name = seen.comm.clone();
        description.missing.push(missing);
        let wanted = Wanted {
            work: Work::Seen,
            pid: seen.pid,
            user,
            description,
            seen: Some(Seen::new(seen)),
            frozen: sighting.frozen.as_ref(),
            history_of: Some(seen.pid),
            deadline: clock::monotonic(),
            gives: Vec::new(),
        };
        self.save(wanted, &mut || {}, &mut || {})
    }

    pub(super) fn counted(&self, saved: Result<Saved>) -> Result<Saved> {
        match &saved {
            Ok(Saved::Bundle(_)) => self.metrics.bundles_written.count(),
            Ok(Saved::Limited) => {}
            Err(_) => self.metrics.bundles_failed.count(),
        }
        saved
    }

    pub(super) fn describe(&self, trigger: &str, sighting: Option<&Sighting>, user: User) -> Description {
        Description {
            trigger: trigger.to_owned(),
            time: Some(sighting.map_or_else(clock::wall, |it| clock::wall_at(it.seen.at))),
            probe: self.probe.clone().filter(|_| sighting.is_some()),
            crash_to_reader: sighting.map(|it| it.read_at.saturating_sub(it.seen.at)),
            crashed_at: sighting.map(|it| it.seen.at),
            user: (user != User::UNKNOWN).then_some(user.id),
            records_history: self.history.is_some(),
            ..Description::default()
        }
    }

    /// Has a worker write a bundle, and puts it into the spool.
    pub(super) fn save(
        &self,
        mut wanted: Wanted<'_>,
        release: &mut dyn FnMut(),
        send_core: &mut dyn FnMut(),
    ) -> Result<Saved> {
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        let config = self.config();
        if let Some(history) = &self.history {
            match wanted.frozen {
                Some(frozen) => {
                    let (recorded, bytes) = history.record(frozen, wanted.history_of);
                    let failed = Error::system("describe the history");
                    let mut head =
                        serde_json::to_vec(&recorded).map_err(|error| failed(std::io::Error::from(error)))?;
                    head.push(b'\n');
                    let file = Sealed::of(&[&head, &bytes]).map_err(Error::system("copy the history"))?;
                    wanted.gives.push((Give::History, file.into()));
                }
                None if wanted.work_needs_history() => {
                    let missing =
                        "the processors' traces are not there: they were being copied for another crash";
                    wanted.description.missing.push(missing.to_owned());
                }
                None => {}
            }
        }
        let limit = config.crash.core_limit;
        let most = limit.0.saturating_add(BESIDE_THE_CORE);
        let wanted_user = wanted.user;
        let place = self.spool.reserve(&wanted.description.name, wanted.pid.0)?;
        let promise = self.promises.promise(self.spool.room()?, most);
        let written = self.workers.write(Order {
            task: Task {
                work: wanted.work,
                identity: 0,
                deadline: wanted.deadline,
                allowance: promise.bytes,
                policy: Policy {
                    core: config.crash.core,
                    limit: limit.0,
                    limit_text: limit.to_string(),
                    hold_limit_text: config.crash.hold_limit.to_string(),
                },
                description: wanted.description,
                seen: wanted.seen,
            },
            gives: wanted.gives,
            spool: self.spool.directory(),
            modules: self.spool.modules_of(wanted.user),
            user: wanted.user,
            release,
            send_core,
            has_room: &|| self.spool.room().is_ok(),
        })?;
        if !written.is_complete {
            self.metrics.bundles_incomplete.count();
        }
        drop(promise);
        self.spool.publish(&written.bundle, &place, wanted_user)?;
        written.discard();
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        Ok(Saved::Bundle(place.id))
    }
}

impl Wanted<'_> {
    fn work_needs_history(&self) -> bool {
        !matches!(self.work, Work::Deposit { .. })
    }
}
