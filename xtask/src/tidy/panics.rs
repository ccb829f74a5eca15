//! Product code does not panic on purpose, and silences no lint against it.

use super::{Problem, Source};

/// Calls and macros that end the program. Those that clippy knows are its too; this holds where an
/// `allow` would silence it.
const FORBIDDEN: &[&str] = &[".unwrap()", ".expect(\"", "panic!(", "todo!(", "unimplemented!("];

/// Lints that may not be allowed.
const LINTS: &[&str] = &["clippy::unwrap_used", "clippy::expect_used", "clippy::panic"];

/// None of these in code that ships.
pub fn check(source: &Source) -> Vec<Problem> {
    // A helper of tests fails its test by a panic.
    let is_helper = source.path.starts_with("tests/");
    let is_this = source.part() == "xtask" && source.path.ends_with("tidy/panics.rs");
    if !source.ships() || is_helper || is_this {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (number, code) in source.code() {
        for word in FORBIDDEN.iter().filter(|word| code.contains(**word)) {
            problems.push(Problem::new(source, number, format!("`{word}` outside tests")));
        }
        for lint in LINTS
            .iter()
            .filter(|lint| code.contains("allow(") && code.contains(**lint))
        {
            problems.push(Problem::new(source, number, format!("`{lint}` is allowed here")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        check(&Source::sample("pt/src/a.rs", text)).len()
    }

    #[test]
    fn panicking_code_is_found() {
        assert_eq!(
            count("a.unwrap();\nb.expect(\"b\");\npanic!(\"c\");\ntodo!()\n"),
            4
        );
        assert_eq!(count("#![allow(clippy::unwrap_used)]\n"), 1);
    }

    #[test]
    fn tests_and_relatives_are_fine() {
        assert_eq!(
            count("a.unwrap_or(1);\n// a.unwrap()\n#[cfg(test)]\nmod tests {\na.unwrap();\n}\n"),
            0
        );
        for path in ["pt/tests/a.rs", "tests/src/bundle.rs"] {
            assert_eq!(check(&Source::sample(path, "a.unwrap();\n")), [], "{path}");
        }
    }
}
