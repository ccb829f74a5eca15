//! Numbers of few bytes, as LEB128 defines them.

/// Appends a number.
pub(super) fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a number that is near 0 on either side.
pub(super) fn write_signed(value: i64, out: &mut Vec<u8>) {
    write((value << 1 ^ value >> 63).cast_unsigned(), out);
}

/// Appends bytes after their number.
pub(super) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// The rest of a block's payload. Every method returns `None` where the payload ends too early.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// Returns an index that is valid for `table`, as its entry.
    pub fn entry<T: Copy>(&mut self, table: &[T]) -> Option<T> {
        let index = usize::try_from(self.number()?).ok()?;
        table.get(index).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for value in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            write(value, &mut bytes);
            write_signed(value.cast_signed(), &mut bytes);
            let mut reader = Reader(&bytes);
            assert_eq!(reader.number(), Some(value));
            assert_eq!(reader.signed(), Some(value.cast_signed()));
            assert_eq!(reader.number(), None);
        }
        assert_eq!(Reader(&[0xff; 10]).number(), None);
        assert_eq!(Reader(&[0x80; 12]).number(), None);
    }
}
