//! A process that the kernel holds while its crash is read, and the timer that releases it.
//!
//! The kernel holds the process as long as any process has the read end of the core pipe open, or
//! the handler runs. [`HeldProcess::release`] ends both. The timer calls it at the deadline,
//! independently of all other threads.

use super::head;
use crate::clock;
use crate::pattern::Specifiers;
use crate::users::User;
use crate::wire::{Connection, Reply};
use crate::worker::Sealed;
use nix::poll::PollFlags;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The program that holds a crashing process.
#[derive(Debug)]
pub enum Holder {
    /// The crash handler, at the other end of this connection.
    Handler(Connection),
    /// The kernel itself, until the core connection is closed.
    Kernel,
}

/// A crashing process as the handler or the kernel hands it over.
#[derive(Debug)]
pub struct HoldRequest {
    /// The crash as the kernel reports it. A thread or signal of 0 is unknown.
    pub crash: Specifiers,
    /// The read end of the core.
    pub core: OwnedFd,
    /// The program that holds the process.
    pub holder: Holder,
    /// The user who owns the process.
    pub user: User,
    /// When the request arrived (`CLOCK_MONOTONIC`, nanoseconds).
    pub received: u64,
    /// The longest time to hold the process.
    pub limit: Duration,
    /// Whether the handler passes the core on.
    pub chain: bool,
}

/// A process that is held.
#[derive(Debug)]
pub struct HeldProcess {
    /// The crash as the kernel reports it. A thread or signal of 0 is unknown.
    pub crash: Specifiers,
    /// The user who owns the process.
    pub user: User,
    /// When the request arrived (`CLOCK_MONOTONIC`).
    pub received: u64,
    /// When the process is released at the latest (`CLOCK_MONOTONIC`).
    pub deadline: u64,
    /// Whether the handler passes the core on.
    pub chain: bool,
    /// `None` after the process was released.
    core: Mutex<Option<HeldCore>>,
}

#[derive(Debug)]
struct HeldCore {
    file: Arc<File>,
    holder: Holder,
}

