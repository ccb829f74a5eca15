//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md, each a check that can fail.

mod comments;
mod coverage;
mod cycles;
mod docs;
mod generated;
mod layers;
mod length;
mod manifest;
mod module_docs;
mod names;
mod panics;
mod paths;
mod portable;
mod prose;
mod purity;
mod source;
mod unsafe_code;

use crate::Failure;
pub use portable::PORTABLE;
use source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A line at which an invariant does not hold.
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

/// Checks one file.
type Check = fn(&Source) -> Vec<Problem>;

/// Checks files that depend on each other.
type JointCheck = fn(&[Source]) -> Vec<Problem>;

/// Every check of single files, by the name that ARCHITECTURE.md calls it.
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
    ("names", names::check),
    ("prose", prose::check),
    ("docs", docs::check),
];

/// Every check of all files together.
const JOINT_CHECKS: &[(&str, JointCheck)] = &[("cycles", cycles::check), ("portable", portable::check)];

/// Runs every check over every file of the repository.
pub fn run() -> Result<(), Failure> {
    let sources = source::all().map_err(|error| format!("cannot read the repository: {error}"))?;
    let mut problems: Vec<(Problem, &str)> = CHECKS
        .iter()
        .flat_map(|&(name, check)| sources.iter().flat_map(check).map(move |problem| (problem, name)))
        .collect();
    for &(name, check) in JOINT_CHECKS {
        problems.extend(check(&sources).into_iter().map(|problem| (problem, name)));
    }
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

/// Counts the violations of the language rules in every folder, and lists those of one folder.
pub fn survey(folder: Option<&str>) -> Result<(), Failure> {
    let sources = source::all().map_err(|error| format!("cannot read the repository: {error}"))?;
    let mut problems: Vec<(Problem, &str)> = Vec::new();
    for source in &sources {
        problems.extend(names::check(source).into_iter().map(|problem| (problem, "names")));
        problems.extend(prose::check(source).into_iter().map(|problem| (problem, "prose")));
    }
    let found = cycles::check(&sources);
    problems.extend(found.into_iter().map(|problem| (problem, "cycles")));
    problems.sort();
    if let Some(folder) = folder {
        problems.retain(|(problem, _)| coverage::includes(&[folder], &problem.path));
        for (problem, name) in &problems {
            println!("{}:{}: {} [{name}]", problem.path, problem.line, problem.message);
        }
    }
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (problem, name) in &problems {
        let part = problem.path.split('/').next().unwrap_or_default();
        *counts.entry((part, name)).or_default() += 1;
    }
    let parts: BTreeSet<&str> = counts.keys().map(|&(part, _)| part).collect();
    println!("{:18} {:>7} {:>7} {:>7}", "folder", "names", "prose", "cycles");
    for part in parts {
        print!("{part:18}");
        for name in ["names", "prose", "cycles"] {
            print!(" {:>7}", counts.get(&(part, name)).copied().unwrap_or_default());
        }
        println!();
    }
    Ok(())
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
        known.extend(JOINT_CHECKS.iter().map(|&(name, _)| name));
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
