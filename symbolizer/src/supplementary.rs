//! Finds supplementary debug files, to which `dwz` moves entries that several files share.
//!
//! `.gnu_debugaltlink` names one by path and build id. DWARF 5 has `.debug_sup` instead (section
//! 7.3.6), with a checksum in both files.

use crate::DebugSearch;
use crate::debug_ids::{file_name, find_by_id, load_with_id, parse_sup};
use crate::source::{Elf, Source};
use object::Object;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// A reference to a supplementary file.
pub(crate) struct SupplementaryLink<'d> {
    /// The path on the build machine. A relative one starts at the directory of the file that
    /// names it.
    path: &'d [u8],
    /// The build id, or the checksum of DWARF 5.
    id: &'d [u8],
}

impl<'d> SupplementaryLink<'d> {
    /// Returns the reference in a file, if it has one.
    pub fn of(source: &'d Source, elf: &Elf<'d>) -> Option<Self> {
        if let Some((path, id)) = elf.gnu_debugaltlink().ok().flatten() {
            return Some(Self { path, id });
        }
        let section = parse_sup(source.section(elf, ".debug_sup"))?;
        let is_reference = !section.is_supplementary && !section.path.is_empty();
        is_reference.then_some(Self {
            path: section.path,
            id: section.checksum,
        })
    }

    /// Returns the path for messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(self.path).into_owned()
    }
}

/// Finds a supplementary file by its build id or at its path. `holder` is the path of the file that
/// names it, if that is a file of this machine.
pub(crate) fn find(
    link: &SupplementaryLink<'_>,
    holder: Option<&Path>,
    search: &DebugSearch,
) -> Option<Source> {
    if let (Some((found, _)), _) = find_by_id(link.id, search) {
        return Some(found);
    }
    let mut paths = candidates(link, holder, search).into_iter();
    paths.find_map(|path| load_with_id(&path, link.id, search))
}

/// Returns the paths to try: the stated one, the stated one below each root, and its name in the
/// usual directories. Debian has a directory below `.dwz` for each architecture.
fn candidates(link: &SupplementaryLink<'_>, holder: Option<&Path>, search: &DebugSearch) -> Vec<PathBuf> {
    let Ok(stated) = std::str::from_utf8(link.path) else {
        return Vec::new();
    };
    let stated = Path::new(stated);
    let mut paths = Vec::new();
    // Links were resolved in the path of the holder, and `..` is relative to the result.
    let holder = holder.and_then(|holder| holder.canonicalize().ok());
    let directory = holder.as_ref().and_then(|holder| holder.parent());
    paths.extend(directory.map(|directory| directory.join(stated)));
    if stated.is_absolute() {
        let names = stated.components().map(|part| match part {
            Component::Normal(name) => Some(name),
            Component::RootDir => Some(OsStr::new("")),
            _ => None,
        });
        // The path must stay below the root.
        if let Some(names) = names.collect::<Option<Vec<_>>>() {
            let below: PathBuf = names.into_iter().filter(|name| !name.is_empty()).collect();
            paths.extend(search.roots.iter().map(|root| root.join(&below)));
            let inside = search.roots.iter().filter(|root| stated.starts_with(root));
            paths.extend(inside.map(|_| stated.to_owned()));
        }
    }
    let name = stated
        .file_name()
        .and_then(|name| file_name(name.as_encoded_bytes()));
    let architecture = stated.parent().and_then(Path::file_name);
    let architecture = architecture.filter(|name| *name != "..");
    if let Some(name) = name {
        let below_roots = search.roots.iter().map(|root| root.join(".dwz"));
        for directory in below_roots.chain(search.beside.iter().cloned()) {
            paths.push(directory.join(name));
            paths.extend(architecture.map(|below| directory.join(below).join(name)));
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(roots: &[&str]) -> DebugSearch {
        DebugSearch {
            roots: roots.iter().map(PathBuf::from).collect(),
            ..DebugSearch::none()
        }
    }

    #[test]
    fn stated_path_is_followed_only_from_files_of_this_machine() {
        let link = SupplementaryLink {
            path: b"/opt/dwz/../common.debug",
            id: b"1",
        };
        assert_eq!(candidates(&link, None, &search(&[])), Vec::<PathBuf>::new());
        let link = SupplementaryLink {
            path: b"../common.debug",
            id: b"1",
        };
        assert_eq!(candidates(&link, None, &search(&[])), Vec::<PathBuf>::new());
        let holder = std::env::current_exe().unwrap().canonicalize().unwrap();
        let expected = holder.parent().unwrap().join("../common.debug");
        assert_eq!(candidates(&link, Some(&holder), &search(&[])), [expected]);
    }

    #[test]
    fn roots_are_searched_by_path_and_name() {
        let link = SupplementaryLink {
            path: b"/usr/lib/debug/.dwz/x86_64-linux-gnu/tool.debug",
            id: b"1",
        };
        let found = candidates(&link, None, &search(&["/usr/lib/debug", "/symfs"]));
        let expected = [
            "/usr/lib/debug/usr/lib/debug/.dwz/x86_64-linux-gnu/tool.debug",
            "/symfs/usr/lib/debug/.dwz/x86_64-linux-gnu/tool.debug",
            "/usr/lib/debug/.dwz/x86_64-linux-gnu/tool.debug",
            "/usr/lib/debug/.dwz/tool.debug",
            "/usr/lib/debug/.dwz/x86_64-linux-gnu/tool.debug",
            "/symfs/.dwz/tool.debug",
            "/symfs/.dwz/x86_64-linux-gnu/tool.debug",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }
}
