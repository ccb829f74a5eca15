//! Reads page lists: code as text lines of an address and bytes, which any script can write.
//!
//! ```text
//! # A comment. Addresses are decimal, or hexadecimal with 0x; bytes are pairs of hexadecimal digits.
//! 0x401000 4889e5c3
//! 0x7f3200001000 90 90 c3
//! ```
//!
//! A line has any number of bytes. Lines may be in any order, and may repeat bytes. An address with
//! two different bytes has none: its code is unknown.

use super::image::number;
use crate::{Error, Result, SharedBytes};
use backtrail_pt::Avma;
use std::ops::Range;
use std::path::Path;

/// The problem of a line with other bytes.
const DIGITS: &str = "the bytes of a page are pairs of hexadecimal digits";
/// The most pieces of code after adjacent and overlapping lines were merged.
const MAX_RUNS: usize = 1 << 16;

/// Contiguous code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first address.
    pub(super) start: Avma,
    /// The bytes, at least one.
    pub(super) bytes: Vec<u8>,
}

/// The code of page lists.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PageLists {
    /// The code in order of its addresses. The runs do not touch each other.
    pub(super) runs: Vec<Run>,
    /// The number of addresses that were given two different bytes, and have none.
    pub(super) contradictions: u64,
}

/// The lines of page lists.
#[derive(Debug, Default)]
struct Lines {
    lines: Vec<Line>,
    /// The bytes of all lines.
    bytes: Vec<u8>,
}

/// A line of a page list.
#[derive(Debug)]
struct Line {
    /// The first address.
    address: u64,
    /// The part of [`Lines::bytes`].
    bytes: Range<usize>,
}

impl PageLists {
    /// Reads the lists in these files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, if a line is malformed, or if the code has too many pieces.
    pub(super) fn read(files: &[impl AsRef<Path>]) -> Result<Self> {
        let mut read = Lines::default();
        for file in files {
            let file = file.as_ref();
            let before = read.lines.len();
            read.add_file(&SharedBytes::map_file(file)?, file)?;
            if read.lines.len() == before {
                return Err(Error::malformed(file.display(), "this page list has no page"));
            }
        }
        read.merged().ok_or_else(|| {
            let place = files.first().map_or(Path::new(""), AsRef::as_ref);
            let problem = format!("the page list has more than {MAX_RUNS} separate pieces of code");
            Error::malformed(place.display(), problem)
        })
    }
}

/// A run in which addresses with two different bytes are marked.
struct MergedRun {
    start: u64,
    /// The bytes; `None`: two different ones.
    bytes: Vec<Option<u8>>,
}

impl MergedRun {
    fn new(start: u64, bytes: &[u8]) -> Self {
        Self {
            start,
            bytes: bytes.iter().copied().map(Some).collect(),
        }
    }

    /// Returns the address after the run, which does not exceed the address space.
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }

    /// Adds bytes that start inside the run or at its end.
    fn add(&mut self, start: u64, bytes: &[u8]) {
        let skip = usize::try_from(start - self.start).unwrap_or(usize::MAX);
        let known = self.bytes.get_mut(skip..).unwrap_or_default();
        for (known, new) in known.iter_mut().zip(bytes) {
            *known = known.filter(|known| known == new);
        }
        let new = bytes.get(known.len()..).unwrap_or_default();
        self.bytes.extend(new.iter().copied().map(Some));
    }

    /// Appends the parts of the run whose bytes are known.
    fn finish(self, lists: &mut PageLists) {
        let mut at = self.start;
        for part in self.bytes.chunk_by(|one, other| one.is_some() == other.is_some()) {
            let bytes: Vec<u8> = part.iter().copied().flatten().collect();
            if bytes.is_empty() {
                lists.contradictions += part.len() as u64;
            } else if lists.runs.len() <= MAX_RUNS {
                let start = Avma(at);
                lists.runs.push(Run { start, bytes });
            }
            at = at.saturating_add(part.len() as u64);
        }
    }
}

