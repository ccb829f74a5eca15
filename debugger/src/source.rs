//! Source text: where to find it, and lines of it.

use backtrail_bundle::module_file::identity;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// No source file is larger than this.
const MAX_SOURCE: u64 = 64 << 20;

/// Lines of a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceLines {
    /// The file, as the debug information names it.
    pub file: String,
    /// The number of the first line.
    pub first: u32,
    /// The text of the lines; `None` if the file was not found.
    pub lines: Option<Vec<String>>,
    /// The line of the current position, if it is one of these.
    pub current: Option<u32>,
    /// The execution count of each line in the history of the thread, if requested.
    ///
    /// 0 means that the line has code that did not run, `None` that it has no code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executions: Option<Vec<Option<u64>>>,
}

/// The places where source files are searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFinder {
    /// (FROM, TO) of `set substitute-path`: a path that begins with FROM is searched at TO.
    pub substitutions: Vec<(String, String)>,
    /// Directories to look in, also by the end of the path.
    pub directories: Vec<PathBuf>,
    /// If set, source text is read below these folders and the substitutions only.
    ///
    /// The debug information of a bundle may name any file, and the reader of its text may be
    /// another user.
    pub readable: Option<Vec<PathBuf>>,
}

impl SourceFinder {
    /// Returns the file of a path in the debug information.
    ///
    /// The search tries the substitutions, the path itself, and then the directories with shorter
    /// and shorter ends of the path. The result is absolute, and has no `.` and `..`.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<PathBuf> {
        let found = self.candidates(path).find(|candidate| is_source(candidate))?;
        Some(normal_path(&found))
    }

    /// The file whose text may be read for a path that the debug information names.
    #[must_use]
    pub fn find_readable(&self, path: &str) -> Option<PathBuf> {
        let Some(readable) = &self.readable else {
            return self.find(path);
        };
        let targets = self.substitutions.iter().map(|(_, to)| Path::new(to));
        let folders: Vec<PathBuf> = readable
            .iter()
            .map(PathBuf::as_path)
            .chain(targets)
            .filter_map(|folder| folder.canonicalize().ok())
            .collect();
        // The file itself: a link in a folder may lead out of it.
        self.candidates(path)
            .filter_map(|candidate| candidate.canonicalize().ok())
            .find(|file| folders.iter().any(|folder| file.starts_with(folder)) && is_source(file))
    }

    /// Returns the candidate paths of a file.
    fn candidates(&self, path: &str) -> impl Iterator<Item = PathBuf> {
        // A rule may be about the path as it is recorded, or about the one without `..`.
        let normalized = without_dots(path);
        let spellings = [path, &normalized];
        let substituted = self.substitutions.iter().flat_map(|(from, to)| {
            spellings.into_iter().filter_map(move |path| {
                let rest = path.strip_prefix(from.as_str())?;
                (rest.is_empty() || rest.starts_with('/') || from.ends_with('/')).then(|| {
                    match rest.trim_start_matches('/') {
                        "" => PathBuf::from(to),
                        rest => Path::new(to).join(rest),
                    }
                })
            })
        });
        let itself = std::iter::once(PathBuf::from(path)).filter(|path| path.is_absolute());
        let parts: Vec<&str> = normalized
            .split('/')
            .filter(|part| !matches!(*part, "" | ".."))
            .collect();
        let below = self.directories.iter().flat_map(|directory| {
            (0..parts.len()).map(|skipped| {
                let mut candidate = directory.clone();
                candidate.extend(parts.get(skipped..).unwrap_or(&[]));
                candidate
            })
        });
        let candidates: Vec<PathBuf> = substituted.chain(itself).chain(below).collect();
        candidates.into_iter()
    }

    /// Line `line` (from 1) of the file.
    #[must_use]
    pub fn line(&self, path: &str, line: u32) -> Option<String> {
        self.lines(path, line, 1)?.into_iter().next()
    }

    /// Up to `count` lines from line `first` (from 1) on; `None` when the file is not found.
    #[must_use]
    pub fn lines(&self, path: &str, first: u32, count: usize) -> Option<Vec<String>> {
        let text = std::fs::read(self.find_readable(path)?).ok()?;
        let text = String::from_utf8_lossy(&text);
        let skipped = first.saturating_sub(1) as usize;
        // Escape sequences in a source file must not control the terminal.
        let clean = |line: &str| line.chars().filter(|c| *c == '\t' || !c.is_control()).collect();
        Some(text.lines().skip(skipped).take(count).map(clean).collect())
    }
}

/// Returns a path without `.`, and without `..` where it follows a name. Links are not resolved.
#[must_use]
pub fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if path.starts_with('/') && parts.is_empty() => {}
            _ => parts.push(part),
        }
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    format!("{root}{}", parts.join("/"))
}

