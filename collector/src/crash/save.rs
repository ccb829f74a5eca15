//! Saves one crash to the spool: from the handler's request, or from the probe's event only.
//!
//! The daemon decides here whether to make a bundle, and starts a worker for it. It parses nothing
//! that the crashing process could have written.

use super::disk_budget::DiskBudget;
use super::held::{HeldProcess, core_pipe};
use super::pending::{PendingCrash, PendingCrashes};
use crate::clock;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hardware::Frozen;
use crate::heap::HeapHistory;
use crate::history::History;
use crate::limit::Limiter;
use crate::metrics::Metrics;
use crate::spool::Spool;
use crate::users::{User, Users};
use crate::worker::{Description, Policy, SampleRecord, Sealed, Task, TaskInput, Work, WorkerJob, Workers};
use backtrail_process::{RawTid, service, status};
use backtrail_pt::Pid;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The outcome of saving a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// A bundle with this name.
    Bundle(String),
    /// No bundle: the user or the executable has exceeded its rate limit.
    Limited,
}

/// Saves crashes as bundles.
#[derive(Debug)]
pub struct Saver {
    /// The directory of the bundles.
    pub spool: Spool,
    /// The crashes that the probe reported.
    pub pending: PendingCrashes,
    /// The counters.
    pub metrics: Metrics,
    /// The configuration. It can change between crashes.
    pub config: RwLock<Arc<Config>>,
    /// The rate limits.
    pub limiter: Mutex<Limiter>,
    /// Maps user ids to the users who own them.
    pub users: Users,
    /// The kind of the attached probe. `None`: only the core handler reports crashes.
    pub probe: Option<String>,
    /// The traces of all processors.
    pub history: Option<History>,
    /// The heap history of services.
    pub heap: Option<HeapHistory>,
    /// Whether cores are passed on to the previous handler.
    pub chain: bool,
    /// The worker processes.
    pub workers: Workers,
    /// The disk space that they may use.
    pub disk_budget: DiskBudget,
}

/// How long an event from before the handler's start may take to arrive.
const TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum bytes of a bundle in addition to its core: binaries and history.
const BESIDE_THE_CORE: u64 = 1 << 30;

/// A bundle to be made.
pub(super) struct SaveRequest<'a> {
    pub(super) work: Work,
    pub(super) pid: Pid,
    pub(super) user: User,
    pub(super) description: Description,
    pub(super) sample: Option<SampleRecord>,
    pub(super) frozen: Option<&'a Frozen>,
    /// The process whose history is saved. `None`: all processes.
    pub(super) history_of: Option<Pid>,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) deadline: u64,
    pub(super) inputs: Vec<(TaskInput, OwnedFd)>,
}

