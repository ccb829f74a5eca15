//! Dependencies between our crates go one way: each part uses those that its row names.

use super::{Problem, Source, manifest};

/// Part → the parts it may use. A part that is not here may not exist.
const USES: &[(&str, &[&str])] = &[
    ("pt", &[]),
    ("perf", &["pt"]),
    ("decoder", &["pt"]),
    ("semantics", &[]),
    ("symbolizer", &["pt"]),
    ("symbol-index", &["pt", "symbolizer"]),
    ("bundle", &["pt", "perf"]),
    ("process", &["pt", "bundle"]),
    ("bpf", &[]),
    ("recorder", &["pt", "bundle", "process", "semantics"]),
    ("query", &["profile", "store"]),
    ("report", &[]),
    ("sandbox", &[]),
    (
        "hub",
        &[
            "pt",
            "bundle",
            "symbolizer",
            "symbol-index",
            "debugger",
            "console",
            "profile",
            "report",
            "sandbox",
            "store",
        ],
    ),
    (
        "collector",
        &["pt", "perf", "bpf", "bundle", "process", "report", "sandbox"],
    ),
    ("values", &["pt", "symbolizer"]),
    (
        "debugger",
        &["pt", "bundle", "decoder", "semantics", "symbolizer", "values"],
    ),
    (
        "console",
        &["pt", "bundle", "decoder", "symbolizer", "values", "debugger"],
    ),
    ("export", &["pt", "decoder", "symbolizer", "debugger", "profile"]),
    ("profile", &["pt", "perf"]),
    ("store", &["pt", "profile"]),
    ("profiler", &["pt", "bpf", "perf", "process", "profile"]),
    ("dap-adapter", &["pt", "decoder", "debugger", "console"]),
    (
        "cli",
        &[
            "pt",
            "perf",
            "bundle",
            "recorder",
            "collector",
            "decoder",
            "symbolizer",
            "debugger",
            "console",
            "export",
            "profile",
            "profiler",
            "report",
            "dap",
        ],
    ),
    ("tests", &[]),
    (
        "bench",
        &[
            "pt",
            "bundle",
            "decoder",
            "symbolizer",
            "debugger",
            "console",
            "oracle",
        ],
    ),
    ("oracle", &["pt", "decoder", "debugger"]),
    ("xtask", &["tests"]),
];

/// Crates that only tests may use, in `[dev-dependencies]`.
const FOR_TESTS: &[&str] = &["tests", "oracle"];

/// Reads a part's manifest.
pub fn check(source: &Source) -> Vec<Problem> {
    let part = source.part();
    if source.path != format!("{part}/Cargo.toml") {
        return Vec::new();
    }
    let Some(&(_, allowed)) = USES.iter().find(|&&(name, _)| name == part) else {
        return vec![Problem::new(
            source,
            0,
            format!("`{part}` has no row in the table of layers"),
        )];
    };
    let mut problems = Vec::new();
    for entry in manifest::dependencies(&source.text) {
        let Some(used) = entry.name.strip_prefix("backtrail-") else {
            continue;
        };
        let tests_only = entry.for_tests && (FOR_TESTS.contains(&used) || part == "tests");
        if !allowed.contains(&used) && !tests_only {
            problems.push(Problem::new(
                source,
                entry.line,
                format!("`{part}` must not use `{used}`"),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrow_back_is_found() {
        let text =
            "[dependencies]\nbacktrail-pt.workspace = true\nbacktrail-decoder = { path = \"../decoder\" }\n";
        let problems = check(&Source::sample("bundle/Cargo.toml", text));
        assert_eq!(problems.len(), 1);
        assert_eq!(
            (problems[0].line, &*problems[0].message),
            (3, "`bundle` must not use `decoder`")
        );
    }

    #[test]
    fn dependencies_in_target_tables_are_found() {
        let text = "[target.'cfg(unix)'.dependencies]\nbacktrail-bundle.workspace = true\n[dependencies.backtrail-perf]\npath = \"\"\n";
        assert_eq!(check(&Source::sample("pt/Cargo.toml", text)).len(), 2);
    }

    #[test]
    fn test_programs_are_for_tests_only() {
        let text = "[dev-dependencies]\nbacktrail-tests.workspace = true\n";
        assert_eq!(check(&Source::sample("recorder/Cargo.toml", text)), []);
        let text = "[dependencies]\nbacktrail-tests.workspace = true\n";
        assert_eq!(check(&Source::sample("recorder/Cargo.toml", text)).len(), 1);
    }

    #[test]
    fn crate_without_a_row_is_found() {
        assert_eq!(check(&Source::sample("util/Cargo.toml", "")).len(), 1);
    }
}