/// Returns the absolute path of an existing file without `.` and `..`, as editors write it.
///
/// Links stay, unless `..` follows one: then the parent is that of the link's target.
fn normal_path(found: &Path) -> PathBuf {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    let text = found.to_str();
    let plain = text.and_then(|text| text.strip_prefix('/'));
    if plain.is_some_and(|rest| rest.split('/').all(is_plain)) {
        return found.to_owned();
    }
    let absolute = std::path::absolute(found).unwrap_or_else(|_| found.to_owned());
    let lexical = absolute.to_str().map(|path| PathBuf::from(without_dots(path)));
    match lexical {
        Some(lexical) if is_same_file(&lexical, found) => lexical,
        _ => found.canonicalize().unwrap_or(absolute),
    }
}

/// Returns whether two paths lead to one file.
#[must_use]
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

fn is_source(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_SOURCE)
}

/// The last part of a path, for display.
#[must_use]
pub fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_substitution_and_by_the_end_of_their_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        std::fs::write(dir.path().join("src/a.c"), "one\ntwo\n").unwrap();
        let mut finder = SourceFinder::default();
        assert_eq!(finder.line("/gone/src/a.c", 2), None);
        finder.directories.push(dir.path().to_owned());
        assert_eq!(finder.line("/gone/src/a.c", 2).as_deref(), Some("two"));
        finder.directories.clear();
        finder
            .substitutions
            .push(("/gone".into(), dir.path().display().to_string()));
        assert_eq!(finder.line("/gone/src/a.c", 1).as_deref(), Some("one"));
        assert_eq!(finder.line("/goner/src/a.c", 1), None);
    }

    #[test]
    fn found_paths_are_those_of_editors() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["src", "build/sub", "deep/er"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("src/a.c"), "one\n").unwrap();
        std::fs::write(root.join("deep/b.c"), "two\n").unwrap();
        std::os::unix::fs::symlink(root.join("deep/er"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("src"), root.join("other")).unwrap();
        let finder = SourceFinder::default();
        let find = |path: &str| finder.find(&format!("{}/{path}", root.display()));
        for (path, expected) in [
            ("build/../src/a.c", "src/a.c"),
            ("build/sub/../../src/./a.c", "src/a.c"),
            ("src//a.c", "src/a.c"),
            // A link stays, unless `..` follows it.
            ("build/../other/a.c", "other/a.c"),
            ("link/../b.c", "deep/b.c"),
        ] {
            assert_eq!(find(path), Some(root.join(expected)), "{path}");
        }
    }

    #[test]
    fn rules_and_directories_see_the_path_without_dots() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::create_dir_all(root.join("build/src")).unwrap();
        std::fs::write(root.join("src/a.c"), "right\n").unwrap();
        std::fs::write(root.join("build/src/a.c"), "wrong\n").unwrap();
        let mut finder = SourceFinder {
            substitutions: vec![("/gone/src".into(), root.join("src").display().to_string())],
            ..SourceFinder::default()
        };
        let wanted = Some(root.join("src/a.c"));
        assert_eq!(finder.find("/gone/build/../src/a.c"), wanted);
        finder.substitutions.clear();
        finder.directories.push(root.clone());
        assert_eq!(finder.find("/gone/build/../src/a.c"), wanted);
        assert_eq!(finder.find("./build/../src/a.c"), wanted);
    }

    #[test]
    fn text_is_read_below_the_readable_folders_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (work, home) = (dir.path().join("work"), dir.path().join("home"));
        for (folder, text) in [(&work, "code\n"), (&home, "secret\n")] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a.c"), text).unwrap();
        }
        std::os::unix::fs::symlink(home.join("a.c"), work.join("link.c")).unwrap();
        std::os::unix::fs::symlink(&home, work.join("folder")).unwrap();
        let named = |path: PathBuf| path.display().to_string();
        let mut finder = SourceFinder {
            readable: Some(vec![work.clone()]),
            ..SourceFinder::default()
        };
        assert_eq!(finder.line(&named(work.join("a.c")), 1).as_deref(), Some("code"));
        for outside in [
            home.join("a.c"),
            work.join("link.c"),
            work.join("folder/a.c"),
            work.join("../home/a.c"),
        ] {
            assert!(finder.find(&named(outside.clone())).is_some());
            assert_eq!(
                finder.line(&named(outside.clone()), 1),
                None,
                "{}",
                outside.display()
            );
        }
        // A file of the same name in a readable folder is used instead.
        finder.directories.push(work.clone());
        assert_eq!(finder.line(&named(home.join("a.c")), 1).as_deref(), Some("code"));
        finder.directories.clear();
        finder
            .substitutions
            .push((named(home.clone()), named(home.clone())));
        assert_eq!(
            finder.line(&named(home.join("a.c")), 1).as_deref(),
            Some("secret")
        );
    }
}
