//! Source text: where to find it, and lines of it.

use std::path::{Path, PathBuf};

/// No source file is larger than this.
const MAX_SOURCE: u64 = 64 << 20;

/// Where source files are looked for.
#[derive(Clone, Debug, Default)]
pub struct SourceFinder {
    /// (FROM, TO) of `set substitute-path`: a path that begins with FROM is looked for at TO.
    pub substitutions: Vec<(String, String)>,
    /// Directories to look in, also by the end of the path.
    pub directories: Vec<PathBuf>,
}

impl SourceFinder {
    /// The file for a path that the debug information names: by the substitutions, at the path itself,
    /// then in the directories, by longer and shorter ends of the path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<PathBuf> {
        let substituted = self.substitutions.iter().filter_map(|(from, to)| {
            let rest = path.strip_prefix(from.as_str())?;
            (rest.is_empty() || rest.starts_with('/') || from.ends_with('/')).then(|| {
                let mut moved = PathBuf::from(to);
                moved.push(rest.trim_start_matches('/'));
                moved
            })
        });
        let itself = std::iter::once(PathBuf::from(path)).filter(|path| path.is_absolute());
        let parts: Vec<&str> = path
            .split('/')
            .filter(|part| !matches!(*part, "" | "." | ".."))
            .collect();
        let below = self.directories.iter().flat_map(|directory| {
            (0..parts.len()).map(|skipped| {
                let mut candidate = directory.clone();
                candidate.extend(parts.get(skipped..).unwrap_or(&[]));
                candidate
            })
        });
        substituted
            .chain(itself)
            .chain(below)
            .find(|candidate| is_source(candidate))
    }

    /// Line `line` (from 1) of the file.
    #[must_use]
    pub fn line(&self, path: &str, line: u32) -> Option<String> {
        self.lines(path, line, 1)?.into_iter().next()
    }

    /// Up to `count` lines from line `first` (from 1) on; `None` when the file is not found.
    #[must_use]
    pub fn lines(&self, path: &str, first: u32, count: usize) -> Option<Vec<String>> {
        let text = std::fs::read(self.find(path)?).ok()?;
        let text = String::from_utf8_lossy(&text);
        let skipped = first.saturating_sub(1) as usize;
        // A terminal must not be steered by what stands in a source file.
        let clean = |line: &str| line.chars().filter(|c| *c == '\t' || !c.is_control()).collect();
        Some(text.lines().skip(skipped).take(count).map(clean).collect())
    }
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
}
