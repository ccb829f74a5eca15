//! The daemon's side of a worker: starts it, answers its reports, and abandons it when it hangs.

use super::confine::{FIRST_IDENTITY, IDENTITIES};
use super::drafts::{DraftDirectory, shared_modules};
use super::sealed::Sealed;
use super::task::{Report, Task, TaskInput};
use crate::clock;
use crate::error::{Error, Result};
use crate::users::User;
use crate::wire::Connection;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The hidden command that calls [`super::run`].
pub(crate) const COMMAND: &str = "core-worker";
/// How long a worker may take after the process's deadline to copy binaries and write the bundle to
/// disk.
const FINISH: Duration = Duration::from_secs(60);
/// How long a worker may take for a message, and an opener for its end.
const END: Duration = Duration::from_secs(1);
/// How long a worker may take to end after its last report, and again after it was killed. The
/// crashed process is released by then. On a machine that is busy with a storm of crashes, the exit
/// of a process takes seconds.
const EXIT: Duration = Duration::from_secs(10);
/// How often to check the free disk space while a worker writes.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of reports of a worker.
const MAX_REPORTS: usize = 16;
/// Maximum length of a worker's message.
const MAX_SENTENCE: usize = 1000;
/// Maximum number of a user's workers that could not be ended. The user gets no others until one of
/// them ends.
const MAX_STUCK: usize = 2;

/// Starts and tracks workers.
#[derive(Debug, Default)]
pub struct Workers {
    next: AtomicU32,
    /// A worker that waits for a task, which shortens the time that the next process is held.
    spare: Mutex<Option<(Child, Connection)>>,
    /// Killed processes that a file system blocks in the kernel.
    stuck: Mutex<Vec<(User, StuckProcess)>>,
}

/// A process that was killed and has not ended.
#[derive(Debug)]
enum StuckProcess {
    /// A worker.
    Worker(Child),
    /// A process that opened files for a worker (`opener.rs`). The worker has ended.
    Opener(Connection),
}

impl StuckProcess {
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Worker(child) => !matches!(child.try_wait(), Ok(None)),
            Self::Opener(connection) => connection.is_hung_up(Duration::ZERO),
        }
    }
}

/// A task with everything that its worker needs.
pub(crate) struct WorkerJob<'a> {
    pub(crate) task: Task,
    /// Descriptors for the worker.
    pub(crate) inputs: Vec<(TaskInput, OwnedFd)>,
    /// The directory for the draft directory.
    pub(crate) spool: &'a Path,
    /// The directory of modules that bundles of this user share.
    pub(crate) modules: PathBuf,
    /// The user who owns the process.
    pub(crate) user: User,
    /// Called when nothing more of the process is needed, or at the deadline.
    pub(crate) release: &'a mut dyn FnMut(),
    /// Called when the worker needs the rest of the kernel's core.
    pub(crate) send_core: &'a mut dyn FnMut(),
    /// Returns whether the disk has the required free space.
    pub(crate) has_room: &'a dyn Fn() -> bool,
}

/// A bundle that a worker wrote.
#[derive(Debug)]
pub struct WrittenBundle {
    draft: DraftDirectory,
    /// The path of the bundle. Dropping this removes the bundle, unless it was moved away.
    pub bundle: PathBuf,
    /// Whether nothing is missing in it.
    pub is_complete: bool,
}

impl Workers {
    /// Makes a worker write a bundle.
    ///
    /// # Errors
    /// When no bundle was written. The message states the reason.
    pub(crate) fn write(&self, job: WorkerJob<'_>) -> Result<WrittenBundle> {
        self.reap();
        if job.task.work.opens_a_process() && self.stuck_of(job.user) >= MAX_STUCK {
            (job.release)();
            return Err(Error::Unable(format!(
                "{MAX_STUCK} workers for user {} are stuck in a file system that does not answer",
                job.user.id
            )));
        }
        let identity = FIRST_IDENTITY + self.next.fetch_add(1, Ordering::Relaxed) % IDENTITIES;
        let draft = DraftDirectory::create(job.spool, identity)?;
        let shared = shared_modules(&job.modules).map_err(Error::file("write to", &job.modules))?;
        let user = job.user;
        let (mut child, connection) = match self.take_spare() {
            Some(spare) => spare,
            None => start()?,
        };
        let outcome = run_task(job, identity, &connection, &draft, &shared);
        self.prepare();
        // The worker has reported, or is late.
        if outcome.is_err() {
            let _ = child.kill();
        }
        if !ends(&mut child, EXIT) {
            let _ = child.kill();
            if !ends(&mut child, EXIT) {
                self.lock_stuck().push((user, StuckProcess::Worker(child)));
                // The worker might still write to the bundle that it reported as finished.
                outcome?;
                return Err(Error::Unable("the worker could not be ended".to_owned()));
            }
        }
        if !connection.is_hung_up(END) {
            tracing::warn!(
                "a process that opens files of user {} is stuck in a file system that does not answer",
                user.id
            );
            self.lock_stuck().push((user, StuckProcess::Opener(connection)));
        }
        let is_complete = outcome?;
        let bundle = draft.take_back().map_err(Error::system("take the bundle back"))?;
        draft
            .settle_modules(&shared)
            .map_err(Error::system("take the bundle back"))?;
        Ok(WrittenBundle {
            draft,
            bundle,
            is_complete,
        })
    }

