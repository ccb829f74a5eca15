//! The errors of reading and writing a profile.

/// The reason why a profile could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("cannot read or write the profile: {0}")]
    Io(#[from] std::io::Error),
    /// A table exceeds 2^32 entries.
    #[error("the profile has more than 2^32 different entries of one kind")]
    Full,
    /// The input exceeds the limit of its format's reader.
    #[error("the profile exceeds the limit of {limit} bytes when unpacked")]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// The stacks of the input have more different callers than a reader accepts.
    #[error("the stacks have more than {most} different callers; send shorter parts of the time")]
    TooManyStacks {
        /// The limit.
        most: usize,
    },
    /// The input has more samples than a reader accepts.
    #[error("the profile has more than {most} samples; send shorter parts of the time")]
    TooManySamples {
        /// The limit.
        most: usize,
    },
    /// The names, frames and labels of the input take more memory than a reader accepts.
    #[error(
        "the different names, frames and labels take more than {most} MiB; send shorter parts of the time"
    )]
    TooManyNames {
        /// The limit in MiB.
        most: usize,
    },
    /// A format has no place for a weight.
    #[error("{format} has no place for a sample of the weight {weight}; export another format")]
    TooHeavy {
        /// The name of the format.
        format: &'static str,
        /// The weight.
        weight: i64,
    },
    /// A weight does not fit another unit.
    #[error(
        "a sample weighs {weight} {unit}, which is more {base} than 64 bits hold; correct its weight or its unit"
    )]
    Weight {
        /// The weight.
        weight: i64,
        /// Its unit.
        unit: String,
        /// The other unit.
        base: &'static str,
    },
    /// The input is not of its format.
    #[error("{format}: {problem}")]
    Malformed {
        /// The name of the format.
        format: &'static str,
        /// The problem and its place.
        problem: String,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns whether the input was refused, as opposed to a failure of the machine.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !matches!(self, Self::Io(_))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Io(error.into())
    }
}
