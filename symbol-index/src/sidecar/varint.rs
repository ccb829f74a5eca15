//! Numbers and byte strings in the blocks of a sidecar.

/// Appends an unsigned number as LEB128.
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The rest of a block. Each read returns `None` at the end or at a number that is too large.
pub struct BlockBytes<'a>(pub &'a [u8]);

impl<'a> BlockBytes<'a> {
    /// Reads an unsigned number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a count of items, each of which takes a byte at least.
    pub fn count(&mut self) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= self.0.len()).then_some(count)
    }

    /// Reads the next `length` bytes.
    pub fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_and_long_ones_are_refused() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            write_number(&mut out, number);
            let mut bytes = BlockBytes(&out);
            assert_eq!(bytes.number(), Some(number));
            assert!(bytes.0.is_empty());
            let cut = out.len() - 1;
            assert_eq!(BlockBytes(&out[..cut]).number(), None);
        }
        assert_eq!(BlockBytes(&[0xff; 10]).number(), None);
        assert_eq!(BlockBytes(&[0xff; 9]).number(), None);
        assert_eq!(BlockBytes(&[200, 1]).count(), None);
    }
}
