//! Source files in a bundle: an optional part, which readers may ignore.
//!
//! The files are in `sources/` at the paths that the debug information names. `sources.json` lists
//! them, and says which of them the debug information confirms by its MD5. The bundle may have only
//! some lines of a file. The others are empty in its copy, so that lines keep their numbers.

use crate::schema::parse_json;
use crate::{Bundle, BundlePath, Error, Result, SharedBytes};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// The list of source files.
pub const INDEX: &str = "sources.json";
/// The directory of the files.
const DIRECTORY: &str = "sources";
/// The version of the list. Readers ignore a list of a newer version, because it is optional.
const VERSION: u32 = 2;
/// The version of a list of whole files.
const WHOLE_FILES: u32 = 1;
/// The most source files, and the longest list in bytes.
pub const MAX_FILES: usize = 4096;
const MAX_INDEX: usize = 4 << 20;
/// The longest path in a packed bundle in bytes.
const MAX_PATH: usize = 240;

/// A source file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundledSource {
    /// The path, as the debug information names it.
    pub path: String,
    /// The file in the bundle.
    pub file: String,
    /// The MD5 of the whole text, in lower-case hexadecimal digits.
    pub md5: String,
    /// Whether the debug information has this MD5, so that the text is that of the build. `false`:
    /// the debug information has none.
    pub verified: bool,
    /// The lines that the bundle has, as first and last line numbers from 1, in order. `None`: all
    /// lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<(u32, u32)>>,
}

impl BundledSource {
    /// Returns whether the bundle has a line.
    #[must_use]
    pub fn has_line(&self, line: u32) -> bool {
        let Some(ranges) = &self.lines else {
            return true;
        };
        let next = ranges.partition_point(|(first, _)| *first <= line);
        let range = next.checked_sub(1).and_then(|at| ranges.get(at));
        range.is_some_and(|(_, last)| line <= *last)
    }

    /// Returns what is wrong with an entry of a list.
    fn problem(&self) -> Option<&'static str> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let ranges = self.lines.as_deref().unwrap_or_default();
        let is_range = |(first, last): &(u32, u32)| *first > 0 && first <= last;
        let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
        if !is_place(&self.file) {
            Some("a file is not in sources/")
        } else if self.md5.len() != 32 || !self.md5.bytes().all(is_digit) {
            Some("an MD5 does not have 32 lower-case hexadecimal digits")
        } else if !ranges.iter().all(is_range) || pairs.any(|(one, next)| one.1 >= next.0) {
            Some("lines are not ranges in order")
        } else {
            None
        }
    }
}

/// Returns the ranges of lines with at most `around` lines between them and one of `lines`.
#[must_use]
pub fn ranges_around(lines: &BTreeSet<u32>, around: u32) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for line in lines.iter().filter(|line| **line > 0) {
        let (first, last) = (line.saturating_sub(around).max(1), line.saturating_add(around));
        match ranges.last_mut() {
            Some(range) if first <= range.1.saturating_add(1) => range.1 = last,
            _ => ranges.push((first, last)),
        }
    }
    ranges
}

/// Returns a text in which all lines are empty but those of the ranges, which are in order.
#[must_use]
pub fn with_lines(text: &[u8], ranges: &[(u32, u32)]) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut ranges = ranges.iter().peekable();
    for (line, bytes) in (1_u32..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        while ranges.next_if(|(_, last)| *last < line).is_some() {}
        match ranges.peek() {
            Some((first, _)) if *first <= line => kept.extend(bytes),
            _ => kept.push(b'\n'),
        }
    }
    kept
}

/// The list as it is stored.
#[derive(Serialize, Deserialize)]
struct Index {
    version: u32,
    #[serde(default)]
    files: Vec<BundledSource>,
}

/// Returns the place in a bundle of a source file with this path. `None`: a bundle cannot have it.
#[must_use]
pub fn place_of(path: &str) -> Option<BundlePath> {
    let parts = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect::<Vec<_>>();
    let is_plain = !parts.is_empty() && !parts.contains(&"..");
    let place = format!("{DIRECTORY}/{}", parts.join("/"));
    let fits = place.len() <= MAX_PATH && !place.contains(|letter: char| letter.is_control());
    BundlePath::new(&place).ok().filter(|_| is_plain && fits)
}

/// Returns whether a file of a bundle is a source file.
#[must_use]
pub fn is_place(file: &str) -> bool {
    file.strip_prefix(DIRECTORY)
        .is_some_and(|rest| rest.starts_with('/'))
        && BundlePath::new(file).is_ok()
}

/// Returns the list as it is stored at [`INDEX`].
///
/// # Errors
/// Fails if there are too many files.
pub fn encode(files: &[BundledSource]) -> Result<Vec<u8>> {
    let has_all_lines = files.iter().all(|file| file.lines.is_none());
    let index = Index {
        version: if has_all_lines { WHOLE_FILES } else { VERSION },
        files: files.to_vec(),
    };
    let bytes = serde_json::to_vec_pretty(&index).map_err(|error| Error::malformed(INDEX, error))?;
    match files.len() <= MAX_FILES && bytes.len() <= MAX_INDEX {
        true => Ok(bytes),
        false => Err(Error::Usage("there are too many source files".to_owned())),
    }
}

