//! A program that is started for a recording. It waits before its `execve` until it is observed.

use crate::{Error, Result};
use backtrail_pt::Pid;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid as RawPid;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// The program exited with this status.
    Exited(i32),
    /// This signal killed the program.
    Killed(i32),
}

impl From<ExitStatus> for ProgramEnd {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Killed(signal),
            None => Self::Exited(status.code().unwrap_or(0)),
        }
    }
}

/// A process that becomes the program when it is released.
#[derive(Debug)]
pub(crate) struct WaitingProgram {
    name: String,
    pid: Pid,
    /// `None`: it was released.
    release: Option<PipeWriter>,
    spawner: Option<JoinHandle<io::Result<Child>>>,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct RunningProgram {
    child: Child,
}

impl WaitingProgram {
    /// Starts a process that waits.
    ///
    /// # Errors
    ///
    /// [`Error::Program`] if no process can be started.
    pub fn start(arguments: &[OsString]) -> Result<Self> {
        let name = arguments
            .first()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let failed = |error| Error::Program {
            program: name.clone(),
            error,
        };
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let (release_reader, release) = io::pipe().map_err(failed)?;
        let arguments = arguments.to_vec();
        let release_fd = release.as_raw_fd();
        // `spawn` only returns after `execve`, and the events are opened before that.
        let spawner = std::thread::Builder::new()
            .name("program".to_owned())
            .spawn(move || spawn(&arguments, pid_writer, release_reader, release_fd))
            .map_err(failed)?;
        let mut pid = [0; 4];
        if pid_reader.read_exact(&mut pid).is_err() {
            let error = match spawner.join() {
                Ok(Err(error)) => error,
                _ => io::Error::other("it did not report its process id"),
            };
            return Err(failed(error));
        }
        Ok(Self {
            pid: Pid(u32::from_ne_bytes(pid)),
            name,
            release: Some(release),
            spawner: Some(spawner),
        })
    }

    /// Returns the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the process become the program.
    ///
    /// # Errors
    ///
    /// [`Error::Program`] if it cannot, as for a missing file.
    pub fn release(mut self) -> Result<RunningProgram> {
        let release = self.release.take();
        let written = release.map_or(Ok(()), |mut release| release.write_all(&[1]));
        let spawned = match (written, self.spawner.take().map(JoinHandle::join)) {
            (Ok(()), Some(Ok(spawned))) => spawned,
            (Err(error), _) => Err(error),
            _ => Err(io::Error::other("the thread that starts it panicked")),
        };
        let child = spawned.map_err(|error| Error::Program {
            program: std::mem::take(&mut self.name),
            error,
        })?;
        Ok(RunningProgram { child })
    }
}

impl Drop for WaitingProgram {
    /// Ends a process that was not released, and waits for its end.
    fn drop(&mut self) {
        drop(self.release.take());
        if let Some(Ok(Ok(mut child))) = self.spawner.take().map(JoinHandle::join) {
            // The process has ended by itself.
            let _ = child.wait();
        }
    }
}

/// Runs the program after it was released. Without a release, the process ends, and its parent sees
/// no error.
fn spawn(
    arguments: &[OsString],
    pid_writer: PipeWriter,
    release: PipeReader,
    release_writer: RawFd,
) -> io::Result<Child> {
    let (program, arguments) = arguments
        .split_first()
        .ok_or_else(|| io::Error::other("no program is named"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    let (to, from) = (pid_writer.as_raw_fd(), release.as_raw_fd());
    let wait = move || {
        // SAFETY: close, getpid, write, read and _exit are async-signal-safe, and the buffers are
        // those of this frame. The descriptors are copies of this process. The one that is closed
        // would keep the pipe open, so that the end of the recorder would not be noticed.
        unsafe {
            libc::close(release_writer);
            let pid = libc::getpid().to_ne_bytes();
            let mut byte = [0u8];
            let is_released = libc::write(to, pid.as_ptr().cast(), pid.len()) == 4
                && libc::read(from, byte.as_mut_ptr().cast(), 1) == 1;
            if !is_released {
                // An error would be written to the recorder, which may be gone, and this would
                // abort with a message.
                libc::_exit(1);
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls that are safe after fork. It neither allocates
    // nor takes locks.
    unsafe { command.pre_exec(wait) };
    command.spawn()
}

impl RunningProgram {
    /// Returns how the program ended, or `None` while it runs.
    pub fn end(&mut self) -> Option<ProgramEnd> {
        self.child.try_wait().ok().flatten().map(ProgramEnd::from)
    }

    /// Ends the program if it still runs: by SIGTERM, and after a second by SIGKILL.
    pub fn terminate(&mut self) -> Option<ProgramEnd> {
        const PATIENCE: Duration = Duration::from_secs(1);
        let raw = RawPid::from_raw(self.child.id().cast_signed());
        if let Some(end) = self.end() {
            return Some(end);
        }
        // The program may end at this moment. Its process id stays until `wait`.
        let _ = kill(raw, Signal::SIGTERM);
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if let Some(end) = self.end() {
                return Some(end);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        self.child.wait().ok().map(ProgramEnd::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn program_waits_for_its_release() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made");
        let waiting = WaitingProgram::start(&arguments(&["touch", file.to_str().unwrap()])).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!file.exists());
        let pid = waiting.pid();
        let mut running = waiting.release().unwrap();
        assert_eq!(running.child.id(), pid.0);
        while running.end().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(running.end(), Some(ProgramEnd::Exited(0)));
        assert!(file.exists());
    }

    #[test]
    fn process_without_release_ends() {
        let waiting = WaitingProgram::start(&arguments(&["sleep", "1000"])).unwrap();
        let pid = waiting.pid();
        drop(waiting);
        // The process was waited for, so that its id is free.
        assert!(kill(RawPid::from_raw(pid.0.cast_signed()), None).is_err());
    }

    #[test]
    fn missing_program_is_an_error() {
        let waiting = WaitingProgram::start(&arguments(&["/nonexistent/program"])).unwrap();
        let error = waiting.release().unwrap_err().to_string();
        assert!(
            error.starts_with("cannot start /nonexistent/program: "),
            "{error}"
        );
    }

    #[test]
    fn running_program_is_terminated() {
        let mut running = WaitingProgram::start(&arguments(&["sleep", "1000"]))
            .unwrap()
            .release()
            .unwrap();
        assert_eq!(running.end(), None);
        assert_eq!(running.terminate(), Some(ProgramEnd::Killed(libc::SIGTERM)));
    }
}
