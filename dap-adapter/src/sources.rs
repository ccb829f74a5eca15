//! Source files between the client, which names them by paths and numbers, and the debug
//! information.

use crate::protocol::types::{InitializeRequestPathFormat, Source, SourcePresentationHint};
use backtrail_debugger::Navigator;
use backtrail_debugger::source::{short, without_dots};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The files that the client knows by numbers, and those of the debug information.
#[derive(Debug, Default)]
pub struct Sources {
    /// Number 1 first: files that only the bundle has, as the debug information names them.
    numbered: Vec<String>,
    /// The paths that the client uses, by the real path of their file.
    of_client: HashMap<PathBuf, String>,
    /// The client writes paths as addresses, `file:///a.c`.
    by_address: bool,
}

impl Sources {
    /// None are known yet; as the client writes paths.
    #[must_use]
    pub fn of_client(format: Option<&InitializeRequestPathFormat>) -> Self {
        Self {
            by_address: format == Some(&InitializeRequestPathFormat::Uri),
            ..Self::default()
        }
    }

    /// A path as the client writes it.
    fn written(&self, path: &str) -> String {
        match self.by_address && path.starts_with('/') {
            true => address_of(path),
            false => path.to_owned(),
        }
    }

    /// Returns a file for the client: by the path that the client uses for it, or else by its
    /// normal path on this machine.
    pub fn describe(&mut self, navigator: &Navigator, file: &str) -> Source {
        let name = Some(short(file).to_owned());
        let session = navigator.session();
        let is_in_bundle = |found: &Path| {
            let root = session.bundle().and_then(|_| session.root().canonicalize().ok());
            root.zip(found.canonicalize().ok())
                .is_some_and(|(root, found)| found.starts_with(root))
        };
        match navigator.sources.find(file) {
            // The copy in the bundle may be gone when the session is; its text is asked for by
            // number.
            Some(found) if is_in_bundle(&found) => Source {
                name,
                path: Some(self.written(&without_dots(file))),
                source_reference: Some(self.number(file)),
                origin: Some(match navigator.bundled_source(file) {
                    Some(source) if source.lines.is_some() => "from the bundle, some lines only".to_owned(),
                    _ => "from the bundle".to_owned(),
                }),
                ..Source::default()
            },
            Some(found) => {
                let real = found.canonicalize().ok();
                let known = real.and_then(|real| self.of_client.get(&real).cloned());
                let path = known.unwrap_or_else(|| found.display().to_string());
                Source {
                    name,
                    path: Some(self.written(&path)),
                    ..Source::default()
                }
            }
            None => Source {
                name,
                path: Some(self.written(&without_dots(file))),
                origin: Some(
                    "not found; add its folder to `sourcePaths`, or a rule to `sourceMap`".to_owned(),
                ),
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
        let path = &path_of(source.path.as_ref().or(source.name.as_ref())?);
        let wanted = Path::new(path);
        if let Some(real) = wanted.canonicalize().ok().filter(|_| wanted.is_absolute()) {
            self.of_client.insert(real, path.clone());
        }
        let names = navigator.source_names();
        if wanted.is_file()
            && let Some(found) = names.of_file(&navigator.sources, wanted).into_iter().next()
        {
            return Some(found);
        }
        // Nothing there is it: a copy of the sources may be elsewhere on this machine, or the file
        // is only in the bundle.
        let copies = names
            .with_last(short(path))
            .iter()
            .filter(|file| match navigator.sources.find(file) {
                Some(found) if wanted.is_file() => same_text(&found, wanted),
                Some(_) => common_end(file, path) > 1,
                None => true,
            });
        copies.max_by_key(|file| common_end(file, path)).cloned()
    }

    /// Returns the key of a source file, which is the same for all names that the client uses.
    #[must_use]
    pub fn key_of(&self, source: &Source) -> String {
        let numbered = source.source_reference.and_then(|number| self.numbered(number));
        let named = || source.path.as_ref().or(source.name.as_ref());
        match numbered {
            Some(file) => file.to_owned(),
            None => {
                let path = named().map(|path| path_of(path)).unwrap_or_default();
                let whole = std::fs::canonicalize(&path).ok();
                whole.map_or(path, |whole| whole.display().to_string())
            }
        }
    }

    /// All files that the debug information knows.
    pub fn all(&mut self, navigator: &Navigator) -> Vec<String> {
        navigator.source_names().all().cloned().collect()
    }
}

/// Two files have the same text.
fn same_text(one: &Path, other: &Path) -> bool {
    let size = |path: &Path| path.metadata().ok().map(|metadata| metadata.len());
    let read = |path: &Path| std::fs::read(path).ok();
    size(one).is_some_and(|one| Some(one) == size(other))
        && read(one).is_some_and(|one| Some(one) == read(other))
}

/// The path that a client means by a path or an address of a file (RFC 8089).
fn path_of(text: &str) -> String {
    let Some(rest) = text.strip_prefix("file://") else {
        return text.to_owned();
    };
    let path = rest.find('/').and_then(|at| rest.get(at..)).unwrap_or(rest);
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let escaped = digits
            .filter(|_| first == b'%')
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = escaped.map_or(more, |_| more.get(2..).unwrap_or_default());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The address of a file (RFC 8089), with all but what RFC 3986 leaves as it is in a path escaped.
fn address_of(path: &str) -> String {
    let mut address = "file://".to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
                address.push(byte.into());
            }
            other => address.push_str(&format!("%{other:02X}")),
        }
    }
    address
}

/// Returns the number of equal components at the ends of two paths.
fn common_end(one: &str, other: &str) -> usize {
    let (one, other) = (without_dots(one), without_dots(other));
    let pairs = one.rsplit('/').zip(other.rsplit('/'));
    pairs.take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::{address_of, common_end, path_of};

    #[test]
    fn addresses_of_files_are_paths() {
        let path = "/a b/ü%/c++.c";
        assert_eq!(address_of(path), "file:///a%20b/%C3%BC%25/c%2B%2B.c");
        assert_eq!(path_of(&address_of(path)), path);
        for (text, path) in [
            ("/a%20b.c", "/a%20b.c"),
            ("file:///a%20b.c", "/a b.c"),
            ("file://localhost/a.c", "/a.c"),
            ("file:///a%2", "/a%2"),
            ("file:///%zz%", "/%zz%"),
        ] {
            assert_eq!(path_of(text), path, "{text}");
        }
    }

    #[test]
    fn paths_are_alike_by_their_ends() {
        assert_eq!(common_end("/build/a/b.c", "/home/a/b.c"), 2);
        assert_eq!(common_end("/out/../a/b.c", "/a/b.c"), 3);
        assert_eq!(common_end("b.c", "/home/a/b.c"), 1);
        assert_eq!(common_end("/x/c.c", "/x/b.c"), 0);
    }
}
