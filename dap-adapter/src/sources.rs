//! Source files between the client, which names them by paths and numbers, and the debug information.

use crate::protocol::types::{Source, SourcePresentationHint};
use backtrail_debugger::Navigator;
use backtrail_debugger::source::short;
use std::collections::BTreeMap;
use std::path::Path;

/// The files that a client was told of by a number, and those that the debug information knows.
#[derive(Debug, Default)]
pub struct Sources {
    /// Number 1 first: files that only the bundle has, as the debug information names them.
    numbered: Vec<String>,
    /// The debug information's files by their last part; `None`: not looked at yet.
    known: Option<BTreeMap<String, Vec<String>>>,
}

impl Sources {
    /// A file for the client.
    pub fn describe(&mut self, navigator: &Navigator, file: &str) -> Source {
        let name = Some(short(file).to_owned());
        match navigator.sources.find(file) {
            // The copy in the bundle may be gone when the session is; its text is asked for by number.
            Some(found) if found.starts_with(navigator.session().root()) => Source {
                name,
                path: Some(file.to_owned()),
                source_reference: Some(self.number(file)),
                origin: Some("from the bundle".to_owned()),
                ..Source::default()
            },
            Some(found) => Source {
                name,
                path: Some(found.display().to_string()),
                ..Source::default()
            },
            None => Source {
                name,
                path: Some(file.to_owned()),
                origin: Some("not found; `sourcePaths` names folders to look in".to_owned()),
                presentation_hint: Some(SourcePresentationHint::Deemphasize),
                ..Source::default()
            },
        }
    }

    fn number(&mut self, file: &str) -> i64 {
        let known = self.numbered.iter().position(|known| known == file);
        let at = known.unwrap_or_else(|| {
            self.numbered.push(file.to_owned());
            self.numbered.len() - 1
        });
        at as i64 + 1
    }

    /// The file of a number.
    #[must_use]
    pub fn numbered(&self, number: i64) -> Option<&str> {
        let at = usize::try_from(number.checked_sub(1)?).ok()?;
        self.numbered.get(at).map(String::as_str)
    }

    /// The file of the debug information that the client means; `None`: none has that name.
    pub fn file_of(&mut self, navigator: &Navigator, source: &Source) -> Option<String> {
        let by_number = source.source_reference.and_then(|number| self.numbered(number));
        if let Some(file) = by_number {
            return Some(file.to_owned());
        }
        let path = source.path.as_ref().or(source.name.as_ref())?;
        let path = path.strip_prefix("file://").unwrap_or(path);
        let candidates = self.known(navigator).get(short(path))?;
        let wanted = Path::new(path);
        let is_it = |file: &&String| {
            let found = navigator.sources.find(file);
            found.is_some_and(|found| found == wanted || same_file(&found, wanted))
        };
        let found = candidates.iter().find(is_it);
        // Nothing there is it: a copy of the sources may lie elsewhere here.
        let nearest = || candidates.iter().max_by_key(|file| common_end(file, path));
        found.or_else(nearest).cloned()
    }

    /// All files that the debug information knows.
    pub fn all(&mut self, navigator: &Navigator) -> Vec<String> {
        self.known(navigator).values().flatten().cloned().collect()
    }

    fn known(&mut self, navigator: &Navigator) -> &BTreeMap<String, Vec<String>> {
        self.known.get_or_insert_with(|| {
            let mut known: BTreeMap<String, Vec<String>> = BTreeMap::new();
            let modules = navigator.session().processes().iter();
            let modules = modules.flat_map(|process| process.symbols.modules());
            for file in modules.filter_map(|module| module.file.as_ref()) {
                let files = file.source_files();
                // `<built-in>` is no file.
                for source in files.iter().filter(|file| !short(file).starts_with('<')) {
                    known
                        .entry(short(source).to_owned())
                        .or_default()
                        .push(source.to_string());
                }
            }
            for files in known.values_mut() {
                files.sort_unstable();
                files.dedup();
            }
            known
        })
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).ok();
    whole(one).is_some_and(|one| Some(one) == whole(other))
}

/// How many parts at their ends two paths have in common.
fn common_end(one: &str, other: &str) -> usize {
    let pairs = one.rsplit('/').zip(other.rsplit('/'));
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::common_end;

    #[test]
    fn paths_are_alike_by_their_ends() {
        assert_eq!(common_end("/build/a/b.c", "/home/a/b.c"), 2);
        assert_eq!(common_end("b.c", "/home/a/b.c"), 1);
        assert_eq!(common_end("/x/c.c", "/x/b.c"), 0);
    }
}
