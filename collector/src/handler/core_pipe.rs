//! Lets the daemon read the core without its holding the process.
//!
//! The kernel keeps a process for as long as anybody has the core's pipe open. So the daemon gets the end of another
//! pipe, into which the handler moves the core: once the handler ends the process is free, whatever the daemon does.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// No more is moved at once.
const CHUNK: usize = 1 << 20;

/// The core on its way to the daemon.
#[derive(Debug)]
pub(super) struct CorePipe {
    reading: PipeReader,
    /// `None`: the core has ended.
    writing: Option<PipeWriter>,
    moved: u64,
}

impl CorePipe {
    /// Makes the pipe.
    pub(super) fn new() -> io::Result<Self> {
        let (reading, writing) = io::pipe()?;
        Ok(Self {
            reading,
            writing: Some(writing),
            moved: 0,
        })
    }

    /// The end that the daemon gets.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }

    /// Moves the core on until there is something to read at `answer`.
    ///
    /// # Errors
    /// When that does not come until `deadline`, or the core cannot be moved.
    pub(super) fn until_answered(
        &mut self,
        core: BorrowedFd<'_>,
        answer: BorrowedFd<'_>,
        deadline: Instant,
    ) -> io::Result<()> {
        loop {
            let left = remaining(deadline)?;
            let mut waiting = vec![PollFd::new(answer, PollFlags::POLLIN)];
            if let Some(writing) = &self.writing {
                // With room in the pipe for more of the core: wait for that; else for the room.
                let mut room = [PollFd::new(writing.as_fd(), PollFlags::POLLOUT)];
                let has_room = poll(&mut room, PollTimeout::ZERO)? != 0;
                waiting.push(match has_room {
                    true => PollFd::new(core, PollFlags::POLLIN),
                    false => PollFd::new(writing.as_fd(), PollFlags::POLLOUT),
                });
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut waiting, timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_answered = waiting.first().is_some_and(|fd| fd.any() == Some(true));
            if is_answered {
                return Ok(());
            }
            self.move_some(core)?;
        }
    }

    /// Moves what there is, as far as there is room.
    fn move_some(&mut self, core: BorrowedFd<'_>) -> io::Result<()> {
        let Some(writing) = &self.writing else {
            return Ok(());
        };
        match splice(core, writing.as_fd()) {
            Ok(0) => self.writing = None,
            Ok(moved) => self.moved += moved as u64,
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Returns what the daemon has left in the pipe, if that and the `taken` bytes, which it gave back, are all that was
    /// moved; `None`: a part of the core is lost.
    pub(super) fn leftover(self, taken: u64) -> io::Result<Option<Vec<u8>>> {
        let Self {
            mut reading,
            writing,
            moved,
        } = self;
        drop(writing);
        let mut left = Vec::new();
        reading.read_to_end(&mut left)?;
        Ok((taken.checked_add(left.len() as u64) == Some(moved)).then_some(left))
    }
}

/// Moves what there is in one pipe to another, as far as there is room, and does not wait (splice(2)).
fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> nix::Result<usize> {
    let none = std::ptr::null_mut();
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open as long as they are borrowed, and no memory is given to the kernel.
    let moved = unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, CHUNK, flags) };
    Errno::result(moved).map(|moved| usize::try_from(moved).unwrap_or(0))
}

/// The time until `deadline`, never zero, which sockets take for "without end".
///
/// # Errors
/// When there is none.
pub(super) fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A core of so many bytes, written as the kernel does.
    fn core(len: usize) -> (PipeReader, std::thread::JoinHandle<()>) {
        let (reading, mut writing) = io::pipe().unwrap();
        let write = move || {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            // Whoever reads may have seen enough.
            let _ = writing.write_all(&bytes);
        };
        (reading, std::thread::spawn(write))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn what_the_daemon_has_not_read_is_left() {
        const LEN: usize = 3 << 20;
        let (core, kernel) = core(LEN);
        let (answer, mut answering) = io::pipe().unwrap();
        let mut pipe = CorePipe::new().unwrap();
        let mut daemon = PipeReader::from(pipe.end().try_clone_to_owned().unwrap());
        let read = std::thread::spawn(move || {
            let mut head = vec![0; 1 << 20];
            daemon.read_exact(&mut head).unwrap();
            answering.write_all(b"!").unwrap();
            head
        });
        pipe.until_answered(core.as_fd(), answer.as_fd(), soon()).unwrap();
        let mut all = read.join().unwrap();
        all.extend(pipe.leftover(1 << 20).unwrap().unwrap());
        (&core).read_to_end(&mut all).unwrap();
        kernel.join().unwrap();
        assert_eq!(all.len(), LEN);
        assert!(all.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }

    #[test]
    fn a_daemon_that_is_silent_ends_at_the_deadline_and_loses_nothing() {
        let (core, kernel) = core(1 << 20);
        let (answer, _answering) = io::pipe().unwrap();
        let mut pipe = CorePipe::new().unwrap();
        let daemon = pipe.end().try_clone_to_owned().unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        let late = pipe.until_answered(core.as_fd(), answer.as_fd(), deadline);
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let left = pipe.leftover(0).unwrap().unwrap();
        assert!(!left.is_empty());
        drop(core);
        kernel.join().unwrap();
        drop(daemon);
    }

    #[test]
    fn a_part_that_nobody_gave_back_is_told_as_lost() {
        let (core, kernel) = core(100_000);
        let (answer, mut answering) = io::pipe().unwrap();
        let mut pipe = CorePipe::new().unwrap();
        let mut daemon = PipeReader::from(pipe.end().try_clone_to_owned().unwrap());
        let read = std::thread::spawn(move || {
            daemon.read_exact(&mut [0; 1000]).unwrap();
            answering.write_all(b"!").unwrap();
        });
        pipe.until_answered(core.as_fd(), answer.as_fd(), soon()).unwrap();
        read.join().unwrap();
        assert_eq!(pipe.leftover(0).unwrap(), None);
        drop(core);
        kernel.join().unwrap();
    }

    #[test]
    fn a_short_core_is_moved_to_its_end() {
        let (core, kernel) = core(10);
        kernel.join().unwrap();
        let (answer, answering) = io::pipe().unwrap();
        let mut pipe = CorePipe::new().unwrap();
        let mut daemon = PipeReader::from(pipe.end().try_clone_to_owned().unwrap());
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            daemon.read_to_end(&mut all).unwrap();
            drop(answering);
            all
        });
        pipe.until_answered(core.as_fd(), answer.as_fd(), soon()).unwrap();
        assert_eq!(read.join().unwrap().len(), 10);
        assert_eq!(pipe.leftover(10).unwrap(), Some(Vec::new()));
    }
}
