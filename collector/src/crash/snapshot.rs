//! A bundle of a process that has not crashed, on a user's request or a function trigger.

use super::SaveOutcome;
use super::save::{SaveRequest, Saver};
use crate::clock;
use crate::error::{Error, Result};
use crate::hardware::Frozen;
use crate::users::User;
use crate::worker::Work;
use backtrail_process::{RawTid, status};
use backtrail_pt::Pid;

/// A request for a snapshot.
#[derive(Debug)]
pub struct SnapshotRequest {
    /// The process to save. `None`: only the traces of all processors.
    pub pid: Option<Pid>,
    /// The cause: `snapshot` or `function`.
    pub trigger: &'static str,
    /// A note for the reader of the bundle.
    pub note: Option<String>,
    /// The time of the request (`CLOCK_MONOTONIC`).
    pub at: u64,
    /// The traces of all processors at that time.
    pub frozen: Option<Frozen>,
}

impl Saver {
    /// Saves a process, which then continues, or the traces of all processors.
    ///
    /// # Errors
    /// When the process does not exist, nothing is recorded, or the bundle cannot be written.
    pub fn save_snapshot(&self, request: &SnapshotRequest) -> Result<SaveOutcome> {
        if request.pid.is_none() && request.frozen.is_none() {
            let why = "this machine does not trace all processes; name one: `backtrail snapshot --pid PID`";
            return Err(Error::Unable(why.to_owned()));
        }
        let saved = self.snapshot(request);
        if saved.is_ok() {
            self.metrics.snapshots.count();
        }
        self.counted(saved)
    }

    fn snapshot(&self, request: &SnapshotRequest) -> Result<SaveOutcome> {
        let raw = request.pid.map_or(0, |pid| pid.0 as RawTid);
        let name = request.pid.and_then(|_| status::thread_name(raw, raw));
        let [_, uid, _] = status::parent_and_owner(raw);
        let user = request.pid.map_or(User::ROOT, |_| self.users.owner_of(uid));
        let mut description = self.describe(request.trigger, None, user);
        description.time = Some(clock::wall_at(request.at));
        description.user = request.pid.map(|_| uid);
        description.name = name.unwrap_or_else(|| "all".to_owned());
        description.notes.extend(request.note.clone());
        let limit = u64::try_from(self.config().crash.hold_limit.0.as_nanos()).unwrap_or(u64::MAX);
        self.save(
            SaveRequest {
                work: Work::Snapshot {
                    pid: request.pid.map(|pid| pid.0),
                },
                pid: Pid(raw as u32),
                user,
                description,
                sample: None,
                frozen: request.frozen.as_ref(),
                history_of: request.pid,
                deadline: clock::monotonic().saturating_add(limit),
                inputs: Vec::new(),
            },
            &mut || {},
            &mut || {},
        )
    }
}
