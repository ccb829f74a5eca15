//! What can go wrong while recording.

use backtrail_pt::Pid;
use std::io;
use std::path::PathBuf;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

/// Why nothing was recorded, or the recording ended before its time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no program to run, and no process to attach to.
    #[error("there is nothing to record; name a program after `--`, or a process")]
    NoCommand,
    /// The program could not be started.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// Its name as given.
        program: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A process could not be attached to.
    #[error("cannot attach to process {pid}: {source}{hint}")]
    Attach {
        /// The process.
        pid: Pid,
        /// The kernel's answer.
        source: io::Error,
        /// What to do about it, with a leading "; ", or nothing.
        hint: String,
    },
    /// Crashes are kept of a recording that is to be kept whole.
    #[error("a recording that keeps crashes alone keeps the newest part of each thread; give it a ring")]
    NoRing,
    /// The program is not 64-bit.
    #[error("process {0} runs 32-bit code, which cannot be recorded; build the program for x86-64")]
    Not64Bit(Pid),
    /// A ptrace request failed that cannot fail on a stopped thread.
    #[error("cannot {action} thread {tid}: {source}")]
    Ptrace {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which thread.
        tid: u32,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Something of the machine could not be used.
    #[error("cannot {action}: {source}")]
    System {
        /// What was tried, as a verb.
        action: &'static str,
        /// The answer.
        source: io::Error,
    },
    /// All file descriptors were in use.
    #[error("{source}: the recorder may have {limit} files open; raise its limit (ulimit -n)")]
    Descriptors {
        /// How many there may be.
        limit: u64,
        /// What could not be done.
        source: Box<Error>,
    },
    /// The bundle could not be written.
    #[error(transparent)]
    Bundle(#[from] backtrail_bundle::Error),
}

impl Error {
    /// Whether outside input was refused. Recording reads none but the running program.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Bundle(error) if error.is_refused())
    }

    /// Whether the thread that something was asked of is gone: it was killed meanwhile.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Ptrace { source, .. } if source.raw_os_error() == Some(libc::ESRCH))
    }

    /// Says of an error for want of descriptors how many the recorder may have.
    pub(crate) fn explained(self, limit: u64) -> Self {
        match self.is_out_of_descriptors() {
            true => Self::Descriptors {
                limit,
                source: Box::new(self),
            },
            false => self,
        }
    }

    /// Whether the recorder had no file descriptor left. (The program's own are another matter.)
    fn is_out_of_descriptors(&self) -> bool {
        let mut source = match self {
            Self::Ptrace { .. } | Self::Descriptors { .. } => None,
            other => std::error::Error::source(other),
        };
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<io::Error>() {
                return error.raw_os_error() == Some(libc::EMFILE);
            }
            source = error.source();
        }
        false
    }

    /// Whether recording had begun: what there is can be saved.
    pub(crate) fn is_of_running_program(&self) -> bool {
        !matches!(self, Self::Spawn { .. } | Self::Not64Bit(_))
    }

    /// For `map_err` on I/O.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
