//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md, each a check that can fail.

mod generated;
mod layers;
mod length;
mod manifest;
mod module_docs;
mod panics;
mod paths;
mod purity;
mod source;
mod unsafe_code;

use crate::Failure;
use source::Source;

/// A place where an invariant does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Problem {
    path: String,
    /// From 1; 0 is the file as a whole.
    line: usize,
    message: String,
}

impl Problem {
    fn new(source: &Source, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: source.path.clone(),
            line,
            message: message.into(),
        }
    }
}

/// Looks at one file.
type Check = fn(&Source) -> Vec<Problem>;

/// Every check, by the name that ARCHITECTURE.md calls it.
const CHECKS: &[(&str, Check)] = &[
    ("layers", layers::check),
    ("manifest", manifest::check),
    ("module-docs", module_docs::check),
    ("length", length::check),
    ("unsafe-code", unsafe_code::check),
    ("panics", panics::check),
    ("purity", purity::check),
    ("paths", paths::check),
    ("generated", generated::check),
];

/// Runs every check over every file of the repository.
pub fn run() -> Result<(), Failure> {
    let sources = source::all().map_err(|error| format!("cannot read the repository: {error}"))?;
    let mut problems: Vec<(Problem, &str)> = CHECKS
        .iter()
        .flat_map(|&(name, check)| sources.iter().flat_map(check).map(move |problem| (problem, name)))
        .collect();
    problems.sort();
    for (problem, name) in &problems {
        println!("{}:{}: {} [{name}]", problem.path, problem.line, problem.message);
    }
    println!("tidy: {}", length::report(&sources));
    if problems.is_empty() {
        Ok(())
    } else {
        Err(format!("tidy found {} problems", problems.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architecture_names_every_check_and_no_other() {
        let text =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../ARCHITECTURE.md")).unwrap();
        let mut named: Vec<&str> = text
            .split("[tidy: ")
            .skip(1)
            .map(|rest| rest.split(']').next().unwrap())
            .collect();
        named.sort_unstable();
        named.dedup();
        let mut known: Vec<&str> = CHECKS.iter().map(|&(name, _)| name).collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
