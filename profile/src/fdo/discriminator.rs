//! The parts of a DWARF discriminator as LLVM encodes them: base, duplication factor, copy.
//!
//! Source: LLVM, `DILocation::encodeDiscriminator`. Each part is one bit (0), 7 bits (up to 31) or
//! 14 bits (up to 4095), least significant part first.

/// Returns the first part.
fn first(encoded: u32) -> u32 {
    if encoded & 1 != 0 {
        return 0;
    }
    let bits = encoded >> 1;
    match bits & 0x20 {
        0 => bits & 0x1f,
        _ => (bits >> 1 & 0xfe0) | (bits & 0x1f),
    }
}

/// Returns the parts after the first one.
fn rest(encoded: u32) -> u32 {
    match (encoded & 1, encoded & 0x40) {
        (1, _) => encoded >> 1,
        (_, 0) => encoded >> 7,
        _ => encoded >> 14,
    }
}

/// Returns the base discriminator, which separates blocks of one line.
pub(super) fn base(discriminator: u32) -> u32 {
    first(discriminator)
}

/// Returns by how much the compiler duplicated the instruction, as by unrolling a loop.
pub(super) fn duplication_factor(discriminator: u32) -> u64 {
    match first(rest(discriminator)) {
        0 => 1,
        factor => u64::from(factor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a part, and returns its length.
    fn encode(part: u32) -> (u32, u32) {
        match part {
            0 => (1, 1),
            1..=31 => (part << 1, 7),
            _ => ((part & 0x1f) << 1 | (part & 0xfe0) << 2 | 0x40, 14),
        }
    }

    #[test]
    fn parts_are_those_that_were_encoded() {
        for base_part in [0, 1, 5, 31, 32, 100, 4095] {
            for factor in [0, 1, 4, 31, 32, 500] {
                let ((low, bits), (high, _)) = (encode(base_part), encode(factor));
                let encoded = low | high << bits;
                assert_eq!(base(encoded), base_part);
                assert_eq!(duplication_factor(encoded), u64::from(factor.max(1)));
            }
        }
        assert_eq!((base(0), duplication_factor(0)), (0, 1));
    }
}
