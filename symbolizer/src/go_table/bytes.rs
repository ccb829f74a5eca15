//! Checked reads of little-endian numbers and of strings that end with NUL.

/// The longest accepted name or path. Genuine ones are shorter than `PATH_MAX`.
const MAX_STRING: usize = 4096;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Returns the string that starts at an offset. The byte before it must be NUL, because the linker
/// writes each string once. So all strings together are not longer than the table.
pub(super) fn string_at(table: &[u8], offset: u32) -> Option<&[u8]> {
    let start = offset as usize;
    let is_start = start
        .checked_sub(1)
        .is_none_or(|before| table.get(before) == Some(&0));
    let rest = table.get(start..).filter(|_| is_start)?;
    let length = memchr::memchr(0, rest.get(..MAX_STRING).unwrap_or(rest))?;
    rest.get(..length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_beyond_the_end_are_none() {
        assert_eq!(u32_at(&[1, 0, 0, 0, 2], 0), Some(1));
        assert_eq!(u32_at(&[1, 0, 0, 0, 2], 2), None);
        assert_eq!(u64_at(&[0; 8], usize::MAX), None);
    }

    #[test]
    fn strings_begin_after_a_nul() {
        let table = b"main.main\0main.f\0open";
        assert_eq!(string_at(table, 0), Some(&b"main.main"[..]));
        assert_eq!(string_at(table, 10), Some(&b"main.f"[..]));
        for offset in [5, 17, 22, u32::MAX] {
            assert_eq!(string_at(table, offset), None, "{offset}");
        }
        let mut long = vec![b'x'; MAX_STRING + 1];
        long.push(0);
        assert_eq!(string_at(&long, 0), None);
    }
}
