//! The signature of a crash by addresses, which needs no symbol.

use crate::frame::AddressFrame;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write as _};

/// The frames that count, from the innermost.
const FRAMES: usize = 8;

/// The SHA-256 of the innermost frames of a stack, as 64 hexadecimal digits.
///
/// Two crashes with one signature have the same code at the same places. Other builds of the
/// program have other signatures. The hub maps each to a group of crashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AddressSignature(String);

impl AddressSignature {
    /// Returns the signature of a stack, innermost frame first. `None`: the stack is empty.
    #[must_use]
    pub fn of(frames: &[AddressFrame]) -> Option<Self> {
        if frames.is_empty() {
            return None;
        }
        let mut digest = Sha256::new();
        for frame in frames.iter().take(FRAMES) {
            // Lengths keep the fields apart. A module without a build id counts by its name.
            let (kind, key) = match &frame.build_id {
                Some(build_id) => (b'b', build_id),
                None => (b'n', &frame.module),
            };
            digest.update([kind]);
            digest.update((key.len() as u64).to_le_bytes());
            digest.update(key);
            digest.update(frame.offset.to_le_bytes());
        }
        let mut text = String::with_capacity(64);
        for byte in digest.finalize() {
            let _ = write!(text, "{byte:02x}");
        }
        Some(Self(text))
    }

    /// Returns the digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AddressSignature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, build_id: Option<&str>, offset: u64) -> AddressFrame {
        AddressFrame {
            module: module.to_owned(),
            build_id: build_id.map(str::to_owned),
            offset,
        }
    }

    #[test]
    fn paths_of_a_build_do_not_matter() {
        let one = AddressSignature::of(&[frame("/opt/a/ledger", Some("ab12"), 7)]);
        assert_eq!(
            one,
            AddressSignature::of(&[frame("/srv/b/ledger", Some("ab12"), 7)])
        );
        assert_ne!(
            one,
            AddressSignature::of(&[frame("/opt/a/ledger", Some("ab12"), 8)])
        );
        assert_ne!(one, AddressSignature::of(&[frame("ab12", None, 7)]));
    }

    #[test]
    fn only_the_eight_innermost_frames_count() {
        let stack: Vec<_> = (0..12).map(|at| frame("a", Some("ab"), at)).collect();
        let mut other = stack.clone();
        other[8].offset = 99;
        assert_eq!(AddressSignature::of(&stack), AddressSignature::of(&other));
        other[7].offset = 99;
        assert_ne!(AddressSignature::of(&stack), AddressSignature::of(&other));
    }
}
