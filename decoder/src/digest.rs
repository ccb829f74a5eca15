//! A digest of a history, to compare decoders.

use backtrail_pt::Avma;

/// FNV-1a, 64 bit, over instruction pointers, each as 8 little-endian bytes.
///
/// The start value is 1469598103934665603, that of the reference digests. It is FNV's published
/// offset basis, 14695981039346656037, without its last digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

const START: u64 = 1_469_598_103_934_665_603;
const PRIME: u64 = 0x100_0000_01b3;

impl Default for Digest {
    fn default() -> Self {
        Self(START)
    }
}

impl Digest {
    /// Adds the next instruction pointer.
    pub fn push(&mut self, pc: Avma) {
        for byte in pc.0.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(PRIME);
        }
    }

    /// Returns the digest.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_the_reference_one() {
        assert_eq!(Digest::default().value(), START);
        let mut digest = Digest::default();
        digest.push(Avma(0));
        assert_eq!(
            digest.value(),
            (0..8).fold(START, |state, _| state.wrapping_mul(PRIME))
        );
    }
}
