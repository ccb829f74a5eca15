//! Decodes the values of a function by address: files, lines, and inlined calls.
//!
//! A table is a list of pairs of numbers (LEB128). The first number is the difference to the value
//! before (zigzag), which is -1 at the start. The second one is the number of bytes with the value.
//! A difference of zero after the first pair ends the table.

/// A cursor in the values of a function.
pub(super) struct PcValues<'d> {
    rest: &'d [u8],
    /// The value of the code before `end`.
    pub value: i32,
    /// The end of the code with the value, as an offset from the function's entry.
    pub end: u32,
    /// Whether the table ended as genuine ones do.
    pub is_whole: bool,
}

impl<'d> PcValues<'d> {
    /// Starts before the first pair of a table.
    pub fn new(table: &'d [u8]) -> Self {
        Self {
            rest: table,
            value: -1,
            end: 0,
            is_whole: true,
        }
    }

    /// Continues with the next pair. Returns whether there is one. Each pair has code, so a
    /// function has at most one pair for each byte.
    pub fn advance(&mut self) -> bool {
        let mut rest = self.rest;
        let Some(difference) = number(&mut rest) else {
            return self.stop();
        };
        if difference == 0 && self.end != 0 {
            self.rest = &[];
            return false;
        }
        let length = number(&mut rest).filter(|length| *length != 0);
        let Some(end) = length.and_then(|length| self.end.checked_add(length)) else {
            return self.stop();
        };
        let difference = (difference >> 1).cast_signed() ^ -(difference & 1).cast_signed();
        self.value = self.value.wrapping_add(difference);
        self.end = end;
        self.rest = rest;
        true
    }

    fn stop(&mut self) -> bool {
        self.is_whole = false;
        self.rest = &[];
        false
    }
}

/// Removes a number (LEB128) from the start of `bytes`.
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(table: &[u8]) -> (Vec<(i32, u32)>, bool) {
        let mut cursor = PcValues::new(table);
        let mut found = Vec::new();
        while cursor.advance() {
            found.push((cursor.value, cursor.end));
        }
        (found, cursor.is_whole)
    }

    #[test]
    fn pairs_are_differences_and_lengths() {
        // -1 + 11, + 2, - 3.
        let table = [22, 4, 4, 0x80, 1, 5, 1, 0, 99];
        assert_eq!(values(&table), (vec![(10, 4), (12, 132), (9, 133)], true));
        // The first difference may be zero.
        assert_eq!(values(&[0, 3, 2, 1, 0]), (vec![(-1, 3), (0, 4)], true));
    }

    #[test]
    fn damaged_tables_end() {
        for (table, pairs) in [
            (&[][..], 0),
            (&[2], 0),
            (&[2, 4, 2], 1),
            (&[2, 4, 2, 0], 1),
            (&[0x80, 0x80, 0x80, 0x80, 0x80, 1, 1], 0),
            (&[2, 0xff, 0xff, 0xff, 0xff, 0x0f, 2, 1, 0], 1),
        ] {
            let (found, is_whole) = values(table);
            assert_eq!((found.len(), is_whole), (pairs, false), "{table:?}");
        }
    }
}
