//! Sends each crash of the spool once, over outages of any length.

use super::backoff::Backoff;
use super::heartbeat::host_name;
use super::log;
use super::source_reader::SourceReader;
use super::state::{CrashState, Stage, StateStore};
use crate::exit::Failure;
use crate::hub::report::{ReportNames, crash_report, excluded_modules, hide_in_report, size_of};
use crate::sources::SourceRequest;
use backtrail_bundle::redact::{EnvironmentRules, Secrets};
use backtrail_bundle::{Bundle, CancelToken, PackChanges};
use backtrail_collector::config::{SendPolicy, Size};
use backtrail_collector::sender::{self, SenderInbox, SenderReport, SenderTask};
use backtrail_collector::spool::Spool;
use backtrail_report::CrashReport;
use backtrail_report::client::{Error, HubClient, Upload, UploadEvent, UploadKind};
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The interval between two checks of the spool.
const PERIOD: Duration = Duration::from_secs(1);
/// The spool is listed again after this time, even if it seems unchanged.
const LISTED: Duration = Duration::from_secs(60);
/// Space that packing leaves free.
const FREE: Size = Size(256 << 20);

/// The spool, and what was sent of it.
pub struct Delivery {
    task: SenderTask,
    client: HubClient,
    inbox: Arc<SenderInbox>,
    spool: Spool,
    store: StateStore,
    host: String,
    reader: Option<SourceReader>,
}

/// The reason why a crash was not sent.
enum Undelivered {
    /// A later try may succeed.
    Later {
        problem: String,
        /// The pause that the hub wants.
        wanted: Option<Duration>,
    },
    /// No try can succeed. `None`: this is expected.
    Never(Option<String>),
}

impl From<Error> for Undelivered {
    fn from(error: Error) -> Self {
        // Another token may be accepted, and space may become free.
        let is_temporary = error.is_temporary()
            || error.is_unauthorized()
            || matches!(error, Error::File { .. } | Error::Canceled);
        match is_temporary {
            true => Self::Later {
                wanted: error.retry_after(),
                problem: error.to_string(),
            },
            false => Self::Never(Some(error.to_string())),
        }
    }
}

impl From<backtrail_bundle::Error> for Undelivered {
    fn from(error: backtrail_bundle::Error) -> Self {
        match error {
            backtrail_bundle::Error::Io { .. } => later(error),
            error => Self::Never(Some(error.to_string())),
        }
    }
}

fn later(problem: impl ToString) -> Undelivered {
    Undelivered::Later {
        problem: problem.to_string(),
        wanted: None,
    }
}

impl Delivery {
    /// Opens the spool.
    pub fn open(
        task: SenderTask,
        client: HubClient,
        inbox: Arc<SenderInbox>,
        reader: Option<SourceReader>,
    ) -> Result<Self, Failure> {
        let directory = task.spool.join(sender::DIRECTORY);
        let spool = Spool::open(&task.spool, Size(u64::MAX), FREE);
        Ok(Self {
            store: StateStore::open(&directory),
            task,
            client,
            inbox,
            spool,
            host: host_name(),
            reader,
        })
    }