impl HeldProcess {
    /// Starts to hold a process, from the time of the request.
    #[must_use]
    pub fn new(request: HoldRequest) -> Self {
        let limit = u64::try_from(request.limit.as_nanos()).unwrap_or(u64::MAX);
        Self {
            crash: request.crash,
            user: request.user,
            received: request.received,
            deadline: request.received.saturating_add(limit),
            chain: request.chain,
            core: Mutex::new(Some(HeldCore {
                file: Arc::new(File::from(request.core)),
                holder: request.holder,
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeldCore>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn core_file(&self) -> Option<Arc<File>> {
        self.lock().as_ref().map(|core| Arc::clone(&core.file))
    }

    /// Returns whether the process is still held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.lock().is_some()
    }

    /// Reads the head of the core. The message, if any, says why the head is incomplete.
    ///
    /// # Errors
    /// When memory is exhausted.
    pub(super) fn read_head(&self) -> io::Result<(Sealed, Option<String>)> {
        match self.core_file() {
            Some(core) => head::read(&core, self.deadline),
            None => {
                let why = "the process was released before its core was read".to_owned();
                Ok((Sealed::of(&[])?, Some(why)))
            }
        }
    }

    /// Copies the rest of the core into a pipe, until the deadline at the latest.
    pub(super) fn send_core(&self, to: &File) {
        const MAX_SPLICE: usize = 1 << 20;
        let Some(core) = self.core_file() else {
            return;
        };
        use nix::fcntl::{SpliceFFlags, splice};
        // A worker that does not read, or a kernel that does not write, must not block this thread.
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        while self.is_held()
            && head::wait(&core, PollFlags::POLLIN, self.deadline).is_ok()
            && head::wait(to, PollFlags::POLLOUT, self.deadline).is_ok()
        {
            match splice(&*core, None, to, None, MAX_SPLICE, flags) {
                Ok(1..) | Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Releases the process. A handler that passes the core on receives the bytes in `taken`, which
    /// the daemon has already read. Calls after the first one have no effect.
    pub fn release(&self, taken: Option<&Sealed>) {
        let Some(core) = self.lock().take() else {
            return;
        };
        let Holder::Handler(connection) = core.holder else {
            return;
        };
        let taken = taken.filter(|_| self.chain);
        let reply = Reply {
            taken: taken.map_or(0, Sealed::size),
            ..Reply::default()
        };
        // A handler that does not read at once has ended, or sees the connection close.
        let _ = connection.set_timeout(Duration::from_millis(20));
        let _ = connection.send(&reply, taken.map(AsFd::as_fd));
    }
}

/// The processes that are held, each with its deadline.
#[derive(Debug, Default)]
pub struct HeldProcesses {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct TimerState {
    processes: Vec<Weak<HeldProcess>>,
    is_closed: bool,
}

impl HeldProcesses {
    fn lock(&self) -> MutexGuard<'_, TimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a process. The timer releases it at its deadline, unless it is released before.
    pub fn add(&self, process: &Arc<HeldProcess>) {
        let mut state = self.lock();
        if state.processes.len() == state.processes.capacity() {
            state
                .processes
                .retain(|process| process.upgrade().is_some_and(|process| process.is_held()));
        }
        state.processes.push(Arc::downgrade(process));
        self.changed.notify_one();
    }

    /// Releases all processes, and ends [`Self::run`].
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for process in state.processes.drain(..).filter_map(|process| process.upgrade()) {
            process.release(None);
        }
        self.changed.notify_one();
    }

    /// Releases processes at their deadlines, until [`Self::close`].
    pub fn run(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let now = clock::monotonic();
            let mut next = u64::MAX;
            state.processes.retain(|process| {
                let Some(process) = process.upgrade().filter(|process| process.is_held()) else {
                    return false;
                };
                if process.deadline <= now {
                    process.release(None);
                    return false;
                }
                next = next.min(process.deadline);
                true
            });
            state = if next == u64::MAX {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                let left = Duration::from_nanos(next - now);
                let waited = self.changed.wait_timeout(state, left);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }
}

/// Creates a pipe for [`HeldProcess::send_core`]. Returns the worker's end and the daemon's.
pub(super) fn core_pipe() -> io::Result<(OwnedFd, File)> {
    let (reading, writing) = io::pipe()?;
    Ok((reading.into(), File::from(OwnedFd::from(writing))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn hold(limit: Duration) -> (Arc<HeldProcess>, io::PipeWriter, Connection) {
        let (reading, writing) = io::pipe().unwrap();
        let (ours, theirs) = Connection::pair().unwrap();
        let process = HeldProcess::new(HoldRequest {
            crash: Specifiers::default(),
            core: reading.into(),
            holder: Holder::Handler(ours),
            user: User::ROOT,
            received: clock::monotonic(),
            limit,
            chain: true,
        });
        (Arc::new(process), writing, theirs)
    }

    #[test]
    fn timer_releases_process_at_its_deadline() {
        let processes = Arc::new(HeldProcesses::default());
        let timer = {
            let processes = Arc::clone(&processes);
            std::thread::spawn(move || processes.run())
        };
        let (late, _, handler) = hold(Duration::from_millis(50));
        let (later, _pipe, _handler) = hold(Duration::from_secs(60));
        processes.add(&later);
        processes.add(&late);
        handler.set_timeout(Duration::from_secs(10)).unwrap();
        let begun = std::time::Instant::now();
        let (reply, _) = handler.receive::<Reply>().unwrap();
        assert!(
            begun.elapsed() >= Duration::from_millis(40),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!((reply.taken, late.is_held(), later.is_held()), (0, false, true));
        processes.close();
        timer.join().unwrap();
        assert!(!later.is_held());
    }

    #[test]
    fn handler_receives_the_read_bytes_once() {
        let (process, _pipe, handler) = hold(Duration::from_secs(60));
        process.release(Some(&Sealed::of(&[b"head"]).unwrap()));
        process.release(Some(&Sealed::of(&[b"again"]).unwrap()));
        let (reply, file) = handler.receive::<Reply>().unwrap();
        let mut taken = Vec::new();
        File::from(file.unwrap()).read_to_end(&mut taken).unwrap();
        assert_eq!((reply.taken, taken.as_slice()), (4, &b"head"[..]));
        assert!(handler.receive::<Reply>().is_err());
    }

    #[test]
    fn rest_of_core_is_copied_to_the_pipe() {
        use std::io::Write;
        let (process, mut writing, _handler) = hold(Duration::from_secs(60));
        let (reading, to) = core_pipe().unwrap();
        writing.write_all(b"the core").unwrap();
        drop(writing);
        process.send_core(&to);
        drop(to);
        let mut got = String::new();
        File::from(reading).read_to_string(&mut got).unwrap();
        assert_eq!(got, "the core");
    }
}