    /// Starts a worker that waits for the next task, unless there is one.
    pub(crate) fn prepare(&self) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = start().ok();
        }
    }

    /// Returns the waiting worker, if it is still running.
    fn take_spare(&self) -> Option<(Child, Connection)> {
        let (mut child, connection) = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        matches!(child.try_wait(), Ok(None)).then_some((child, connection))
    }

    fn stuck_of(&self, user: User) -> usize {
        let stuck = self.lock_stuck();
        stuck.iter().filter(|(owner, _)| *owner == user).count()
    }

    fn lock_stuck(&self) -> MutexGuard<'_, Vec<(User, StuckProcess)>> {
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets stuck workers that have ended.
    pub(crate) fn reap(&self) {
        self.lock_stuck().retain_mut(|(_, process)| !process.has_ended());
    }

    /// Returns the number of stuck workers.
    pub(crate) fn stuck(&self) -> usize {
        self.lock_stuck().len()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // The worker ends when its connection is closed.
        if let Some((mut child, connection)) = self.take_spare() {
            drop(connection);
            ends(&mut child, END);
        }
    }
}

impl WrittenBundle {
    /// Removes the draft directory with everything that was not moved out of it.
    pub fn discard(self) {
        drop(self.draft);
    }
}

fn start() -> Result<(Child, Connection)> {
    let start = || -> io::Result<(Child, Connection)> {
        let (ours, theirs) = Connection::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg(COMMAND)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            // The worker reports its errors over the connection.
            .stderr(Stdio::null())
            .spawn()?;
        Ok((child, ours))
    };
    start().map_err(Error::system("start a worker"))
}

/// Waits for the end of a process. Returns whether it ended in time.
fn ends(child: &mut Child, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() >= deadline => return false,
            Ok(None) => std::thread::sleep(pause),
            _ => return true,
        }
        pause = (2 * pause).min(Duration::from_millis(20));
    }
}

/// Runs a task: gives it to the worker, and answers until the worker reports its end. Returns
/// whether the bundle is complete. The process is released in any case, at the deadline at the
/// latest.
fn run_task(
    mut job: WorkerJob<'_>,
    identity: u32,
    connection: &Connection,
    draft: &DraftDirectory,
    shared: &std::fs::File,
) -> Result<bool> {
    let mut is_released = false;
    let result = exchange_messages(&mut job, identity, connection, draft, shared, &mut is_released);
    if !is_released {
        (job.release)();
    }
    result
}

fn exchange_messages(
    job: &mut WorkerJob<'_>,
    identity: u32,
    connection: &Connection,
    draft: &DraftDirectory,
    shared: &std::fs::File,
    is_released: &mut bool,
) -> Result<bool> {
    let talk = || Error::system("talk to the worker");
    job.task.identity = identity;
    let task = serde_json::to_vec(&job.task).map_err(|error| talk()(error.into()))?;
    let task = Sealed::of(&[&task]).map_err(talk())?;
    connection.set_timeout(END).map_err(talk())?;
    let give = |input: TaskInput, file: Option<std::os::fd::BorrowedFd<'_>>| {
        connection.send(&input, file).map_err(talk())
    };
    give(TaskInput::Task, Some(task.as_fd()))?;
    give(TaskInput::Draft, Some(draft.handle()))?;
    give(TaskInput::Modules, Some(shared.as_fd()))?;
    for (input, file) in std::mem::take(&mut job.inputs) {
        give(input, Some(file.as_fd()))?;
    }
    give(TaskInput::Start, None)?;
    let deadline = job.task.deadline;
    let end = deadline
        .max(clock::monotonic())
        .saturating_add(FINISH.as_nanos() as u64);
    let mut reports = 0;
    loop {
        let now = clock::monotonic();
        if now >= deadline && !*is_released {
            *is_released = true;
            (job.release)();
        }
        if now >= end || reports > MAX_REPORTS {
            let seconds = FINISH.as_secs();
            return Err(Error::Unable(format!(
                "the worker was killed, because it did not finish within {seconds} s after hold_limit"
            )));
        }
        if !(job.has_room)() {
            let why = "the worker was killed, because the spool's disk is full";
            return Err(Error::Unable(why.to_owned()));
        }
        let until = if *is_released { end } else { deadline };
        let left = Duration::from_nanos(until.saturating_sub(now));
        let wait = left.clamp(Duration::from_millis(1), POLL_INTERVAL);
        connection.set_timeout(wait).map_err(talk())?;
        // A worker sends no descriptors.
        let report = connection.receive_alone::<Report>();
        reports += usize::from(report.is_ok());
        match report {
            Ok(Report::Confined) => {}
            Ok(Report::WantsCore) => (job.send_core)(),
            Ok(Report::Read) if *is_released => {}
            Ok(Report::Read) => {
                *is_released = true;
                (job.release)();
            }
            Ok(Report::Finished { complete }) => return Ok(complete),
            Ok(Report::Failed { why }) => return Err(Error::Unable(readable(&why))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Error::Unable(
                    "the worker ended before it had finished".to_owned(),
                ));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(talk()(error)),
        }
    }
}

/// Makes a worker's message safe for the log, because the content that a worker reads may control
/// it.
fn readable(why: &str) -> String {
    let plain = |letter: char| if letter.is_control() { '\u{fffd}' } else { letter };
    why.chars().take(MAX_SENTENCE).map(plain).collect()
}