    /// Sends the crashes of the spool for ever, or until the reader of source files has ended. The
    /// daemon then starts both again.
    pub fn run(mut self) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        let mut listed: Option<(Instant, Option<SystemTime>)> = None;
        loop {
            let changed = modified(&self.task.spool);
            let is_same = listed.is_some_and(|(at, known)| at.elapsed() < LISTED && known == changed);
            if is_same {
                std::thread::sleep(PERIOD);
                continue;
            }
            match self.send_all() {
                Ok(()) => {
                    if backoff.failures() != 0 {
                        log("the hub takes crashes again");
                    }
                    backoff.reset();
                    listed = Some((Instant::now(), changed));
                    if self.reader.as_ref().is_some_and(SourceReader::has_failed) {
                        return Ok(());
                    }
                }
                Err((problem, wanted)) => {
                    // One sentence for each outage, and one for every hour of it or so.
                    if backoff.failures() % 12 == 0 {
                        log(&format!("crashes wait in the spool: {problem}"));
                    }
                    listed = None;
                    std::thread::sleep(backoff.after_failure(wanted));
                }
            }
        }
    }

    /// Sends the crashes that were not sent, those with fewer failures first.
    fn send_all(&mut self) -> Result<(), (String, Option<Duration>)> {
        let unsent = self.spool.unsent().map_err(|error| (error.to_string(), None))?;
        for crash in self.store.retain(&unsent) {
            log(&format!(
                "crash {crash} was removed from the spool before it was sent"
            ));
        }
        if self.task.hub.send == SendPolicy::None {
            return Ok(());
        }
        let mut ordered: Vec<(u32, &String)> = unsent
            .iter()
            .map(|crash| (self.store.get(crash).attempts, crash))
            .collect();
        // The sort is stable: among equals, the oldest comes first.
        ordered.sort_by_key(|(attempts, _)| *attempts);
        for (_, crash) in ordered {
            let mut state = self.store.get(crash);
            let delivered = match state.stage {
                Stage::Refused => continue,
                Stage::Sent => Ok(()),
                _ => self.deliver(crash, &mut state),
            };
            let result = match delivered {
                Ok(()) => {
                    state.stage = Stage::Sent;
                    Ok(())
                }
                Err(Undelivered::Never(problem)) => {
                    if let Some(problem) = problem {
                        log(&format!("crash {crash} stays here: {problem}"));
                    }
                    state.stage = Stage::Refused;
                    Ok(())
                }
                Err(Undelivered::Later { problem, wanted }) => {
                    state.attempts = state.attempts.saturating_add(1);
                    Err((problem, wanted))
                }
            };
            let is_sent = state.stage == Stage::Sent;
            self.put(crash, &state).map_err(|error| match error {
                Undelivered::Later { problem, wanted } => (problem, wanted),
                Undelivered::Never(problem) => (problem.unwrap_or_default(), None),
            })?;
            if is_sent {
                let _ = std::fs::remove_file(self.store.packed(crash));
                let report = SenderReport::Sent { id: crash.clone() };
                self.inbox
                    .report(&report)
                    .map_err(|error| (error.to_string(), None))?;
            }
            result?;
        }
        Ok(())
    }

    fn put(&mut self, crash: &str, state: &CrashState) -> Result<(), Undelivered> {
        let stored = self.store.put(crash, state.clone());
        stored.map_err(|error| later(format_args!("cannot store the state of crash {crash}: {error}")))
    }

    /// Sends the report of a crash, and its bundle if the hub asks for it.
    fn deliver(&mut self, crash: &str, state: &mut CrashState) -> Result<(), Undelivered> {
        let path = self.task.spool.join(crash);
        let bundle = Bundle::open(&path)?;
        if bundle.manifest().meta.crash.is_none() {
            return Err(Undelivered::Never(None));
        }
        let hub = &self.task.hub;
        let names = ReportNames {
            service: hub.service.as_deref(),
            build: hub.build.as_deref(),
            // A user's recorder could name another host.
            host: Some(&self.host),
        };
        let secrets = self.secrets(crash, &bundle)?;
        let sends_bundle = hub.send == SendPolicy::Bundles && secrets.is_some();
        let size = Some(size_of(&path)).filter(|_| sends_bundle);
        let mut report = crash_report(&bundle, size, names)?;
        match &secrets {
            Some(secrets) => hide_in_report(&mut report, secrets),
            // They could have a value.
            None => report.labels.clear(),
        }
        if state.stage == Stage::Report {
            state.id = Some(report.id.clone());
            self.put(crash, state)?;
            let receipts = self.client.send(std::slice::from_ref(&report))?;
            let wanted = receipts.into_iter().next().and_then(|receipt| receipt.wants);
            let Some(wanted) = wanted.filter(|_| size.is_some()) else {
                return Ok(());
            };
            state.stage = Stage::Bundle {
                modules: wanted.modules,
                location: None,
            };
            self.put(crash, state)?;
        }
        self.send_bundle(crash, &bundle, (&report, &secrets.unwrap_or_default()), state)
    }

    /// Returns the values that are removed from a crash. `None`: they are not found, so that the
    /// bundle stays here.
    fn secrets(&self, crash: &str, bundle: &Bundle) -> Result<Option<Secrets>, Undelivered> {
        let rules = EnvironmentRules::new(&self.task.hub.redact_environment)?;
        match Secrets::find(bundle, &rules) {
            Ok(secrets) => Ok(Some(secrets)),
            Err(backtrail_bundle::Error::Unsupported { problem, .. }) => {
                log(&format!("crash {crash} is sent without its bundle: {problem}"));
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Uploads the bundle without the modules that the hub has.
    fn send_bundle(
        &mut self,
        crash: &str,
        bundle: &Bundle,
        (report, secrets): (&CrashReport, &Secrets),
        state: &mut CrashState,
    ) -> Result<(), Undelivered> {
        let Stage::Bundle { modules, location } = state.stage.clone() else {
            return Ok(());
        };
        let (resume, packed) = (location, self.store.packed(crash));
        // The file of an interrupted upload is sent as it is.
        if !packed.exists() {
            self.pack(crash, bundle, (report, secrets), (&modules, &mut *state), &packed)?;
        }
        let file = File::open(&packed).map_err(later)?;
        let upload = Upload {
            kind: UploadKind::Bundle,
            subject: report.id.as_str(),
            file: &file,
            resume: resume.as_deref(),
        };
        let client = self.client.clone();
        let uploaded = client.upload(upload, &mut |event| {
            if let (UploadEvent::Started { location: at }, Stage::Bundle { location, .. }) =
                (event, &mut state.stage)
            {
                *location = Some(at.to_owned());
                if self.store.put(crash, state.clone()).is_err() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        match uploaded {
            // An earlier sender was killed after the last byte.
            Err(Error::Refused { code: 409, .. }) => Ok(()),
            // The report is counted, and the hub does not want the bundle any more.
            Err(error @ Error::Refused { .. }) => {
                log(&format!("the hub has crash {crash} without its bundle: {error}"));
                Ok(())
            }
            uploaded => Ok(uploaded?),
        }
    }

    fn pack(
        &mut self,
        crash: &str,
        bundle: &Bundle,
        (report, secrets): (&CrashReport, &Secrets),
        (modules, state): (&[String], &mut CrashState),
        packed: &Path,
    ) -> Result<(), Undelivered> {
        let room = self.spool.room().map_err(later)?;
        if room < size_of(bundle.root()) {
            return Err(later("the disk has no space to pack a bundle"));
        }
        let partial = packed.with_extension("part");
        let _ = std::fs::remove_file(&partial);
        let scratch = tempfile::tempdir_in(self.task.spool.join(sender::DIRECTORY)).map_err(later)?;
        let cancel = CancelToken::default();
        let mut changes = PackChanges {
            excluded: excluded_modules(report, modules),
            replaced: secrets.remove(bundle, scratch.path(), &cancel)?,
        };
        if !state.has_searched_sources && self.reader.is_some() {
            state.has_searched_sources = true;
            self.put(crash, state)?;
            let request = SourceRequest {
                bundle: bundle.root().to_owned(),
                allowed: self.task.hub.sources.clone(),
                target: scratch.path().join("sources"),
            };
            let found = self.reader.as_mut().map(|reader| reader.collect(crash, &request));
            changes.replaced.extend(found.unwrap_or_default());
        }
        backtrail_bundle::pack_changed(bundle.root(), &partial, &changes, &cancel)?;
        std::fs::rename(&partial, packed).map_err(later)
    }
}

/// Returns when entries of a directory last changed.
fn modified(directory: &Path) -> Option<SystemTime> {
    directory.metadata().ok()?.modified().ok()
}
