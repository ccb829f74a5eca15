//! Data that an analysis leaves out.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Data that an analysis leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Redaction {
    /// The command line.
    Arguments,
    /// Values of variables, and messages of failed assertions.
    Values,
}

impl Redaction {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Arguments => "arguments",
            Self::Values => "values",
        }
    }
}
