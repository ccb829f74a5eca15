//! Finds the files that DWARF was split off into: `.dwo` files and packages of them (`.dwp`). Paths in the DWARF are followed
//! below the places that the search allows, and nowhere else.

use crate::DebugSearch;
use crate::dwarf::{Skeleton, skeletons};
use crate::source::{Source, map_file};
use backtrail_pt::BuildId;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// More files are not opened.
const MAX_FILES: usize = 1 << 14;

/// A file of DWARF that was split off.
pub(crate) struct SplitFile {
    /// Its bytes.
    pub source: Source,
    /// It is a package of several.
    pub package: bool,
}

/// The files that the skeletons of `holder` are completed by, packages first; `id`: the module's.
pub(crate) fn find(holder: &Source, id: Option<&BuildId>, search: &DebugSearch) -> Vec<SplitFile> {
    let mut found = Vec::new();
    let Ok(elf) = holder.elf() else { return found };
    // Skeletons lend their addresses to what was split off.
    if holder.section(&elf, ".debug_addr").is_empty() {
        return found;
    }
    let skeletons = skeletons(holder, &elf);
    if skeletons.is_empty() {
        return found;
    }
    let load = |path: &Path| Source::load(map_file(path, search.max_file_size).ok()?).ok();
    let digits = id.map(ToString::to_string).unwrap_or_default();
    let by_id = digits.split_at_checked(2).map(|(first, rest)| {
        let roots = search.roots.iter();
        roots.map(move |root| root.join(".build-id").join(first).join(format!("{rest}.dwp")))
    });
    let packages = by_id.into_iter().flatten().chain(search.packages.iter().cloned());
    for path in packages {
        found.extend(load(&path).map(|source| SplitFile {
            source,
            package: true,
        }));
    }
    let mut tried = BTreeSet::new();
    for skeleton in &skeletons {
        for path in candidates(skeleton, search) {
            if found.len() >= MAX_FILES || !tried.insert(path.clone()) {
                continue;
            }
            // One that is another's has another id, and is left out when it is read.
            if let Some(source) = load(&path) {
                found.push(SplitFile {
                    source,
                    package: false,
                });
                break;
            }
        }
    }
    found
}

/// Where the file of a skeleton may be: in each directory that the search allows by its name, by its path, and by its path
/// from where it was compiled.
fn candidates(skeleton: &Skeleton<'_>, search: &DebugSearch) -> Vec<PathBuf> {
    let text = |bytes| {
        std::str::from_utf8(bytes)
            .ok()
            .filter(|text: &&str| !text.contains('\0'))
    };
    let (Some(file), Some(directory)) = (text(skeleton.file), text(skeleton.directory)) else {
        return Vec::new();
    };
    let (file, compiled) = (Path::new(file), Path::new(directory).join(file));
    let mut found = Vec::new();
    for allowed in search.beside.iter().chain(&search.roots) {
        let below = compiled.strip_prefix(allowed).ok();
        let mirrored = compiled.strip_prefix("/").ok();
        let plain = file.file_name().map(Path::new);
        let paths = [below, Some(file), mirrored, plain].into_iter().flatten();
        found.extend(
            paths
                .filter(|path| stays_below(path))
                .map(|path| allowed.join(path)),
        );
    }
    found
}

/// A relative path that does not leave the directory that it counts from.
fn stays_below(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_what_is_allowed() {
        let search = DebugSearch {
            beside: vec![PathBuf::from("/home/a/program")],
            ..DebugSearch::none()
        };
        let paths = |file: &str, directory: &str| {
            let skeleton = Skeleton {
                file: file.as_bytes(),
                directory: directory.as_bytes(),
            };
            candidates(&skeleton, &search)
        };
        let expected = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            paths("obj/x.dwo", "/home/a/program/build"),
            expected(&[
                "/home/a/program/build/obj/x.dwo",
                "/home/a/program/obj/x.dwo",
                "/home/a/program/home/a/program/build/obj/x.dwo",
                "/home/a/program/x.dwo",
            ])
        );
        assert_eq!(
            paths("../../../etc/passwd", "/home/a/program"),
            expected(&["/home/a/program/passwd"])
        );
        assert_eq!(
            paths("/etc/passwd", ""),
            expected(&["/home/a/program/etc/passwd", "/home/a/program/passwd"])
        );
        assert_eq!(paths("..", "/"), expected(&[]));
        assert_eq!(paths("a\0b", "/"), expected(&[]));
    }
}
