//! How the program exits: one sentence on stderr, and an exit status.

use crate::interrupt;
use crate::terminal;
use backtrail_console::batch::BatchError;
use std::fmt::Display;
use std::process::ExitCode;

/// The reason why a command failed.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
    closed_pipe: bool,
}

impl Failure {
    /// Builds a failure with status 1: the operation failed.
    pub fn failed(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 1,
            closed_pipe: false,
        }
    }

    /// Builds a failure with status 2: wrong usage that the argument parser cannot detect.
    pub fn usage(message: impl Display) -> Self {
        Self {
            status: 2,
            ..Self::failed(message)
        }
    }

    /// Builds a failure with status 3 if the input was refused, else with status 1.
    pub fn of(message: impl Display, refused: bool) -> Self {
        Self {
            status: if refused { 3 } else { 1 },
            ..Self::failed(message)
        }
    }

    /// Returns the exit status.
    #[cfg(feature = "hub")]
    pub fn status(&self) -> u8 {
        self.status
    }

    /// Returns the sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Builds the failure for a canceled command, with the status that shells use for the signal.
    pub fn canceled(message: impl Display) -> Self {
        Self {
            status: interrupt::status().unwrap_or(1),
            ..Self::failed(message)
        }
    }

    /// Returns whether the reader of our output closed its end of the pipe.
    pub fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }

    /// Prints the message on one line, whatever it contains, and returns the status.
    pub fn report(&self) -> ExitCode {
        terminal::print_error(&self.message.replace(['\n', '\r', '\t'], " "));
        ExitCode::from(self.status)
    }
}

macro_rules! from_crate_error {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of(&error, error.is_refused())
            }
        }
    )*};
}

from_crate_error!(backtrail_recorder::Error);
#[cfg(feature = "collector")]
from_crate_error!(backtrail_collector::Error);

impl From<backtrail_bundle::Error> for Failure {
    fn from(error: backtrail_bundle::Error) -> Self {
        match error {
            backtrail_bundle::Error::Canceled => Self::canceled(error),
            error => Self::of(&error, error.is_refused()),
        }
    }
}

impl From<backtrail_debugger::Error> for Failure {
    fn from(error: backtrail_debugger::Error) -> Self {
        match error {
            backtrail_debugger::Error::Canceled => Self::canceled(error),
            error => Self::of(&error, error.is_refused()),
        }
    }
}

impl From<BatchError> for Failure {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Debugger(error) => error.into(),
            BatchError::Output(error) => error.into(),
            error => Self::failed(error),
        }
    }
}

impl From<backtrail_export::Error> for Failure {
    fn from(error: backtrail_export::Error) -> Self {
        match error {
            backtrail_export::Error::Debugger(error) => error.into(),
            error => Self {
                closed_pipe: error.is_closed_pipe(),
                ..Self::failed(error)
            },
        }
    }
}

#[cfg(feature = "hub")]
impl From<backtrail_report::client::Error> for Failure {
    fn from(error: backtrail_report::client::Error) -> Self {
        match error {
            backtrail_report::client::Error::Canceled => Self::canceled(error),
            backtrail_report::client::Error::Address { .. } | backtrail_report::client::Error::Link(_) => {
                Self::usage(error)
            }
            error => Self::failed(error),
        }
    }
}

#[cfg(feature = "profile")]
impl From<backtrail_profile::Error> for Failure {
    fn from(error: backtrail_profile::Error) -> Self {
        match error {
            backtrail_profile::Error::Io(error) => error.into(),
            error => Self::of(&error, error.is_refused()),
        }
    }
}

#[cfg(feature = "profiler")]
impl From<backtrail_profiler::Error> for Failure {
    fn from(error: backtrail_profiler::Error) -> Self {
        Self::failed(error)
    }
}

impl From<std::io::Error> for Failure {
    /// The only I/O of this crate itself is writing to stdout.
    fn from(error: std::io::Error) -> Self {
        let closed_pipe = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self {
            closed_pipe,
            ..Self::failed(format_args!("cannot write the output: {error}"))
        }
    }
}
