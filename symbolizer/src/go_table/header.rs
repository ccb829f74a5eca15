//! The header of Go's table, and the tables that it locates (package `runtime` of Go, type
//! `pcHeader`).

use super::bytes::{u32_at, u64_at};

/// The format, by the version of Go that introduced it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Format {
    /// Go 1.16 and 1.17: addresses are absolute.
    Go116,
    /// Go 1.18 and 1.19: addresses are relative to the start of the text.
    Go118,
    /// Since Go 1.20: functions state the line of their declaration.
    Go120,
}

impl Format {
    fn of(magic: u32) -> Option<Self> {
        match magic {
            0xffff_fffa => Some(Self::Go116),
            0xffff_fff0 => Some(Self::Go118),
            0xffff_fff1 => Some(Self::Go120),
            _ => None,
        }
    }
}

/// The number of bytes before the words of the header: magic, padding, quantum, size of pointers.
const WORDS: usize = 8;

/// The tables of a file.
#[derive(Clone, Copy)]
pub(super) struct Header<'d> {
    pub format: Format,
    /// The number of functions.
    pub functions: usize,
    /// The number of source files.
    pub files: usize,
    /// The start of the text as the header states it. `None`: it states none, as since Go 1.26.
    pub text: Option<u64>,
    /// The names of functions.
    pub names: &'d [u8],
    /// The offsets in `paths` of the files of each compilation unit.
    pub unit_files: &'d [u8],
    /// The paths of source files.
    pub paths: &'d [u8],
    /// The values by address.
    pub values: &'d [u8],
    /// The list of functions, and after it their records.
    pub records: &'d [u8],
    /// The offset of `records` from the header.
    pub records_offset: u64,
}

impl<'d> Header<'d> {
    /// Reads the header at the start of `bytes`. Returns `None` for other formats and processors,
    /// and if a table is outside of `bytes`.
    pub fn read(bytes: &'d [u8]) -> Option<Self> {
        let format = Format::of(u32_at(bytes, 0)?)?;
        // Padding, the smallest instruction of x86-64, the size of its pointers.
        if bytes.get(4..WORDS)? != [0, 0, 1, 8] {
            return None;
        }
        let word = |number: usize| u64_at(bytes, WORDS + number * 8);
        let has_text = format >= Format::Go118;
        let first = if has_text { 3 } else { 2 };
        let table = |number: usize| bytes.get(usize::try_from(word(first + number)?).ok()?..);
        Some(Self {
            format,
            functions: usize::try_from(word(0)?).ok()?,
            files: usize::try_from(word(1)?).ok()?,
            text: word(2).filter(|text| has_text && *text != 0),
            names: table(0)?,
            unit_files: table(1)?,
            paths: table(2)?,
            values: table(3)?,
            records: table(4)?,
            records_offset: word(first + 4)?,
        })
    }

    /// Returns the offset in `paths` of a file of a compilation unit.
    pub fn path_of(&self, unit: u32, file: u32) -> Option<u32> {
        let number = (unit as usize).checked_add(file as usize)?;
        u32_at(self.unit_files, number.checked_mul(4)?).filter(|path| *path != u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a header with tables of one byte each.
    fn header(magic: u32, words: &[u64]) -> Vec<u8> {
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend([0, 0, 1, 8]);
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend([1, 2, 3, 4, 5]);
        bytes
    }

    #[test]
    fn each_format_has_its_words() {
        let old = header(0xffff_fffa, &[7, 2, 64, 65, 66, 67, 68]);
        let old = Header::read(&old).unwrap();
        assert_eq!((old.format, old.functions, old.files), (Format::Go116, 7, 2));
        assert_eq!((old.text, old.names[0], old.records[0]), (None, 1, 5));
        for (magic, format) in [(0xffff_fff0, Format::Go118), (0xffff_fff1, Format::Go120)] {
            let new = header(magic, &[7, 2, 0x40_1000, 72, 73, 74, 75, 76]);
            let new = Header::read(&new).unwrap();
            assert_eq!((new.format, new.text), (format, Some(0x40_1000)));
            assert_eq!((new.unit_files[0], new.values[0], new.records_offset), (2, 4, 76));
        }
        let without_text = header(0xffff_fff1, &[7, 2, 0, 72, 73, 74, 75, 76]);
        assert_eq!(Header::read(&without_text).unwrap().text, None);
    }

    #[test]
    fn other_headers_are_refused() {
        let words = [7, 2, 0x40_1000, 72, 73, 74, 75, 76];
        assert!(Header::read(&header(0xffff_fffb, &words)).is_none());
        assert!(Header::read(&header(0, &words)).is_none());
        let good = header(0xffff_fff1, &words);
        for length in 0..72 {
            assert!(Header::read(&good[..length]).is_none(), "{length}");
        }
        for at in 4..8 {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            assert!(Header::read(&bytes).is_none(), "{at}");
        }
        assert!(Header::read(&header(0xffff_fff1, &[7, 2, 0, 72, 73, u64::MAX, 75, 76])).is_none());
    }
}
