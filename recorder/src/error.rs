//! Errors of the recorder.

use backtrail_pt::Pid;
use std::io;
use std::path::PathBuf;

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason that nothing was recorded, or that recording ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a program to run nor a process to attach to was given.
    #[error("nothing to record; name a program after `--`, or a process to attach to")]
    NoCommand,
    /// The program could not be started.
    #[error("cannot run {}: {source}", program.display())]
    Spawn {
        /// The program name as given.
        program: PathBuf,
        /// The error of exec.
        source: io::Error,
    },
    /// The recorder could not attach to a process.
    #[error("cannot attach to process {pid}: {source}{hint}")]
    Attach {
        /// The process.
        pid: Pid,
        /// The error that the kernel returned.
        source: io::Error,
        /// Advice for the user that begins with "; ", or nothing.
        hint: String,
    },
    /// A process to attach to has ended.
    #[error("process {0} has exited")]
    Exited(Pid),
    /// No thread of a process to attach to has stopped.
    #[error(
        "cannot attach to process {0}: it did not stop, because all its threads wait in the kernel; try again, or \
         see `cat /proc/{0}/wchan`"
    )]
    DoesNotStop(Pid),
    /// A recording of crashes only has no ring.
    #[error("recording only crashes needs a ring for the newest packets of each thread; set its size")]
    NoRing,
    /// Heap events come from translated code only.
    #[error("engine step records no heap events; leave out --heap, or use --engine translate")]
    HeapOfSteps,
    /// Single steps over the breakpoints of uprobes would kill the process.
    #[error(
        "process {0} has breakpoints of uprobes, and single steps over them would kill it; leave out --engine step, \
         or end the tool that set them (perf, bpftrace, or the collector with `[heap]`)"
    )]
    StepsOverUprobes(Pid),
    /// The program is not 64-bit code.
    #[error("process {0} runs 32-bit code, which cannot be recorded; build the program for x86-64")]
    Not64Bit(Pid),
    /// The memory of the program may not be read.
    #[error(
        "process {0} cannot be recorded: its memory may not be read, because its program file is not readable; run \
         the recorder as root, or with CAP_SYS_PTRACE"
    )]
    Unreadable(Pid),
    /// A ptrace request failed that should not fail on a stopped thread.
    #[error("cannot {action} thread {tid}: {source}")]
    Ptrace {
        /// The failed action, as a verb.
        action: &'static str,
        /// The thread.
        tid: u32,
        /// The error that the kernel returned.
        source: io::Error,
    },
    /// A system resource could not be used.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action, as a verb.
        action: &'static str,
        /// The error that the system returned.
        source: io::Error,
    },
    /// All file descriptors were in use.
    #[error("{source}: the recorder may open at most {limit} files; raise the limit (ulimit -n)")]
    Descriptors {
        /// The descriptor limit of the recorder.
        limit: u64,
        /// The original error.
        source: Box<Error>,
    },
    /// The bundle could not be written.
    #[error(transparent)]
    Bundle(#[from] backtrail_bundle::Error),
}

impl Error {
    /// Returns whether input was malformed. The recorder reads no input except the running program.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Bundle(error) if error.is_refused())
    }

    /// Returns whether the thread of a failed ptrace request no longer exists, because it was
    /// killed.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Ptrace { source, .. } if source.raw_os_error() == Some(libc::ESRCH))
    }

    /// Adds the descriptor limit to an error that was caused by a lack of descriptors.
    pub(crate) fn explained(self, limit: u64) -> Self {
        match self.is_out_of_descriptors() {
            true => Self::Descriptors {
                limit,
                source: Box::new(self),
            },
            false => self,
        }
    }

    /// Returns whether the recorder ran out of file descriptors. Errors inside the program do not
    /// count.
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

    /// Returns whether the program was already running, so that there is a recording to save.
    pub(crate) fn is_of_running_program(&self) -> bool {
        !matches!(
            self,
            Self::Spawn { .. }
                | Self::Not64Bit(_)
                | Self::Unreadable(_)
                | Self::DoesNotStop(_)
                | Self::StepsOverUprobes(_)
        )
    }

    /// Builds a [`Self::System`] error, for `map_err` on I/O.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { action, source }
    }
}