impl Bundle {
    /// Returns the list of source files. A bundle without the list, or with a list of a newer
    /// version, has none.
    ///
    /// # Errors
    /// Fails if the list is malformed.
    pub fn sources(&self) -> Result<Vec<BundledSource>> {
        load(self.root())
    }
}

/// Reads the list of the bundle in a directory.
///
/// # Errors
/// Fails as [`Bundle::sources`] does.
pub(crate) fn load(root: &Path) -> Result<Vec<BundledSource>> {
    let path = BundlePath::new(INDEX)?;
    if root.join(path.as_str()).symlink_metadata().is_err() {
        return Ok(Vec::new());
    }
    let bytes = SharedBytes::map_file(&path.resolve(root)?)?;
    if bytes.len() > MAX_INDEX {
        return Err(Error::malformed(INDEX, "the list is too long"));
    }
    let refused = |error: serde_json::Error| Error::malformed(INDEX, error);
    let value = parse_json(&bytes, INDEX)?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    match version {
        None | Some(0) => return Err(Error::malformed(INDEX, "it has no version")),
        Some(version) if version > u64::from(VERSION) => return Ok(Vec::new()),
        Some(_) => {}
    }
    let index: Index = serde_json::from_value(value).map_err(refused)?;
    let mut paths = BTreeSet::new();
    let repeated = !index
        .files
        .iter()
        .all(|source| paths.insert(source.path.as_str()));
    let problem = index.files.iter().find_map(BundledSource::problem);
    let problem = problem.or(repeated.then_some("it lists a path twice"));
    let too_many = (index.files.len() > MAX_FILES).then_some("it lists too many files");
    match problem.or(too_many) {
        None => Ok(index.files),
        Some(problem) => Err(Error::malformed(INDEX, problem)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_in_the_directory() {
        let place = |path: &str| place_of(path).map(|place| place.as_str().to_owned());
        assert_eq!(place("/usr/src/a.c").as_deref(), Some("sources/usr/src/a.c"));
        assert_eq!(place("./src//a.c").as_deref(), Some("sources/src/a.c"));
        for path in ["", "/", "../a.c", "/src/../a.c", "/a\n.c", &"x".repeat(250)] {
            assert_eq!(place(path), None, "{path:?}");
        }
    }

    #[test]
    fn ranges_around_lines_are_merged() {
        let lines = |lines: &[u32]| lines.iter().copied().collect::<BTreeSet<u32>>();
        assert_eq!(ranges_around(&lines(&[1, 5, 30]), 2), [(1, 7), (28, 32)]);
        assert_eq!(
            ranges_around(&lines(&[0, u32::MAX]), 1),
            [(u32::MAX - 1, u32::MAX)]
        );
        assert_eq!(ranges_around(&lines(&[]), 5), []);
    }

    #[test]
    fn other_lines_are_empty_and_numbers_stay() {
        let text = b"one\ntwo\r\n\xff\nfour\nfive";
        assert_eq!(with_lines(text, &[(2, 3), (5, 9)]), b"\ntwo\r\n\xff\n\nfive");
        assert_eq!(with_lines(text, &[]), b"\n\n\n\n\n");
        assert_eq!(with_lines(b"", &[(1, 1)]), b"");
    }

    /// Reads a list with these entries.
    fn read(version: u32, files: &serde_json::Value) -> Result<Vec<BundledSource>> {
        let root = tempfile::tempdir().unwrap();
        let index = serde_json::json!({ "version": version, "files": files });
        std::fs::write(root.path().join(INDEX), index.to_string()).unwrap();
        load(root.path())
    }

    #[test]
    fn malformed_lists_are_refused_in_one_sentence() {
        let md5 = "0".repeat(32);
        let entry = |file: &str, md5: &str, lines: serde_json::Value| serde_json::json!({ "path": "/a.c", "file": file, "md5": md5, "verified": false, "lines": lines });
        let good = entry("sources/a.c", &md5, serde_json::json!([[1, 2], [4, u32::MAX]]));
        let read_back = read(2, &serde_json::json!([good])).unwrap();
        let [source] = read_back.as_slice() else {
            panic!("{read_back:?}");
        };
        let kept = [0, 1, 2, 3, 4, u32::MAX].map(|line| source.has_line(line));
        assert_eq!(kept, [false, true, true, false, true, true]);
        assert_eq!(read(3, &serde_json::json!([good])).unwrap(), []);
        let ranges = |ranges: serde_json::Value| serde_json::json!([entry("sources/a.c", &md5, ranges)]);
        for wrong in [
            serde_json::json!([good, good]),
            serde_json::json!([entry("sources/../a.c", &md5, serde_json::json!(null))]),
            serde_json::json!([entry("/etc/passwd", &md5, serde_json::json!(null))]),
            serde_json::json!([entry("sources/a.c", "0", serde_json::json!(null))]),
            ranges(serde_json::json!([[0, 1]])),
            ranges(serde_json::json!([[2, 1]])),
            ranges(serde_json::json!([[1, 5], [5, 6]])),
            ranges(serde_json::json!([[1, 4_294_967_296_u64]])),
            ranges(serde_json::json!([[-1, 4]])),
            ranges(serde_json::json!([[1, 2, 3]])),
        ] {
            let error = read(2, &wrong).unwrap_err().to_string();
            assert!(error.starts_with(INDEX) && !error.contains('\n'), "{error}");
        }
    }
}
