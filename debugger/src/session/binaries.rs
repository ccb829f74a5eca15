//! Searches for the binaries that a core or bundle names: below the user's directories, by build
//! id, and on this machine.

use backtrail_bundle::SharedBytes;
use backtrail_bundle::core::FileBuild;
use backtrail_pt::BuildId;
use backtrail_symbolizer::DebugSearch;
use object::LittleEndian;
use object::elf::{SHF_EXECINSTR, SHT_NOBITS};
use object::read::elf::{ElfFile64, SectionHeader};
use std::path::{Component, Path, PathBuf};

/// Fedora and others link each installed binary here by its build id.
const BUILD_IDS_OF_SYSTEM: &str = "usr/lib";

/// The number of files that are listed by name in notes of one kind.
const MOST_NAMED: usize = 20;

/// A binary that is searched.
pub(super) struct Wanted<'a> {
    /// The path on the recorded machine.
    pub recorded: &'a str,
    /// The build id, if it is known.
    pub build_id: Option<&'a BuildId>,
    /// Whether this machine may be the recorded one, so that its own files are candidates.
    pub is_local: bool,
}

/// The result of a search.
pub(super) enum Found {
    /// A file that can be used.
    Binary(Binary),
    /// Only a file of another build.
    Refused {
        path: PathBuf,
        /// The mapped build and the found one, in words.
        mapped: String,
        found: String,
    },
    /// No file.
    Missing,
}

/// A file that was found.
pub(super) struct Binary {
    pub path: PathBuf,
    pub bytes: SharedBytes,
    /// Whether it is certainly the right build.
    pub is_verified: bool,
    /// Whether it has the debug information alone, and no code.
    pub is_debug_only: bool,
}

impl Wanted<'_> {
    /// Returns the path without the kernel's mark of a deleted file.
    fn path(&self) -> &str {
        self.recorded.strip_suffix(" (deleted)").unwrap_or(self.recorded)
    }

    /// Searches, and compares each file by `compare`. The right build is preferred, wherever it is.
    pub fn find(&self, search: &DebugSearch, compare: impl Fn(&SharedBytes) -> FileBuild) -> Found {
        let is_deleted = self.path() != self.recorded;
        let mut unverified = None;
        let mut refused = None;
        for path in self.candidates(search) {
            let Ok(bytes) = SharedBytes::map_file(&path) else {
                continue;
            };
            let comparison = compare(&bytes);
            let binary = |is_verified| Binary {
                is_debug_only: is_debug_only(&bytes),
                path: path.clone(),
                bytes: bytes.clone(),
                is_verified,
            };
            match comparison {
                FileBuild::Same => return Found::Binary(binary(true)),
                // The file that took the place of a deleted one is another.
                FileBuild::Unverified if !is_deleted => {
                    unverified.get_or_insert_with(|| binary(false));
                }
                FileBuild::Unverified => {
                    refused.get_or_insert_with(|| Found::Refused {
                        path: path.clone(),
                        mapped: "a file that was deleted".to_owned(),
                        found: "a file that may have replaced it".to_owned(),
                    });
                }
                FileBuild::Other { mapped, found } => {
                    refused.get_or_insert(Found::Refused {
                        path: path.clone(),
                        mapped,
                        found,
                    });
                }
            }
        }
        let unverified = unverified.map(Found::Binary);
        unverified.or(refused).unwrap_or(Found::Missing)
    }

    /// Returns the paths to try, best first.
    fn candidates(&self, search: &DebugSearch) -> Vec<PathBuf> {
        let recorded = Path::new(self.path());
        let below: PathBuf = recorded
            .components()
            .filter(|part| matches!(part, Component::Normal(_)))
            .collect();
        // A path with `..` could lead out of the directory.
        let is_plain = recorded.components().all(|part| part != Component::ParentDir);
        let mut paths = Vec::new();
        for root in search
            .roots
            .iter()
            .filter(|_| is_plain && recorded.file_name().is_some())
        {
            paths.push(root.join(&below));
            // `/lib` and `/bin` are links into `/usr` on many systems.
            paths.push(root.join("usr").join(&below));
            paths.extend(recorded.file_name().map(|name| root.join(name)));
        }
        if let Some(id) = self.build_id {
            paths.extend(search.by_build_id(id, ""));
            let local = self.is_local.then(|| PathBuf::from("/"));
            let systems = DebugSearch {
                roots: (search.roots.iter().cloned().chain(local))
                    .map(|root| root.join(BUILD_IDS_OF_SYSTEM))
                    .collect(),
                ..DebugSearch::none()
            };
            paths.extend(systems.by_build_id(id, ""));
        }
        if self.is_local {
            paths.push(recorded.to_owned());
        }
        if let Some(id) = self.build_id {
            paths.extend(search.by_build_id(id, ".debug"));
        }
        paths
    }
}

