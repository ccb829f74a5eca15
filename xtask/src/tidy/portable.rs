//! The crates that an engineer's laptop needs use Linux only under `cfg`.
//!
//! This check needs no other compiler target. `cargo xtask portable` compiles the crates for macOS
//! and Windows.

use super::manifest::{self, Dependency};
use super::{Problem, Source};
use std::collections::BTreeMap;

/// The crates that build for every system: all that reads, decodes, debugs and exports a bundle.
pub const PORTABLE: &[&str] = &[
    "pt",
    "perf",
    "bundle",
    "decoder",
    "semantics",
    "symbolizer",
    "values",
    "debugger",
    "console",
    "export",
    "profile",
    "dap-adapter",
];

/// Libraries of one system or family, which such a crate may use in a table of its target only.
const LIBRARIES: &[&str] = &[
    "aya",
    "caps",
    "libc",
    "nix",
    "perf-event-open-sys",
    "rustix",
    "sd-notify",
    "seccompiler",
];

/// Names of one system or family.
const NAMES: &[&str] = &["std::os::", "libc::", "nix::", "rustix::", "perf_event_open_sys"];

/// Checks the manifests and the code of the portable crates.
pub fn check(sources: &[Source]) -> Vec<Problem> {
    let attributes = attributes(sources);
    let mut problems = Vec::new();
    for source in sources.iter().filter(|source| PORTABLE.contains(&source.part())) {
        if source.path == format!("{}/Cargo.toml", source.part()) {
            problems.extend(unconditional(source));
        }
        if source.ships() && !is_conditional(&source.path, &attributes) {
            problems.extend(uses(source));
        }
    }
    problems
}

/// Returns the dependencies on a system's libraries that are not in a table of a target.
fn unconditional(source: &Source) -> Vec<Problem> {
    let bad =
        |found: &Dependency<'_>| !found.for_tests && !found.for_target && LIBRARIES.contains(&found.name);
    let problem = |found: Dependency<'_>| {
        let table = "[target.'cfg(target_os = \"linux\")'.dependencies]";
        let message = format!("`{}` is a library of one system: name it in {table}", found.name);
        Problem::new(source, found.line, message)
    };
    manifest::dependencies(&source.text)
        .into_iter()
        .filter(bad)
        .map(problem)
        .collect()
}

/// Returns the lines outside of items with `cfg` that use names of a system.
fn uses(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    // The braces that an item with `cfg` has opened; it ends at a brace or semicolon without any.
    let mut conditional: Option<i32> = None;
    for (number, code) in source.code() {
        if conditional.is_none() && is_cfg(code) {
            conditional = Some(0);
            continue;
        }
        if let Some(open) = conditional {
            if code.trim_start().starts_with("#[") {
                continue;
            }
            let opened = code.matches(['{', '(']).count() as i32;
            let closed = code.matches(['}', ')']).count() as i32;
            let open = open + opened - closed;
            let has_ended = open <= 0 && code.trim_end().ends_with(['}', ';', ',']);
            conditional = (!has_ended).then_some(open);
            continue;
        }
        if let Some(name) = NAMES.iter().find(|name| code.contains(**name)) {
            let message = format!("`{name}` is of one system: put its item behind `cfg`");
            problems.push(Problem::new(source, number, message));
        }
    }
    problems
}

/// Returns whether a line is an attribute that compiles an item for some systems only.
fn is_cfg(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("#[cfg(")
        && ["unix", "windows", "target_os"]
            .iter()
            .any(|word| line.contains(word))
}

/// Returns the modules that are declared under `cfg`, by the paths of their files.
fn attributes(sources: &[Source]) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for source in sources.iter().filter(|source| source.ships()) {
        let folder = match source.path.strip_suffix("/mod.rs") {
            Some(folder) => folder,
            None => source.path.trim_end_matches(".rs"),
        };
        let folder = match folder.strip_suffix("/lib") {
            Some(root) => root,
            None => folder,
        };
        let mut is_conditional = false;
        for (_, code) in source.code() {
            let code = code.trim();
            if code.starts_with("#[") {
                is_conditional |= is_cfg(code);
                continue;
            }
            let declared = code
                .rsplit_once("mod ")
                .and_then(|(_, name)| name.strip_suffix(';'));
            if let Some(name) = declared {
                found.insert(format!("{folder}/{name}"), is_conditional);
            }
            is_conditional = false;
        }
    }
    found
}

