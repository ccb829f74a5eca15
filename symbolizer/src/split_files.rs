//! Finds split DWARF: `.dwo` files and packages (`.dwp`). Paths in the DWARF are only followed
//! below the directories that the search allows.

use crate::DebugSearch;
use crate::dwarf::{Skeleton, skeletons};
use crate::source::{Source, SplitFile, map_file};
use backtrail_pt::BuildId;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// The most files that are opened.
const MAX_FILES: usize = 1 << 14;

/// Returns the split files for the skeleton units of `holder`, packages first. `id` is the module's
/// build id.
pub(crate) fn find(holder: &Source, id: Option<&BuildId>, search: &DebugSearch) -> Vec<SplitFile> {
    let mut found = Vec::new();
    let Ok(elf) = holder.elf() else { return found };
    // Skeleton units own the addresses that split units use.
    if holder.section(&elf, ".debug_addr").is_empty() {
        return found;
    }
    let skeletons = skeletons(holder, &elf);
    if skeletons.is_empty() {
        return found;
    }
    let load = |path: &Path| Source::load(map_file(path, search.max_file_size).ok()?).ok();
    let by_id = id.map(|id| search.by_build_id(id, ".dwp"));
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
            // A file of another build has another id. It is dropped when its units are added.
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

/// Returns the paths where a skeleton's file may be. In each allowed directory, they are its name,
/// its path, and its path relative to the compilation directory.
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

/// Returns whether a relative path stays below its base directory.
fn stays_below(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_outside_of_allowed_directories_are_refused() {
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
