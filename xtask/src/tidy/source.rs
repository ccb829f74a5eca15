//! The files of the repository, and which of their lines are code that ships.

use std::path::Path;
use std::{fs, io};

/// A text file.
#[derive(Debug)]
pub struct Source {
    /// Relative to the repository's root, with slashes.
    pub path: String,
    /// All of it.
    pub text: String,
}

impl Source {
    /// The first folder of the path: the part of the project that the file belongs to.
    pub fn part(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    /// Rust that is compiled into a part, not its tests.
    pub fn ships(&self) -> bool {
        let is_test = self.path.ends_with("/tests.rs") || self.path.contains("/tests/");
        self.is_rust() && self.path.split('/').nth(1) == Some("src") && !is_test
    }

    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Its lines, numbered from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(at, line)| (at + 1, line))
    }

    /// The lines before the unit tests, numbered from 1, each without its comment.
    ///
    /// By this project's habit the tests are the file's last item; a line that only names the
    /// attribute inside code ends nothing.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests_follow = |at: usize| {
            let mut rest = self.text.lines().skip(at + 1);
            rest.next()
                .is_some_and(|line| line.starts_with("mod ") || line.starts_with("pub(crate) mod "))
        };
        let end = (0..)
            .zip(self.text.lines())
            .find(|&(at, line)| line == "#[cfg(test)]" && tests_follow(at) && self.inline_module_at(at + 1))
            .map_or(usize::MAX, |(at, _)| at);
        self.lines()
            .take(end)
            .map(|(number, line)| (number, without_comment(line)))
    }

    /// `mod tests {` rather than `mod tests;`, after which code may go on.
    fn inline_module_at(&self, at: usize) -> bool {
        self.text.lines().nth(at).is_some_and(|line| line.ends_with('{'))
    }
}

/// Cuts a `//` comment off, unless the slashes stand in a string.
fn without_comment(line: &str) -> &str {
    let quotes_before = |at: usize| line[..at].matches('"').count() - line[..at].matches("\\\"").count();
    line.match_indices("//")
        .find(|&(at, _)| quotes_before(at) % 2 == 0)
        .map_or(line, |(at, _)| &line[..at])
}

/// Outputs of builds, git and npm, which are no sources. In a worktree `.git` is a file.
const BUILT: &[&str] = &["target", ".git", "node_modules", "dist"];

/// Every text file of the repository but what building leaves there.
pub fn all() -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    read(Path::new(""), &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn read(folder: &Path, sources: &mut Vec<Source>) -> io::Result<()> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    for entry in fs::read_dir(here)? {
        let entry = entry?;
        let name = entry.file_name();
        let path = folder.join(&name);
        let kind = entry.file_type()?;
        if BUILT.iter().any(|built| name == *built) {
            continue;
        }
        if kind.is_dir() {
            read(&path, sources)?;
        } else if kind.is_file()
            && name != "Cargo.lock"
            && let Ok(text) = fs::read_to_string(&path)
        {
            sources.push(Source {
                path: path.to_string_lossy().into_owned(),
                text,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
impl Source {
    /// A sample for the tests of checks.
    pub fn sample(path: &str, text: &str) -> Self {
        Self {
            path: path.into(),
            text: text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_ends_at_the_tests_and_has_no_comments() {
        let text = "let a = \"http://x\"; // why\n#[cfg(test)]\nmod helper;\nb();\n#[cfg(test)]\nmod tests {\nc();\n}\n";
        let source = Source::sample("pt/src/a.rs", text);
        let code: Vec<_> = source.code().collect();
        assert_eq!(
            code,
            [
                (1, "let a = \"http://x\"; "),
                (2, "#[cfg(test)]"),
                (3, "mod helper;"),
                (4, "b();")
            ]
        );
    }

    #[test]
    fn tests_and_scripts_do_not_ship() {
        assert!(Source::sample("pt/src/lib.rs", "").ships());
        for path in [
            "pt/tests/a.rs",
            "pt/src/parser/tests.rs",
            "pt/src/parser/tests/long.rs",
            "pt/Cargo.toml",
            "README.md",
        ] {
            assert!(!Source::sample(path, "").ships(), "{path}");
        }
    }
}