/// Returns whether a file, or a module that contains it, is declared under `cfg`.
fn is_conditional(path: &str, attributes: &BTreeMap<String, bool>) -> bool {
    let mut module = path.trim_end_matches(".rs").trim_end_matches("/mod");
    loop {
        if attributes.get(module) == Some(&true) {
            return true;
        }
        let Some((parent, _)) = module.rsplit_once('/') else {
            return false;
        };
        module = parent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(sources: &[(&str, &str)]) -> Vec<String> {
        let sources: Vec<Source> = sources
            .iter()
            .map(|(path, text)| Source::sample(path, text))
            .collect();
        check(&sources)
            .into_iter()
            .map(|problem| format!("{}:{}", problem.path, problem.line))
            .collect()
    }

    #[test]
    fn library_of_one_system_needs_a_target_table() {
        let text = "[dependencies]\nnix.workspace = true\nlibc = \"0.2\"\nserde = \"1\"\n";
        assert_eq!(
            messages(&[("bundle/Cargo.toml", text)]),
            ["bundle/Cargo.toml:2", "bundle/Cargo.toml:3"]
        );
        let text = "[dependencies.nix]\nversion = \"1\"\n";
        assert_eq!(messages(&[("bundle/Cargo.toml", text)]), ["bundle/Cargo.toml:1"]);
        let text =
            "[target.'cfg(unix)'.dependencies]\nnix.workspace = true\n[dev-dependencies]\nlibc = \"0.2\"\n";
        assert_eq!(messages(&[("bundle/Cargo.toml", text)]), [""; 0]);
        let text = "[dependencies]\nnix.workspace = true\n";
        assert_eq!(messages(&[("collector/Cargo.toml", text)]), [""; 0]);
    }

    #[test]
    fn names_of_one_system_need_cfg() {
        let text = "//! A.\nuse std::os::unix::fs::MetadataExt;\nfn f() {\n    nix::unistd::getuid();\n}\n";
        assert_eq!(
            messages(&[("export/src/a.rs", text)]),
            ["export/src/a.rs:2", "export/src/a.rs:4"]
        );
        let text = "//! A.\n#[cfg(unix)]\n#[must_use]\nfn f() {\n    nix::unistd::getuid();\n}\nfn g() {\n    libc::getpid();\n}\n";
        assert_eq!(messages(&[("export/src/a.rs", text)]), ["export/src/a.rs:8"]);
        let text = "//! A.\n#[cfg(not(test))]\nfn f() {\n    nix::unistd::getuid();\n}\n";
        assert_eq!(messages(&[("export/src/a.rs", text)]), ["export/src/a.rs:4"]);
        assert_eq!(messages(&[("recorder/src/a.rs", text)]), [""; 0]);
    }

    #[test]
    fn module_behind_cfg_may_use_them() {
        let root = "//! A.\n#[cfg(target_os = \"linux\")]\n#[allow(unsafe_code)]\npub mod a;\nmod b;\n";
        let used = "//! A.\nuse std::os::fd::OwnedFd;\n";
        let sources = [
            ("perf/src/lib.rs", root),
            ("perf/src/a.rs", used),
            ("perf/src/a/c.rs", used),
            ("perf/src/b.rs", used),
        ];
        assert_eq!(messages(&sources), ["perf/src/b.rs:2"]);
        let root = "//! A.\n#[cfg(unix)]\nmod a;\n";
        let sources = [("perf/src/x/mod.rs", root), ("perf/src/x/a.rs", used)];
        assert_eq!(messages(&sources), [""; 0]);
    }
}
