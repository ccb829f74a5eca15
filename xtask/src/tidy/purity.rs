//! Some parts are bytes in, data out: they know no file, no terminal, no other process.

use super::{Problem, Source};

/// Part → what its code must not name.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "pt",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::io",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "decoder",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::io",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "values",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::io",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "semantics",
        &[
            "std::fs",
            "std::net",
            "std::process",
            "std::env",
            "std::io",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "symbolizer",
        &["std::net", "std::process", "println!", "eprintln!"],
    ),
    (
        "bundle",
        &["std::net", "std::process::Command", "println!", "eprintln!"],
    ),
    ("perf", &["std::net", "println!", "eprintln!"]),
    ("recorder", &["std::net", "println!", "eprintln!"]),
    ("dap-adapter", &["std::process", "println!", "eprintln!"]),
    (
        "profile",
        &[
            "std::net",
            "std::process",
            "std::fs",
            "std::env",
            "println!",
            "eprintln!",
        ],
    ),
    (
        "export",
        &["std::net", "std::process", "std::env", "println!", "eprintln!"],
    ),
];

/// Finds the forbidden names in code that ships.
pub fn check(source: &Source) -> Vec<Problem> {
    let Some(&(part, words)) = FORBIDDEN.iter().find(|&&(part, _)| part == source.part()) else {
        return Vec::new();
    };
    if !source.ships() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, code) in source.code() {
        // `eprintln!` holds `println!`: one problem a line is enough.
        if let Some(word) = words.iter().find(|word| code.contains(**word)) {
            problems.push(Problem::new(
                source,
                number,
                format!("`{part}` must not use `{word}`"),
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_that_opens_a_file_is_found() {
        let text = "//! A.\nuse std::fs;\nfn f() {\n    println!(\"x\");\n}\n";
        assert_eq!(check(&Source::sample("decoder/src/a.rs", text)).len(), 2);
        assert_eq!(check(&Source::sample("cli/src/a.rs", text)), []);
        assert_eq!(check(&Source::sample("decoder/tests/a.rs", text)), []);
    }
}
