//! A range of memory.

/// A range of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The first address.
    pub address: u64,
    /// The number of bytes.
    pub size: u64,
}

impl MemoryRange {
    /// Returns the common part of two ranges.
    #[must_use]
    pub fn common(self, other: Self) -> Option<Self> {
        if !self.overlaps(other) {
            return None;
        }
        let address = self.address.max(other.address);
        let end = |range: Self| range.address.saturating_add(range.size);
        Some(Self {
            address,
            size: end(self).min(end(other)) - address,
        })
    }

    /// Returns whether two ranges have a byte in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        let (first, second) = if self.address <= other.address {
            (self, other)
        } else {
            (other, self)
        };
        self.size > 0 && other.size > 0 && second.address - first.address < first.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_in_a_common_byte() {
        let range = |address, size| MemoryRange { address, size };
        assert!(range(8, 4).overlaps(range(11, 1)));
        assert!(!range(8, 4).overlaps(range(12, 4)));
        assert!(!range(8, 0).overlaps(range(8, 4)));
        assert!(range(u64::MAX, 1).overlaps(range(u64::MAX - 3, 8)));
    }
}
