//! Numbers and byte strings in the records of a GSYM and in the blocks of a sidecar.

/// Appends an unsigned number as LEB128.
pub fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The rest of a record or block. Each read returns `None` at the end or at a number that is too
/// large.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    /// Reads an unsigned number (LEB128).
    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let (&first, rest) = self.0.split_first()?;
        if first < 0x80 {
            self.0 = rest;
            return Some(u64::from(first));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
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

    /// Reads a signed number (LEB128).
    pub fn signed(&mut self) -> Option<i64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let sign = byte & 0x40 != 0 && shift + 7 < 64;
                return Some((number | if sign { u64::MAX << (shift + 7) } else { 0 }) as i64);
            }
        }
        None
    }

    /// Reads a number of 32 bits.
    pub fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// Reads four bytes, the lowest one first.
    pub fn fixed(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    /// Reads a byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
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
            let mut bytes = Bytes(&out);
            assert_eq!(bytes.number(), Some(number));
            assert!(bytes.0.is_empty());
            assert_eq!(Bytes(&out).small(), u32::try_from(number).ok());
            let cut = out.len() - 1;
            assert_eq!(Bytes(&out[..cut]).number(), None);
        }
        assert_eq!(Bytes(&[0xff; 10]).number(), None);
        assert_eq!(Bytes(&[0xff; 9]).number(), None);
        assert_eq!(Bytes(&[200, 1]).count(), None);
    }

    #[test]
    fn signed_numbers_have_the_sign_of_their_last_byte() {
        let cases: [(&[u8], i64); 6] = [
            (&[0], 0),
            (&[0x3f], 63),
            (&[0x40], -64),
            (&[0x7f], -1),
            (&[0x80, 0x7f], -128),
            (&[0x80, 1], 128),
        ];
        for (bytes, number) in cases {
            assert_eq!(Bytes(bytes).signed(), Some(number), "{bytes:?}");
        }
        assert_eq!(Bytes(&[0x80; 10]).signed(), None);
        assert_eq!(Bytes(&[0xff; 10]).signed(), None);
    }
}
