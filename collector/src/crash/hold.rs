//! A process that is kept while its crash is read, and the timer that lets it go.
//!
//! The kernel keeps the process as long as anybody has the reading end of its core's pipe, or the
//! handler lives. Both end with [`Hold::release`], which the timer calls at the deadline, whatever
//! else is going on.

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

/// Who keeps a process that crashes.
#[derive(Debug)]
pub enum Waiting {
    /// The handler, at the other end of this.
    Handler(Connection),
    /// The kernel, until the core's connection is closed.
    Kernel,
}

/// A process that is kept.
#[derive(Debug)]
pub struct Hold {
    /// What the kernel told; a thread or signal of 0 is not known.
    pub crash: Specifiers,
    /// Who answers for it.
    pub user: User,
    /// When the request came (`CLOCK_MONOTONIC`).
    pub received: u64,
    /// When it is let go at the latest (`CLOCK_MONOTONIC`).
    pub deadline: u64,
    /// Whether the handler passes the core on.
    pub chain: bool,
    kept: Mutex<Option<Kept>>,
}

#[derive(Debug)]
struct Kept {
    core: Arc<File>,
    waiting: Waiting,
}

impl Hold {
    /// A process whose core comes through `core`.
    #[must_use]
    pub fn new(
        crash: Specifiers,
        (core, waiting): (OwnedFd, Waiting),
        user: User,
        times: (u64, Duration),
        chain: bool,
    ) -> Self {
        let (received, limit) = times;
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self {
            crash,
            user,
            received,
            deadline: received.saturating_add(limit),
            chain,
            kept: Mutex::new(Some(Kept {
                core: Arc::new(File::from(core)),
                waiting,
            })),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the process is still kept.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.kept().is_some()
    }

    /// Reads the head of the core; the sentence says why it is not whole.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn read_head(&self) -> io::Result<(Sealed, Option<String>)> {
        let core = self.kept().as_ref().map(|kept| Arc::clone(&kept.core));
        match core {
            Some(core) => head::read(&core, self.deadline),
            None => {
                let why = "the process was let go before its core was read".to_owned();
                Ok((Sealed::of(&[])?, Some(why)))
            }
        }
    }

    /// Writes what is left of the core into a pipe, until the deadline at the latest.
    pub(super) fn send_core(&self, to: &File) {
        const PIECE: usize = 1 << 20;
        let Some(core) = self.kept().as_ref().map(|kept| Arc::clone(&kept.core)) else {
            return;
        };
        use nix::fcntl::{SpliceFFlags, splice};
        // Neither a worker that does not read nor a kernel that does not write keeps us here.
        let flags = SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
        while self.is_kept()
            && head::wait(&core, PollFlags::POLLIN, self.deadline).is_ok()
            && head::wait(to, PollFlags::POLLOUT, self.deadline).is_ok()
        {
            match splice(&*core, None, to, None, PIECE, flags) {
                Ok(1..) | Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => std::thread::sleep(Duration::from_millis(1)),
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Lets the process go; the handler gets what was taken of the core, if it is to pass it on.
    /// Only the first call counts.
    pub fn release(&self, taken: Option<&Sealed>) {
        let Some(kept) = self.kept().take() else {
            return;
        };
        let Waiting::Handler(connection) = kept.waiting else {
            return;
        };
        let taken = taken.filter(|_| self.chain);
        let reply = Reply {
            taken: taken.map_or(0, Sealed::size),
            ..Reply::default()
        };
        // A handler that does not read at once is gone, or will see the end of the connection.
        let _ = connection.set_timeout(Duration::from_millis(20));
        let _ = connection.send(&reply, taken.map(AsFd::as_fd));
    }
}

/// The processes that are kept, each with its deadline.
#[derive(Debug, Default)]
pub struct Holds {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    holds: Vec<Weak<Hold>>,
    is_closed: bool,
}

impl Holds {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a process go at its deadline, if nobody does before.
    pub fn add(&self, hold: &Arc<Hold>) {
        let mut state = self.lock();
        if state.holds.len() == state.holds.capacity() {
            state
                .holds
                .retain(|hold| hold.upgrade().is_some_and(|hold| hold.is_kept()));
        }
        state.holds.push(Arc::downgrade(hold));
        self.changed.notify_one();
    }

    /// Lets all of them go, and ends [`Self::run`].
    pub fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for hold in state.holds.drain(..).filter_map(|hold| hold.upgrade()) {
            hold.release(None);
        }
        self.changed.notify_one();
    }

    /// Lets processes go at their deadlines, until [`Self::close`].
    pub fn run(&self) {
        let mut state = self.lock();
        while !state.is_closed {
            let now = clock::monotonic();
            let mut next = u64::MAX;
            state.holds.retain(|hold| {
                let Some(hold) = hold.upgrade().filter(|hold| hold.is_kept()) else {
                    return false;
                };
                if hold.deadline <= now {
                    hold.release(None);
                    return false;
                }
                next = next.min(hold.deadline);
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

/// A pipe for [`Hold::send_core`]: the worker's end, and ours.
pub(super) fn core_pipe() -> io::Result<(OwnedFd, File)> {
    let (reading, writing) = io::pipe()?;
    Ok((reading.into(), File::from(OwnedFd::from(writing))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn hold(limit: Duration) -> (Arc<Hold>, io::PipeWriter, Connection) {
        let (reading, writing) = io::pipe().unwrap();
        let (ours, theirs) = Connection::pair().unwrap();
        let kept = (reading.into(), Waiting::Handler(ours));
        let times = (clock::monotonic(), limit);
        let hold = Hold::new(Specifiers::default(), kept, User::ROOT, times, true);
        (Arc::new(hold), writing, theirs)
    }

    #[test]
    fn the_timer_lets_a_process_go_at_its_deadline() {
        let holds = Arc::new(Holds::default());
        let timer = {
            let holds = Arc::clone(&holds);
            std::thread::spawn(move || holds.run())
        };
        let (late, _, handler) = hold(Duration::from_millis(50));
        let (later, _pipe, _handler) = hold(Duration::from_secs(60));
        holds.add(&later);
        holds.add(&late);
        handler.set_timeout(Duration::from_secs(10)).unwrap();
        let begun = std::time::Instant::now();
        let (reply, _) = handler.receive::<Reply>().unwrap();
        assert!(
            begun.elapsed() >= Duration::from_millis(40),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!((reply.taken, late.is_kept(), later.is_kept()), (0, false, true));
        holds.close();
        timer.join().unwrap();
        assert!(!later.is_kept());
    }

    #[test]
    fn what_was_taken_goes_to_the_handler_once() {
        let (hold, _pipe, handler) = hold(Duration::from_secs(60));
        hold.release(Some(&Sealed::of(&[b"head"]).unwrap()));
        hold.release(Some(&Sealed::of(&[b"again"]).unwrap()));
        let (reply, file) = handler.receive::<Reply>().unwrap();
        let mut taken = Vec::new();
        File::from(file.unwrap()).read_to_end(&mut taken).unwrap();
        assert_eq!((reply.taken, taken.as_slice()), (4, &b"head"[..]));
        assert!(handler.receive::<Reply>().is_err());
    }

    #[test]
    fn the_rest_of_a_core_is_passed_through() {
        use std::io::Write;
        let (hold, mut writing, _handler) = hold(Duration::from_secs(60));
        let (reading, to) = core_pipe().unwrap();
        writing.write_all(b"the core").unwrap();
        drop(writing);
        hold.send_core(&to);
        drop(to);
        let mut got = String::new();
        File::from(reading).read_to_string(&mut got).unwrap();
        assert_eq!(got, "the core");
    }
}
