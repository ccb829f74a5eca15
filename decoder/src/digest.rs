//! One number for a whole history, to compare decoders by.

use backtrail_pt::Avma;

/// FNV-1a, 64 bit, over instruction pointers, each as 8 little-endian bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    /// Takes the next instruction pointer.
    pub fn push(&mut self, pc: Avma) {
        for byte in pc.0.to_le_bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    /// The number.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0
    }
}
