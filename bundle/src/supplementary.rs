//! Finds supplementary debug files for bundles. `dwz` moves entries that several modules share to
//! such a file, and the modules name it.

use crate::module_file;
use crate::{BundlePath, Result};
use backtrail_pt::BuildId;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// The directory of debug files in a bundle. GDB accepts it as a `debug-file-directory`.
pub(crate) const DEBUG_ROOT: &str = "debug";
/// The directories where distributions install debug files.
const SYSTEM_ROOT: &str = "/usr/lib/debug";
/// The most bytes of a section that names a supplementary file.
const MAX_LINK: u64 = 8 << 10;

/// A reference to a supplementary file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The path on the build machine.
    pub(crate) path: PathBuf,
    id: BuildId,
}

impl Link {
    /// Reads the reference of an ELF file: `.gnu_debugaltlink`, or `.debug_sup` of DWARF 5.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        if let Some(section) = module_file::section(file, ".gnu_debugaltlink", MAX_LINK)? {
            return Ok(split_at_nul(&section).and_then(|(path, id)| Self::new(path, id)));
        }
        let section = module_file::section(file, ".debug_sup", MAX_LINK)?;
        let found = section.as_deref().and_then(Sup::parse);
        let found = found.filter(|found| !found.is_supplementary);
        Ok(found.and_then(|found| Self::new(found.path, found.checksum)))
    }

    fn new(path: &[u8], id: &[u8]) -> Option<Self> {
        let path = PathBuf::from(std::str::from_utf8(path).ok()?);
        Some(Self {
            path: Some(path).filter(|path| path.file_name().is_some())?,
            id: BuildId::new(id)?,
        })
    }

    /// Returns the path of the copy in a bundle, where readers search it by its build id.
    pub(crate) fn path_in_bundle(&self) -> Result<BundlePath> {
        let digits = self.id.to_string();
        let (first, rest) = digits.split_at_checked(2).unwrap_or((digits.as_str(), ""));
        BundlePath::new(&format!("{DEBUG_ROOT}/.build-id/{first}/{rest}.debug"))
    }

    /// Finds the file by `open`. `module` is the path of the module that names it.
    pub(crate) fn find(&self, module: &Path, open: impl Fn(&Path) -> io::Result<File>) -> Option<File> {
        let mut opened = self
            .candidates(module)
            .into_iter()
            .filter_map(|path| open(&path).ok());
        opened.find(|file| is_identified(file, &self.id))
    }

    /// Returns where the file may be. A relative path starts at the directory of the module.
    fn candidates(&self, module: &Path) -> Vec<PathBuf> {
        let digits = self.id.to_string();
        let by_id = digits.split_at_checked(2).map(|(first, rest)| {
            let below = format!(".build-id/{first}/{rest}.debug");
            Path::new(SYSTEM_ROOT).join(below)
        });
        let module = module.canonicalize().unwrap_or_else(|_| module.to_owned());
        let stated = module.parent().map(|directory| directory.join(&self.path));
        stated.into_iter().chain(by_id).collect()
    }
}

/// The contents of `.debug_sup` (DWARF 5, section 7.3.6).
struct Sup<'a> {
    is_supplementary: bool,
    path: &'a [u8],
    checksum: &'a [u8],
}

impl<'a> Sup<'a> {
    fn parse(section: &'a [u8]) -> Option<Self> {
        let (head, rest) = section.split_first_chunk::<3>()?;
        let [5, 0, kind @ 0..=1] = *head else { return None };
        let (path, rest) = split_at_nul(rest)?;
        // The length is LEB128. No checksum is longer than 127 bytes.
        let (&length, rest) = rest.split_first()?;
        let checksum = rest.get(..usize::from(length)).filter(|_| length < 0x80)?;
        Some(Self {
            is_supplementary: kind == 1,
            path,
            checksum,
        })
    }
}

fn split_at_nul(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Returns whether a file has this build id, or is a supplementary file with this checksum.
fn is_identified(file: &File, id: &BuildId) -> bool {
    if module_file::build_id(file, "").is_ok_and(|found| found.as_ref() == Some(id)) {
        return true;
    }
    // A file that `dwz` made has no program headers: its notes are found by their section.
    let notes = module_file::section(file, ".note.gnu.build-id", MAX_LINK)
        .ok()
        .flatten();
    if notes.is_some_and(|notes| module_file::build_id_in(&notes, 4).as_ref() == Some(id)) {
        return true;
    }
    let section = module_file::section(file, ".debug_sup", MAX_LINK).ok().flatten();
    let found = section.as_deref().and_then(Sup::parse);
    found.is_some_and(|found| found.is_supplementary && found.checksum == id.as_bytes())
}

/// Opens a regular file of the user.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    match path.metadata()?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other("not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwarf_5_section_is_parsed_or_refused() {
        let section = b"\x05\0\x01\0\x02\xaa\xbb";
        let found = Sup::parse(section).unwrap();
        assert!(found.is_supplementary && found.path.is_empty() && found.checksum == [0xaa, 0xbb]);
        for end in 0..section.len() {
            assert!(Sup::parse(&section[..end]).is_none(), "{end}");
        }
        assert!(Sup::parse(b"\x05\0\x02a\0\x01\xaa").is_none());
    }

    #[test]
    fn relative_path_starts_at_the_module() {
        let link = Link::new(b"../common.debug", &[0xab, 0xcd]).unwrap();
        let expected = ["/no/such/../common.debug", "/usr/lib/debug/.build-id/ab/cd.debug"];
        assert_eq!(
            link.candidates(Path::new("/no/such/tool")),
            expected.map(PathBuf::from)
        );
        assert_eq!(Link::new(b"", &[1]), None);
        assert_eq!(Link::new(b"..", &[1]), None);
    }
}