impl Lines {
    /// Adds the lines of a file.
    fn add_file(&mut self, text: &[u8], file: &Path) -> Result<()> {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            self.add(line).map_err(|problem| {
                let place = format!("{}, line {}", file.display(), index + 1);
                Error::malformed(place, problem)
            })?;
        }
        Ok(())
    }

    /// Adds a line.
    fn add(&mut self, line: &[u8]) -> std::result::Result<(), &'static str> {
        const FORM: &str = "a page is ADDRESS BYTES, such as `0x401000 4889e5c3`";
        let end = line.iter().position(u8::is_ascii_whitespace).ok_or(FORM)?;
        let (address, digits) = line.split_at_checked(end).ok_or(FORM)?;
        let address = std::str::from_utf8(address).ok().and_then(number).ok_or(FORM)?;
        let start = self.bytes.len();
        for group in digits.split(u8::is_ascii_whitespace) {
            let (pairs, rest) = group.as_chunks::<2>();
            let digit = |byte: u8| char::from(byte).to_digit(16);
            for [high, low] in pairs {
                let byte = digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low);
                let byte = byte.and_then(|byte| u8::try_from(byte).ok());
                self.bytes.push(byte.ok_or(DIGITS)?);
            }
            if !rest.is_empty() {
                return Err(DIGITS);
            }
        }
        let bytes = start..self.bytes.len();
        if bytes.is_empty() {
            return Err("a page has at least one byte");
        }
        if address.checked_add(bytes.len() as u64).is_none() {
            return Err("the page extends beyond the address space");
        }
        self.lines.push(Line { address, bytes });
        Ok(())
    }

    /// Merges adjacent and overlapping lines. Returns `None` if there are too many runs.
    fn merged(mut self) -> Option<PageLists> {
        let mut lists = PageLists::default();
        let mut open: Option<MergedRun> = None;
        self.lines.sort_by_key(|line| line.address);
        for Line { address, bytes } in self.lines {
            let bytes = self.bytes.get(bytes).unwrap_or_default();
            match &mut open {
                Some(run) if address <= run.end() => run.add(address, bytes),
                _ => {
                    let done = open.replace(MergedRun::new(address, bytes));
                    done.into_iter().for_each(|run| run.finish(&mut lists));
                }
            }
            if lists.runs.len() > MAX_RUNS {
                return None;
            }
        }
        open.into_iter().for_each(|run| run.finish(&mut lists));
        (lists.runs.len() <= MAX_RUNS).then_some(lists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lists: &[&str]) -> Result<PageLists> {
        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = (0..lists.len())
            .map(|index| dir.path().join(index.to_string()))
            .collect();
        for (file, list) in files.iter().zip(lists) {
            std::fs::write(file, list).unwrap();
        }
        PageLists::read(&files)
    }

    fn runs(lists: &[&str]) -> (Vec<(u64, Vec<u8>)>, u64) {
        let lists = read(lists).unwrap();
        let runs = lists.runs.into_iter().map(|run| (run.start.0, run.bytes));
        (runs.collect(), lists.contradictions)
    }

    #[test]
    fn adjacent_and_repeated_pages_are_merged() {
        let list = "# code\n\n0x1004 0506\r\n  0x1000\t01 02 0304 \n4098 0304";
        assert_eq!(runs(&[list]), (vec![(0x1000, vec![1, 2, 3, 4, 5, 6])], 0));
        let lists = ["0x3000 aa", "0x1000 BBcc"];
        assert_eq!(
            runs(&lists),
            (vec![(0x1000, vec![0xbb, 0xcc]), (0x3000, vec![0xaa])], 0)
        );
        let top = "0xfffffffffffffffe 0b";
        assert_eq!(runs(&[top]), (vec![(u64::MAX - 1, vec![11])], 0));
    }

    #[test]
    fn contradicting_bytes_are_unknown() {
        let list = "0x1000 0102030405\n0x1002 0904\n0x1002 03";
        let expected = vec![(0x1000, vec![1, 2]), (0x1003, vec![4, 5])];
        assert_eq!(runs(&[list]), (expected, 1));
        assert_eq!(runs(&["0x1000 01", "0x1000 02"]), (vec![], 1));
    }

    #[test]
    fn malformed_lines_are_refused_with_their_number() {
        let cases = [
            ("0x1000", "line 1: a page is ADDRESS BYTES"),
            ("\n0x1000 0", "line 2: the bytes of a page are pairs"),
            ("0x1000 0g", "line 1: the bytes of a page are pairs"),
            ("0x1000 +1", "line 1: the bytes of a page are pairs"),
            ("0x1000: 01", "line 1: a page is ADDRESS BYTES"),
            ("-1 01", "line 1: a page is ADDRESS BYTES"),
            ("0x10000000000000000 01", "line 1: a page is ADDRESS BYTES"),
            ("0xffffffffffffffff 01", "beyond the address space"),
            ("# nothing\n", "this page list has no page"),
            ("", "this page list has no page"),
            ("\0\u{1}", "line 1: a page is ADDRESS BYTES"),
        ];
        for (list, expected) in cases {
            let error = read(&[list]).unwrap_err();
            assert!(
                error.is_malformed() && error.to_string().contains(expected),
                "{list:?}: {error}"
            );
        }
    }

    #[test]
    fn too_many_pieces_are_refused() {
        let list: String = (0..=MAX_RUNS)
            .map(|index| format!("{} 90\n", index * 2))
            .collect();
        let error = read(&[&list]).unwrap_err().to_string();
        assert!(error.contains("more than 65536 separate pieces"), "{error}");
        let split = format!("0 {}\n", "90".repeat(MAX_RUNS * 2 + 2));
        let odd: String = (0..=MAX_RUNS)
            .map(|index| format!("{} 91\n", index * 2))
            .collect();
        let error = read(&[&(split + &odd)]).unwrap_err().to_string();
        assert!(error.contains("separate pieces"), "{error}");
    }
}
