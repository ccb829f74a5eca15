//! The keys of stored translations.

use std::hash::{DefaultHasher, Hasher};

/// A hash of the source code of the translator.
const FINGERPRINT: &str = env!("BACKTRAIL_TRANSLATOR");
/// The end of file names.
pub(super) const EXTENSION: &str = ".code";

/// Identifies the code of a mapping, and how it was translated.
///
/// Different code may have the same key: a unit is compared with the code of the process before it
/// is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::translate) struct UnitKey(pub(super) [u8; 16]);

impl UnitKey {
    /// Builds the key of a mapping from parts that depend on its file and on the translation.
    pub(in crate::translate) fn of(parts: &[&[u8]]) -> Self {
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u8(seed);
            hasher.write(FINGERPRINT.as_bytes());
            for part in parts {
                hasher.write(part);
                hasher.write_usize(part.len());
            }
            hasher.finish()
        };
        let both = u128::from(half(0)) << 64 | u128::from(half(1));
        Self(both.to_le_bytes())
    }

    pub(super) fn file_name(self) -> String {
        format!("{:032x}{EXTENSION}", u128::from_le_bytes(self.0))
    }
}
