//! Lets the daemon read the core without holding the process.
//!
//! The kernel holds a process as long as any process has the core pipe open. So the daemon gets the
//! end of another pipe, and the handler copies the core into it. When the handler ends, the process
//! is released, regardless of the daemon.

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// Maximum bytes that are moved at once.
const CHUNK: usize = 1 << 20;

/// The pipe that carries the core to the daemon.
#[derive(Debug)]
pub(super) struct CorePipe {
    reading: PipeReader,
    /// `None`: the core has ended.
    writing: Option<PipeWriter>,
    moved: u64,
}

impl CorePipe {
    /// Creates the pipe.
    pub(super) fn new() -> io::Result<Self> {
        let (reading, writing) = io::pipe()?;
        Ok(Self {
            reading,
            writing: Some(writing),
            moved: 0,
        })
    }

    /// Returns the daemon's end.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.reading.as_fd()
    }

    /// Moves the core until `answer` is readable.
    ///
    /// # Errors
    /// When the answer does not arrive until `deadline`, or the core cannot be moved.
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
                // If the pipe has space, wait for more of the core. Otherwise wait for space.
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

    /// Moves available bytes, as far as the pipe has space.
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

    /// Returns the bytes that the daemon left in the pipe. `None`: these and the `taken` bytes,
    /// which the daemon returned, are not all of the core.
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

/// Moves available bytes from one pipe to another without waiting (splice(2)).
fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> nix::Result<usize> {
    let none = std::ptr::null_mut();
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: both descriptors are open while they are borrowed, and the kernel gets no memory.
    let moved = unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), none, CHUNK, flags) };
    Errno::result(moved).map(|moved| usize::try_from(moved).unwrap_or(0))
}

/// Returns the time until `deadline`. It is never zero, because sockets interpret zero as no
/// timeout.
///
/// # Errors
/// When the deadline has passed.
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

    /// Writes a core of `len` bytes as the kernel does.
    fn core(len: usize) -> (PipeReader, std::thread::JoinHandle<()>) {
        let (reading, mut writing) = io::pipe().unwrap();
        let write = move || {
            let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            // The reader may have closed its end.
            let _ = writing.write_all(&bytes);
        };
        (reading, std::thread::spawn(write))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    #[test]
    fn unread_bytes_are_returned() {
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
    fn silent_daemon_loses_no_bytes_at_the_deadline() {
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
    fn unreturned_bytes_are_reported_as_lost() {
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
    fn short_core_is_moved_completely() {
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
