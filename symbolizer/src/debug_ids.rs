//! Finds and recognizes debug files by their build id or checksum.

use crate::DebugSearch;
use crate::source::{Source, map_file};
use object::Object;
use std::path::{Path, PathBuf};

/// Opens `ROOT/.build-id/xx/yyyy.debug`, whose own build id must be the same. Also returns the path
/// of a file there that was refused.
pub(crate) fn find_by_id(id: &[u8], search: &DebugSearch) -> (Option<(Source, PathBuf)>, Option<PathBuf>) {
    let mut refused = None;
    let Some(id) = backtrail_pt::BuildId::new(id) else {
        return (None, refused);
    };
    let confined = search.confined.iter().flat_map(|root| {
        let inside = DebugSearch {
            roots: vec![root.clone()],
            ..DebugSearch::none()
        };
        let paths = inside.by_build_id(&id, ".debug").into_iter();
        let root = root.canonicalize().ok();
        paths.filter(move |path| {
            let whole = path.canonicalize().ok();
            whole
                .zip(root.as_ref())
                .is_some_and(|(whole, root)| whole.starts_with(root))
        })
    });
    for path in confined.chain(search.by_build_id(&id, ".debug")) {
        if let Some(source) = load_with_id(&path, id.as_bytes(), search) {
            return (Some((source, path)), refused);
        }
        if path.is_file() {
            refused = refused.or(Some(path));
        }
    }
    (None, refused)
}

/// Opens a file with this build id.
pub(crate) fn load_with_id(path: &Path, id: &[u8], search: &DebugSearch) -> Option<Source> {
    let source = Source::load(map_file(path, search.max_file_size).ok()?).ok()?;
    is_identified(&source, id).then_some(source)
}

/// Returns a name of one component, which cannot leave its directory.
pub(crate) fn file_name(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    plain.then_some(name)
}

/// Returns whether a file has this build id, or is a supplementary file with this checksum.
fn is_identified(source: &Source, id: &[u8]) -> bool {
    let Ok(elf) = source.elf() else { return false };
    if elf.build_id().ok().flatten() == Some(id) {
        return true;
    }
    let section = parse_sup(source.section(&elf, ".debug_sup"));
    section.is_some_and(|section| section.is_supplementary && section.checksum == id && !id.is_empty())
}

/// The contents of `.debug_sup` (DWARF 5, section 7.3.6).
pub(crate) struct SupSection<'d> {
    /// Whether the file is a supplementary one, and not one that names such a file.
    pub is_supplementary: bool,
    /// The path of the supplementary file.
    pub path: &'d [u8],
    /// Its checksum.
    pub checksum: &'d [u8],
}

/// Parses `.debug_sup`.
pub(crate) fn parse_sup(section: &[u8]) -> Option<SupSection<'_>> {
    let (version, rest) = section.split_first_chunk::<2>()?;
    let (&kind, rest) = rest.split_first()?;
    if u16::from_le_bytes(*version) != 5 || kind > 1 {
        return None;
    }
    let end = rest.iter().position(|byte| *byte == 0)?;
    let (path, rest) = (rest.get(..end)?, rest.get(end + 1..)?);
    // The length is LEB128. No checksum is longer than 127 bytes.
    let (&length, rest) = rest.split_first()?;
    (length < 0x80).then_some(())?;
    Some(SupSection {
        is_supplementary: kind == 1,
        path,
        checksum: rest.get(..usize::from(length))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b"] {
            assert_eq!(file_name(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(file_name(b"foo.debug"), Some("foo.debug"));
    }

    #[test]
    fn dwarf_5_section_is_parsed_or_refused() {
        let section = b"\x05\0\0a/b\0\x02\xaa\xbb";
        let found = parse_sup(section).unwrap();
        assert!(!found.is_supplementary && found.path == b"a/b" && found.checksum == [0xaa, 0xbb]);
        for end in 0..section.len() {
            assert!(parse_sup(&section[..end]).is_none(), "{end}");
        }
        assert!(parse_sup(b"\x04\0\0a\0\x01\xaa").is_none());
        assert!(parse_sup(b"\x05\0\x02a\0\x01\xaa").is_none());
    }
}