impl Saver {
    /// Returns the current configuration.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether a user's executable, or a function, may cause one more bundle now.
    pub(crate) fn admits(&self, user: User, executable: &str) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let admits = limiter.admits(user, executable, Instant::now());
        if !admits {
            self.metrics.crashes_limited.count();
        }
        admits
    }

    /// Returns whether to save a held process: its signal is configured, and the rate limit allows
    /// it.
    #[must_use]
    pub fn wants(&self, held: &HeldProcess) -> bool {
        let (signal, witness) = (held.crash.signal, held.crash.tid.max(held.crash.pid));
        if signal != 0 && !self.config().crash.signals.contains(signal) {
            return false;
        }
        let executable = status::program(witness as RawTid);
        self.admits(
            held.user,
            executable.as_deref().unwrap_or(&held.crash.display_name()),
        )
    }

    /// Saves a held process, and releases it as soon as everything is read.
    ///
    /// # Errors
    /// When no bundle was written. The process is released in any case.
    pub fn save_held(&self, held: &HeldProcess) -> Result<SaveOutcome> {
        self.metrics.processes_held.count();
        let saved = self.counted(self.save_and_release(held));
        held.release(None);
        saved
    }

    fn save_and_release(&self, held: &HeldProcess) -> Result<SaveOutcome> {
        let pid = Pid(held.crash.pid);
        let timeout = if self.probe.is_some() {
            TIMEOUT
        } else {
            Duration::ZERO
        };
        let pending = self.pending.take_asked_at(pid, held.received, timeout);
        // The handler or the probe reports the crashed thread. The first thread may have exited
        // before, and has no memory then.
        let tid = match held.crash.tid {
            0 => pending.as_ref().map_or(pid.0, |it| it.sample.tid.0),
            tid => tid,
        };
        if let Some(pending) = &pending
            && !self
                .config()
                .crash
                .signals
                .contains(pending.sample.siginfo.signal())
        {
            return Ok(SaveOutcome::Limited);
        }
        let failed = || Error::system("hand the core to a worker");
        let (head, why) = held.read_head().map_err(failed())?;
        let mut description = self.describe("crash", pending.as_ref(), held.user);
        description.user = Some(held.crash.uid);
        description.name = held.crash.display_name();
        description.missing.extend(why);
        if pending.is_none() && self.probe.is_some() {
            let missing = "the probe did not report the crash: its timing is unknown";
            description.missing.push(missing.to_owned());
        }
        let (rest, to) = core_pipe().map_err(failed())?;
        let mut to = Some(to);
        let request = SaveRequest {
            work: Work::Held {
                pid: pid.0,
                witness: tid,
                received: held.received,
            },
            pid,
            user: held.user,
            description,
            sample: pending.as_ref().map(|it| SampleRecord::new(&it.sample)),
            frozen: pending.as_ref().and_then(|it| it.frozen.as_ref()),
            history_of: Some(pid),
            deadline: held.deadline,
            inputs: vec![
                (TaskInput::Head, head.share().map_err(failed())?),
                (TaskInput::Core, rest),
            ],
        };
        let mut send_core = || {
            // Dropping the pipe closes it after everything was sent.
            if let Some(to) = to.take() {
                held.send_core(&to);
            }
        };
        let saved = self.save(request, &mut || held.release(Some(&head)), &mut send_core);
        match (saved, pending) {
            (Err(error), Some(pending)) => {
                tracing::warn!("process {pid} could not be read; saving only the probe's data: {error}");
                let missing = format!("the process could not be read: {error}");
                self.save_sample(&pending, held.user, missing)
            }
            (saved, _) => saved,
        }
    }

    /// Saves the probe's data of a process that was not held.
    ///
    /// # Errors
    /// When no bundle was written.
    pub fn save_unheld(&self, pending: &PendingCrash) -> Result<SaveOutcome> {
        let sample = &pending.sample;
        let user = pending.user;
        let executable = status::program(sample.tid.0 as RawTid);
        if !self.admits(user, executable.as_deref().unwrap_or(&sample.comm)) {
            return Ok(SaveOutcome::Limited);
        }
        self.metrics.crashes_unheld.count();
        let missing = "the process was not held (it dumps no core, or too many processes crashed at once): only the probe's data is saved";
        self.counted(self.save_sample(pending, user, missing.to_owned()))
    }

    fn save_sample(&self, pending: &PendingCrash, user: User, missing: String) -> Result<SaveOutcome> {
        let sample = &pending.sample;
        let mut description = self.describe("crash", Some(pending), user);
        description.user = sample.user;
        description.name = sample.comm.clone();
        description.missing.push(missing);
        let request = SaveRequest {
            work: Work::Unheld,
            pid: sample.pid,
            user,
            description,
            sample: Some(SampleRecord::new(sample)),
            frozen: pending.frozen.as_ref(),
            history_of: Some(sample.pid),
            deadline: clock::monotonic(),
            inputs: Vec::new(),
        };
        self.save(request, &mut || {}, &mut || {})
    }

    pub(super) fn counted(&self, saved: Result<SaveOutcome>) -> Result<SaveOutcome> {
        match &saved {
            Ok(SaveOutcome::Bundle(_)) => self.metrics.bundles_written.count(),
            Ok(SaveOutcome::Limited) => {}
            Err(_) => self.metrics.bundles_failed.count(),
        }
        saved
    }

    pub(super) fn describe(&self, trigger: &str, pending: Option<&PendingCrash>, user: User) -> Description {
        Description {
            trigger: trigger.to_owned(),
            time: Some(pending.map_or_else(clock::wall, |it| clock::wall_at(it.sample.at))),
            probe: self.probe.clone().filter(|_| pending.is_some()),
            crash_to_reader: pending.map(|it| it.read_at.saturating_sub(it.sample.at)),
            crashed_at: pending.map(|it| it.sample.at),
            user: (user != User::UNKNOWN).then_some(user.id),
            records_history: self.history.is_some(),
            ..Description::default()
        }
    }

    /// Makes a worker write a bundle, and publishes it in the spool.
    pub(super) fn save(
        &self,
        mut request: SaveRequest<'_>,
        release: &mut dyn FnMut(),
        send_core: &mut dyn FnMut(),
    ) -> Result<SaveOutcome> {
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        let config = self.config();
        let mut perf_offset = None;
        if let Some(history) = &self.history {
            match request.frozen {
                Some(frozen) => {
                    let (recorded, bytes) = history.record(frozen, request.history_of);
                    perf_offset = Some(recorded.perf_offset());
                    let failed = Error::system("describe the history");
                    let mut head =
                        serde_json::to_vec(&recorded).map_err(|error| failed(std::io::Error::from(error)))?;
                    head.push(b'\n');
                    let file = Sealed::of(&[&head, &bytes]).map_err(Error::system("copy the history"))?;
                    request.inputs.push((TaskInput::History, file.into()));
                }
                None if request.work_needs_history() => {
                    let missing =
                        "the traces of the processors are missing: they were being copied for another crash";
                    request.description.missing.push(missing.to_owned());
                }
                None => {}
            }
        }
        self.add_heap_records(&mut request, perf_offset)?;
        // A process that ended may have left its number to another one.
        if !matches!(request.work, Work::Unheld) {
            request.description.service = service::of_process(request.pid.0 as RawTid);
        }
        let limit = config.crash.core_limit;
        let max_bytes = limit.0.saturating_add(BESIDE_THE_CORE);
        let user = request.user;
        let reserved = self.spool.reserve(&request.description.name, request.pid.0)?;
        let grant = self.disk_budget.grant(self.spool.room()?, max_bytes);
        let written = self.workers.write(WorkerJob {
            task: Task {
                work: request.work,
                identity: 0,
                deadline: request.deadline,
                allowance: grant.bytes,
                policy: Policy {
                    core: config.crash.core,
                    limit: limit.0,
                    limit_text: limit.to_string(),
                    hold_limit_text: config.crash.hold_limit.to_string(),
                },
                description: request.description,
                sample: request.sample,
            },
            inputs: request.inputs,
            spool: self.spool.directory(),
            modules: self.spool.modules_of(request.user),
            user: request.user,
            release,
            send_core,
            has_room: &|| self.spool.room().is_ok(),
        })?;
        if !written.is_complete {
            self.metrics.bundles_incomplete.count();
        }
        drop(grant);
        self.spool.publish(&written.bundle, &reserved, user)?;
        written.discard();
        self.metrics.bundles_dropped.add(self.spool.make_room()?);
        Ok(SaveOutcome::Bundle(reserved.id))
    }
}

impl Saver {
    /// Gives the worker the heap records of the process, if its calls are noted.
    fn add_heap_records(&self, request: &mut SaveRequest<'_>, perf_offset: Option<i64>) -> Result<()> {
        let Some(heap) = self.heap.as_ref().filter(|_| request.work_needs_history()) else {
            return Ok(());
        };
        let zero = request.description.crashed_at.unwrap_or_else(clock::monotonic);
        match heap.record(request.pid, zero, perf_offset) {
            Ok(Some(bytes)) => {
                let file = Sealed::of(&[&bytes]).map_err(Error::system("copy the heap records"))?;
                request.inputs.push((TaskInput::Heap, file.into()));
            }
            Ok(None) => {}
            Err(missing) => request.description.missing.push(missing.to_owned()),
        }
        Ok(())
    }
}

impl SaveRequest<'_> {
    fn work_needs_history(&self) -> bool {
        !matches!(self.work, Work::Deposit { .. })
    }
}
