//! `unsafe` has its reason beside it, and some parts have none.

use super::{Problem, Source};

/// Parts whose crate root forbids `unsafe`, and how.
const WITHOUT: &[(&str, &str)] = &[
    ("pt", FORBIDDEN),
    ("cli", FORBIDDEN),
    ("xtask", FORBIDDEN),
    ("values", FORBIDDEN),
    ("debugger", FORBIDDEN),
    ("console", FORBIDDEN),
    ("dap-adapter", FORBIDDEN),
    ("decoder", FORBIDDEN),
];

const FORBIDDEN: &str = "#![forbid(unsafe_code)]";

/// How many lines above an `unsafe` its reason may begin.
const NEAR: usize = 12;

/// Checks for a SAFETY comment near every `unsafe` block and implementation, and for the attribute
/// that forbids them. An `unsafe fn` only states a contract, and the blocks of its body are
/// checked.
pub fn check(source: &Source) -> Vec<Problem> {
    if !source.is_rust() {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let is_root = source.path == format!("{}/src/lib.rs", source.part())
        || source.path == format!("{}/src/main.rs", source.part());
    let wanted = WITHOUT.iter().find(|(part, _)| is_root && *part == source.part());
    if let Some((_, forbidden)) = wanted.filter(|(_, forbidden)| !source.text.contains(forbidden)) {
        let problem = format!("the crate root lacks `{forbidden}`");
        problems.push(Problem::new(source, 1, problem));
    }
    let lines: Vec<&str> = source.text.lines().collect();
    for (number, code) in source.code() {
        let reason = lines[number.saturating_sub(NEAR + 1)..number]
            .iter()
            .any(|line| line.contains("SAFETY:"));
        if uses_unsafe(code) && !reason {
            problems.push(Problem::new(source, number, "`unsafe` without a SAFETY comment"));
        }
    }
    problems
}

fn uses_unsafe(code: &str) -> bool {
    ["unsafe {", "unsafe impl "].iter().any(|form| {
        code.find(form)
            .is_some_and(|at| code[..at].matches('"').count().is_multiple_of(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_without_a_safety_comment_is_found() {
        let bad = "//! A.\nfn f() {\n    unsafe { g() }\n}\n";
        assert_eq!(check(&Source::sample("bundle/src/a.rs", bad)).len(), 1);
        let good = "//! A.\nfn f() {\n    // SAFETY: g is fine.\n    unsafe { g() }\n}\n";
        assert_eq!(check(&Source::sample("bundle/src/a.rs", good)), []);
    }

    #[test]
    fn crate_root_must_forbid_unsafe_code() {
        assert_eq!(check(&Source::sample("pt/src/lib.rs", "//! PT.\n")).len(), 1);
        assert_eq!(
            check(&Source::sample(
                "pt/src/lib.rs",
                "//! PT.\n#![forbid(unsafe_code)]\n"
            )),
            []
        );
    }
}
