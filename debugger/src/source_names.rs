//! The names of source files in the debug information, and which of them are one file.
//!
//! Compilers write a path as they got it. One file can have a name with `..`, another one through a
//! link, and a third one in a directory of the build machine.

use crate::session::Session;
use crate::source::{SourceFinder, is_same_file, short};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The names of all source files.
#[derive(Debug, Default)]
pub struct SourceNames {
    by_last: BTreeMap<String, Vec<String>>,
    /// The names by the file that they lead to, once they were needed.
    by_file: RefCell<Option<NamesByFile>>,
}

/// The names by the real path of the file that they lead to.
#[derive(Debug)]
struct NamesByFile {
    /// The rules by which the files were found.
    finder: SourceFinder,
    names: HashMap<PathBuf, Vec<String>>,
}

impl SourceNames {
    /// Collects the names of all modules.
    pub(crate) fn of(session: &Session) -> Self {
        let modules = session.processes().iter();
        let epochs = modules.flat_map(|process| process.epochs());
        let modules = epochs.flat_map(|epoch| epoch.symbols.modules());
        let mut files: Vec<_> = modules.filter_map(|module| module.file.as_ref()).collect();
        files.sort_by_key(|file| std::sync::Arc::as_ptr(file));
        files.dedup_by_key(|file| std::sync::Arc::as_ptr(file));
        let names = files.iter().flat_map(|file| file.source_files());
        names.map(|name| name.to_string()).collect()
    }

    /// Returns the names with this last component.
    #[must_use]
    pub fn with_last(&self, last: &str) -> &[String] {
        self.by_last.get(last).map_or(&[], Vec::as_slice)
    }

    /// Returns all names.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.by_last.values().flatten()
    }

    /// Returns the names that lead to an existing file.
    ///
    /// Names with the same last component come first. Others are only compared if there is none,
    /// because a link may have any name.
    #[must_use]
    pub fn of_file(&self, finder: &SourceFinder, file: &Path) -> Vec<String> {
        let leads_there = |name: &&String| {
            let found = finder.find(name);
            found.is_some_and(|found| is_same_file(&found, file))
        };
        let last = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let real = file.canonicalize().ok();
        let mut ends: Vec<String> = [Some(file), real.as_deref()]
            .into_iter()
            .flatten()
            .filter_map(last)
            .collect();
        ends.dedup();
        let alike = ends.iter().flat_map(|end| self.with_last(end));
        let found: Vec<String> = alike.filter(leads_there).cloned().collect();
        match real {
            Some(real) if found.is_empty() => self.leading_to(&real, finder),
            _ => found,
        }
    }

    /// Returns the names that lead to the file with this real path. An editor may ask for files
    /// that have no code, so the files of all names are found only once.
    fn leading_to(&self, real: &Path, finder: &SourceFinder) -> Vec<String> {
        let mut by_file = self.by_file.borrow_mut();
        if by_file.as_ref().is_none_or(|known| known.finder != *finder) {
            let mut names: HashMap<PathBuf, Vec<String>> = HashMap::new();
            for name in self.all() {
                let found = finder.find(name).and_then(|found| found.canonicalize().ok());
                if let Some(found) = found {
                    names.entry(found).or_default().push(name.clone());
                }
            }
            *by_file = Some(NamesByFile {
                finder: finder.clone(),
                names,
            });
        }
        let known = by_file.as_ref().and_then(|known| known.names.get(real));
        known.cloned().unwrap_or_default()
    }

    /// Returns all names of the file that a location names: an absolute path, or a whole name of
    /// the debug information. The result is empty if the file does not exist.
    #[must_use]
    pub fn same_as(&self, finder: &SourceFinder, file: &str) -> Vec<String> {
        let is_known = self.with_last(short(file)).iter().any(|name| name == file);
        let found = match is_known {
            true => finder.find(file),
            false => Some(PathBuf::from(file)).filter(|path| path.is_absolute() && path.is_file()),
        };
        found
            .map(|found| self.of_file(finder, &found))
            .unwrap_or_default()
    }
}

impl FromIterator<String> for SourceNames {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        let mut by_last: BTreeMap<String, Vec<String>> = BTreeMap::new();
        // `<built-in>` is no file.
        for name in names.into_iter().filter(|name| !short(name).starts_with('<')) {
            by_last.entry(short(&name).to_owned()).or_default().push(name);
        }
        for names in by_last.values_mut() {
            names.sort_unstable();
            names.dedup();
        }
        Self {
            by_last,
            by_file: RefCell::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_one_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("src")).unwrap();
        std::fs::create_dir_all(root.join("build")).unwrap();
        for file in ["src/a.h", "build/a.h"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(root.join("src"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("src/a.h"), root.join("b.h")).unwrap();
        let at = |path: &str| format!("{}/{path}", root.display());
        let names = ["build/../src/a.h", "link/a.h", "build/a.h"].map(at);
        let known: SourceNames = names.iter().cloned().collect();
        let finder = SourceFinder::default();
        let expected = [names[0].clone(), names[1].clone()];
        // The editor's path, a link to the file, and a name of the debug information.
        for file in [at("src/a.h"), at("b.h"), at("link/a.h"), names[0].clone()] {
            assert_eq!(known.same_as(&finder, &file), expected, "{file}");
        }
        for other in ["a.h", "src/a.h", &at("no/a.h"), &at("src")] {
            assert!(known.same_as(&finder, other).is_empty(), "{other}");
        }
        // The debug information has a link's name.
        let linked: SourceNames = [at("b.h")].into_iter().collect();
        assert_eq!(linked.same_as(&finder, &at("src/a.h")), [at("b.h")]);
        // A rule that came later counts.
        std::fs::write(root.join("build/c.h"), "").unwrap();
        assert!(linked.same_as(&finder, &at("build/c.h")).is_empty());
        let moved = SourceFinder {
            substitutions: vec![(at("b.h"), at("build/c.h"))],
            ..SourceFinder::default()
        };
        assert_eq!(linked.same_as(&moved, &at("build/c.h")), [at("b.h")]);
    }
}
