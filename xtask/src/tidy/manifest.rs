//! Manifests: every crate takes the workspace's lints; and a reader of dependency tables.

use super::{Problem, Source};

/// A line that makes a crate a dependency.
#[derive(Debug, PartialEq, Eq)]
pub struct Dependency<'a> {
    pub name: &'a str,
    pub line: usize,
    /// In `[dev-dependencies]`.
    pub for_tests: bool,
    /// In a table of some targets.
    pub for_target: bool,
}

/// The dependencies that a manifest names, of every kind and target.
///
/// The reader knows the subset of TOML in manifests: one table header or key per line.
pub fn dependencies(text: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut table = "";
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = header;
            if let Some((before, name)) = header.rsplit_once("dependencies.") {
                found.push(Dependency {
                    name,
                    line: at + 1,
                    for_tests: before.ends_with("dev-"),
                    for_target: before.starts_with("target."),
                });
            }
        } else if table.ends_with("dependencies")
            && let Some(end) = line.find(['.', '=', ' '])
            && !line.starts_with('#')
        {
            let for_tests = table.ends_with("dev-dependencies");
            found.push(Dependency {
                name: &line[..end],
                line: at + 1,
                for_tests,
                for_target: table.starts_with("target."),
            });
        }
    }
    found
}

/// Without the workspace's lints, clippy would pass what it must not.
pub fn check(source: &Source) -> Vec<Problem> {
    let inherits = source.text.contains("[lints]\nworkspace = true");
    if source.path == format!("{}/Cargo.toml", source.part()) && !inherits {
        return vec![Problem::new(
            source,
            0,
            "the crate does not inherit the workspace's lints",
        )];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_without_lints_is_found() {
        assert_eq!(check(&Source::sample("pt/Cargo.toml", "[package]\n")).len(), 1);
        assert_eq!(
            check(&Source::sample("pt/Cargo.toml", "[lints]\nworkspace = true\n")),
            []
        );
    }

    #[test]
    fn every_way_to_name_a_dependency_is_read() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n# c = \"1\"\n\
                    [dev-dependencies]\nd = { version = \"1\" }\n[target.x.dependencies.e]\nversion = \"1\"\n";
        let names: Vec<_> = dependencies(text)
            .iter()
            .map(|entry| (entry.name, entry.for_tests))
            .collect();
        assert_eq!(names, [("a", false), ("b", false), ("d", true), ("e", false)]);
    }
}
