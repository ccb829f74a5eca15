//! Limits of what a reader accepts.

use crate::profile::Profile;
use crate::stacks::Stacks;
use crate::{Error, Result};

/// Limits of what a reader of pprof, OTLP, JFR and folded stacks accepts. A short message may
/// become a large profile, because its tables are packed and its samples share their stacks.
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
    /// The estimated bytes of the profile's texts, functions, frames and labels.
    pub tables: usize,
}

impl ReadLimits {
    /// The limits of files on this machine.
    pub const FILE: Self = Self {
        bytes: 1 << 30,
        samples: 1 << 27,
        stacks: 1 << 27,
        tables: usize::MAX,
    };

    /// The limits of messages of other machines. A reader stays below a gigabyte of memory.
    pub const PUSH: Self = Self {
        bytes: 1 << 27,
        samples: 4_000_000,
        stacks: 1 << 23,
        tables: 1 << 28,
    };

    /// Returns a profile without samples, which has the limit of stacks.
    pub(crate) fn profile(&self) -> Profile {
        Profile {
            stacks: Stacks::with_most(self.stacks),
            ..Profile::default()
        }
    }

    /// Checks the size of a profile.
    pub(crate) fn check(&self, profile: &Profile) -> Result<()> {
        if profile.samples.len() > self.samples {
            return Err(Error::TooManySamples { most: self.samples });
        }
        if tables_size(profile) > self.tables {
            return Err(Error::TooManyNames {
                most: self.tables >> 20,
            });
        }
        Ok(())
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

/// Returns the estimated bytes of the tables of a profile, without the contents of texts.
fn tables_size(profile: &Profile) -> usize {
    let entries =
        profile.functions.len() + profile.frames.len() + profile.modules.len() + profile.threads.len();
    profile.strings.len() * 96 + profile.label_sets.len() * 120 + entries * 80
}