/// Returns whether an ELF file is one that `objcopy --only-keep-debug` made: its code has no bytes.
fn is_debug_only(bytes: &SharedBytes) -> bool {
    let Ok(elf) = ElfFile64::<LittleEndian>::parse(&**bytes) else {
        return false;
    };
    let sections = elf.elf_section_table();
    sections.iter().any(|section| {
        let is_code = section.sh_flags(LittleEndian).0 & SHF_EXECINSTR.0 != 0;
        is_code && section.sh_type(LittleEndian) == SHT_NOBITS
    })
}

/// Notes of one kind, of which at most [`MOST_NAMED`] name a file.
#[derive(Default)]
pub(super) struct NotesByFile {
    sentences: Vec<String>,
    more: usize,
}

impl NotesByFile {
    /// Adds a note about a file.
    pub fn add(&mut self, sentence: impl FnOnce() -> String) {
        match self.sentences.len() < MOST_NAMED {
            true => self.sentences.push(sentence()),
            false => self.more += 1,
        }
    }

    /// Returns the notes; `ending` completes "3 more files of the core …".
    pub fn finish(mut self, ending: &str) -> Vec<String> {
        if self.more != 0 {
            let files = if self.more == 1 { "file" } else { "files" };
            self.sentences
                .push(format!("{} more {files} of the core {ending}", self.more));
        }
        self.sentences
    }
}

/// Returns the note about a refused file.
pub(super) fn refusal(recorded: &str, path: &Path, mapped: &str, found: &str) -> String {
    format!(
        "{} is another build than the one in the process, and is not used: the process had {mapped}, \
         the file has {found}; pass the directory of the right file of {recorded} by --symfs DIR \
         (`debugRoots` in editors)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn wanted<'a>(recorded: &'a str, build_id: Option<&'a BuildId>) -> Wanted<'a> {
        Wanted {
            recorded,
            build_id,
            is_local: true,
        }
    }

    fn search(root: &Path) -> DebugSearch {
        DebugSearch {
            roots: vec![root.to_owned()],
            ..DebugSearch::none()
        }
    }

    /// Compares by contents: `right`, `wrong`, or anything else, which is not comparable.
    fn compare(bytes: &SharedBytes) -> FileBuild {
        match &**bytes {
            b"right" => FileBuild::Same,
            b"wrong" => FileBuild::Other {
                mapped: "x".to_owned(),
                found: "y".to_owned(),
            },
            _ => FileBuild::Unverified,
        }
    }

    #[test]
    fn right_build_is_found_behind_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let id = BuildId::new(&[0xab, 0xcd]).unwrap();
        let tool = wanted("/opt/tool", Some(&id));
        let find = || tool.find(&search(root), compare);
        assert!(matches!(find(), Found::Missing));
        fs::create_dir_all(root.join("opt")).unwrap();
        fs::write(root.join("opt/tool"), "wrong").unwrap();
        assert!(matches!(find(), Found::Refused { path, .. } if path == root.join("opt/tool")));
        for place in [
            ".build-id/ab/cd",
            "usr/lib/debug/.build-id/ab/cd",
            "usr/lib/.build-id/ab/cd",
            "tool",
        ] {
            let file = root.join(place);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "right").unwrap();
            let Found::Binary(found) = find() else {
                panic!("{place}")
            };
            assert!(found.is_verified && found.path == file, "{place}");
            fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn incomparable_file_is_used_unless_it_was_deleted() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tool"), "unknown").unwrap();
        let find = |recorded: &str| wanted(recorded, None).find(&search(folder.path()), compare);
        let found = find("/opt/tool");
        assert!(matches!(found, Found::Binary(found) if !found.is_verified));
        assert!(matches!(find("/opt/tool (deleted)"), Found::Refused { .. }));
        assert!(matches!(find("/opt/../tool"), Found::Missing));
    }

    #[test]
    fn notes_beyond_the_limit_are_counted() {
        let mut notes = NotesByFile::default();
        (0..MOST_NAMED + 3).for_each(|number| notes.add(|| number.to_string()));
        let notes = notes.finish("are missing");
        assert_eq!(notes.len(), MOST_NAMED + 1);
        assert_eq!(notes.last().unwrap(), "3 more files of the core are missing");
    }
}
