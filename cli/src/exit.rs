//! How the program ends: one sentence on stderr, and the status that goes with it.

use crate::interrupt;
use crate::output;
use std::fmt::Display;
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
    closed_pipe: bool,
}

impl Failure {
    /// Status 1: it could not be done.
    pub fn failed(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            status: 1,
            closed_pipe: false,
        }
    }

    /// Status 2: the command was used wrongly in a way the argument parser cannot see.
    pub fn usage(message: impl Display) -> Self {
        Self {
            status: 2,
            ..Self::failed(message)
        }
    }

    /// Status 3 when the input is to blame, else 1.
    pub fn of(message: impl Display, refused: bool) -> Self {
        Self {
            status: if refused { 3 } else { 1 },
            ..Self::failed(message)
        }
    }

    /// Ctrl-C or SIGTERM ended it: the status that shells give to what these end.
    fn canceled(message: impl Display) -> Self {
        Self {
            status: interrupt::status().unwrap_or(1),
            ..Self::failed(message)
        }
    }

    /// The reader of our output closed its end.
    pub fn is_closed_pipe(&self) -> bool {
        self.closed_pipe
    }

    /// Prints the sentence, on one line whatever came from outside, and gives the status.
    pub fn report(&self) -> ExitCode {
        output::complain(&self.message.replace(['\n', '\r', '\t'], " "));
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

from_crate_error!(backtrail_collector::Error, backtrail_recorder::Error);

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
            backtrail_debugger::Error::Output(error) => error.into(),
            backtrail_debugger::Error::Canceled => Self::canceled(error),
            error => Self::of(&error, error.is_refused()),
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

impl From<std::io::Error> for Failure {
    /// Writing to stdout is the only I/O of this crate itself.
    fn from(error: std::io::Error) -> Self {
        let closed_pipe = error.kind() == std::io::ErrorKind::BrokenPipe;
        Self {
            closed_pipe,
            ..Self::failed(format_args!("could not write the output: {error}"))
        }
    }
}
