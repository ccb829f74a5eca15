//! The table of lines of a code object, since CPython 3.11.
//!
//! Source: `Objects/locations.md` of CPython.

/// The size of an instruction.
const UNIT: u32 = 2;

/// Returns the line of the instruction at an offset in bytes. `None`: it has no line, or the table
/// does not reach it.
pub(super) fn line_at(table: &[u8], first_line: u32, offset: u32) -> Option<u32> {
    // Before the first instruction.
    if offset > i32::MAX.cast_unsigned() {
        return Some(first_line);
    }
    let mut line = i64::from(first_line);
    let mut end: u32 = 0;
    let mut bytes = table.iter().copied();
    while let Some(head) = bytes.next() {
        let (code, length) = (head >> 3 & 15, head & 7);
        // Every entry begins so. Others are not a table.
        if head & 0x80 == 0 {
            return None;
        }
        end = end.checked_add((u32::from(length) + 1) * UNIT)?;
        let has_line = match code {
            15 => false,
            14 => {
                line = line.checked_add(signed(&mut bytes)?)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
                true
            }
            13 => {
                line = line.checked_add(signed(&mut bytes)?)?;
                true
            }
            10..=12 => {
                line = line.checked_add(i64::from(code - 10))?;
                bytes.nth(1)?;
                true
            }
            _ => {
                bytes.next()?;
                true
            }
        };
        if offset < end {
            return u32::try_from(line).ok().filter(|_| has_line);
        }
    }
    None
}

/// Reads a number of groups of 6 bits, the lowest first.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..36).step_by(6) {
        let byte = bytes.next()?;
        number |= u64::from(byte & 0x3f) << shift;
        if byte & 0x40 == 0 {
            return Some(number);
        }
    }
    None
}

/// Reads a number whose lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let magnitude = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 0 { magnitude } else { -magnitude })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of a function of three lines, as CPython 3.11 writes it. A short entry has line
    /// 10, the next one line 12, and a long entry line 11. The last code has no line.
    const TABLE: [u8; 11] = [
        0x80,
        0,
        0x80 | 12 << 3 | 1,
        0,
        4,
        0x80 | 14 << 3,
        3,
        0,
        4,
        8,
        0xf8,
    ];

    #[test]
    fn lines_follow_their_instructions() {
        let lines: Vec<_> = (0..12).step_by(2).map(|at| line_at(&TABLE, 10, at)).collect();
        assert_eq!(lines, [Some(10), Some(12), Some(12), Some(11), None, None]);
        assert_eq!(line_at(&TABLE, 10, -2_i32 as u32), Some(10));
    }

    proptest::proptest! {
        /// A process may have any bytes there.
        #[test]
        fn any_table_is_read(table: Vec<u8>, first_line: u32, offset: u32) {
            let _ = line_at(&table, first_line, offset);
        }
    }

    #[test]
    fn damaged_tables_have_no_lines() {
        for len in 0..TABLE.len() {
            let _ = line_at(&TABLE[..len], 10, 6);
        }
        assert_eq!(line_at(&[0x12, 3], 10, 0), None);
        assert_eq!(line_at(&[0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f], 10, 0), None);
        // A line before the first one of the file.
        assert_eq!(line_at(&[0xe8, 0x3f], 10, 0), None);
    }
}
