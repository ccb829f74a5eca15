//! Formats of other tools.

pub mod folded;
pub mod pprof;
pub mod speedscope;

use crate::profile::Profile;
use crate::{Error, Result};

/// Reads a profile of a format that its first bytes decide: pprof, packed or not, or folded stacks.
///
/// # Errors
///
/// Those of the format, and [`Error::Malformed`] if the format is not known.
pub fn read(bytes: &[u8]) -> Result<Profile> {
    if bytes.starts_with(b"PERFILE2") {
        return Err(Error::Malformed {
            format: "perf.data",
            problem: "is not read; convert it to pprof or to folded stacks".to_owned(),
        });
    }
    let is_text = |byte: &u8| !matches!(byte, 0..=8 | 14..=31);
    match bytes.iter().take(4096).all(is_text) {
        true => folded::read(bytes),
        false => pprof::read(bytes),
    }
}
