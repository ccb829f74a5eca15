//! Limits of what a reader accepts.

use crate::profile::Profile;
use crate::stacks::Stacks;
use crate::{Error, Result};

/// Limits of what a reader of pprof, OTLP, JFR and folded stacks accepts. A short message may become
/// a large profile, because its tables are packed and its samples share their stacks.
///
/// ```
/// use backtrail_profile::{ReadLimits, format};
///
/// let limits = ReadLimits { samples: 1, ..ReadLimits::PUSH };
/// assert!(format::read_within(b"main 1\n", &limits).is_ok());
/// assert!(format::read_within(b"main 1\nmain 2\n", &limits).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimits {
    /// The bytes of the unpacked profile, and those of its decoded tables.
    pub bytes: usize,
    /// The number of samples.
    pub samples: usize,
    /// The number of stacks, where each caller's stack counts once.
    pub stacks: usize,
}

impl ReadLimits {
    /// The limits of files on this machine.
    pub const FILE: Self = Self {
        bytes: 1 << 30,
        samples: 1 << 27,
        stacks: 1 << 27,
    };

    /// The limits of messages of other machines. A reader stays below a gigabyte of memory.
    pub const PUSH: Self = Self {
        bytes: 1 << 27,
        samples: 4_000_000,
        stacks: 1 << 23,
    };

    /// Returns a profile without samples, which has the limit of stacks.
    pub(crate) fn profile(&self) -> Profile {
        Profile {
            stacks: Stacks::with_most(self.stacks),
            ..Profile::default()
        }
    }

    /// Checks the number of a profile's samples.
    pub(crate) fn check_samples(&self, profile: &Profile) -> Result<()> {
        match profile.samples.len() > self.samples {
            true => Err(Error::TooManySamples { most: self.samples }),
            false => Ok(()),
        }
    }

    /// Checks the bytes that a part of the profile takes.
    pub(crate) fn check_bytes(&self, bytes: usize) -> Result<()> {
        match bytes > self.bytes {
            true => Err(Error::TooLarge {
                limit: self.bytes as u64,
            }),
            false => Ok(()),
        }
    }
}
