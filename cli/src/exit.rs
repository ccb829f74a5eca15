//! How the program ends: one sentence on stderr, and the status that goes with it.

use std::fmt::Display;
use std::process::ExitCode;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Status 1: it could not be done.
    pub fn failed(message: impl Display) -> Self {
        Self { message: message.to_string(), status: 1 }
    }

    /// Status 2: the command was used wrongly in a way the argument parser cannot see.
    pub fn usage(message: impl Display) -> Self {
        Self { message: message.to_string(), status: 2 }
    }

    /// Status 3 when the input is to blame, else 1.
    pub fn of(message: impl Display, malformed: bool) -> Self {
        Self { message: message.to_string(), status: if malformed { 3 } else { 1 } }
    }

    /// Prints the sentence, on one line whatever came from outside, and gives the status.
    pub fn report(&self) -> ExitCode {
        let line = self.message.replace(|c: char| c.is_control(), " ");
        eprintln!("backtrail: {line}");
        ExitCode::from(self.status)
    }
}

macro_rules! from_crate_error {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::of(&error, error.is_malformed())
            }
        }
    )*};
}

from_crate_error!(backtrail_bundle::Error, backtrail_debugger::Error, backtrail_recorder::Error);

impl From<std::io::Error> for Failure {
    /// Writing to stdout is the only I/O of this crate itself; a closed pipe is no failure and is
    /// dealt with in `main`.
    fn from(error: std::io::Error) -> Self {
        Self::failed(format_args!("could not write the output: {error}"))
    }
}
