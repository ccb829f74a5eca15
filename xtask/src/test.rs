//! `cargo xtask test`: everything that must hold before a change goes in.

mod programs;
mod steps;

use crate::{Failure, bpf, deps, dist, guard, packages, portable, readers, shell, tidy, vm, vscode};
use std::path::Path;
use steps::Steps;

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The checks before a merge: well under half an hour on two cores.
    Usual,
    /// Long fuzzing, the whole matrix of programs, and the real programs too.
    All,
}

/// The slowest test programs. They start first, so that none of them runs alone at the end.
const LONGEST: &[&str] = &[
    "backtrail-tests/debugging",
    "backtrail-tests/recording",
    "backtrail-recorder/translate",
    "backtrail-recorder/exact",
];

/// Installs requirements, checks the repository, builds, tests, and counts the cost of decoding.
/// With `times`, prints the time of each step.
///
/// The checks cover format, invariants, dependencies, eBPF objects and lints. Tests run here and in
/// virtual machines.
pub fn run(extent: Extent, times: bool) -> Result<(), Failure> {
    let mut steps = Steps::default();
    let result = all(extent, &mut steps);
    if times {
        println!("\n{}", steps.table());
    }
    result
}

fn all(extent: Extent, steps: &mut Steps) -> Result<(), Failure> {
    steps.step("install packages", || install(extent))?;
    steps.step("check format", || {
        shell::run(shell::cargo().args(["fmt", "--all", "--check"]))
    })?;
    steps.step("check invariants", tidy::run)?;
    steps.step("check dependencies", deps::check)?;
    steps.step("check eBPF objects", bpf::check)?;
    steps.step("lint", || {
        // Features that are off by default are compiled here only.
        shell::run(shell::cargo().args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    steps.step("check other systems", portable::check)?;
    // The demo's binary has fewer features than the one that the tests run.
    steps.step("check the demo's build", || {
        shell::run(shell::cargo().args(["check", "--package", "backtrail", "--no-default-features"]))
    })?;
    // The end-to-end tests run the binary of this very build.
    steps.step("build the binary", || {
        shell::run(shell::cargo().args(["build", "--package", "backtrail"]))
    })?;
    let backtrail = shell::target().join("debug/backtrail");
    let variables = steps.step("install readers and editors", || variables(&backtrail))?;
    let built = steps.step("build tests", programs::build)?;
    let (alone, together): (Vec<_>, Vec<_>) = built.into_iter().partition(runs_alone);
    let ended = steps.step("run tests", || {
        let arguments: &[&str] = match extent {
            Extent::Usual => &[],
            Extent::All => &["--include-ignored"],
        };
        let mut ended = programs::run(together, LONGEST, arguments, &variables)?;
        for program in alone {
            ended.extend(programs::run(vec![program], &[], arguments, &variables)?);
        }
        Ok(ended)
    })?;
    for program in &ended {
        steps.add(&format!("  {}", program.name), program.time);
    }
    let failed: Vec<&str> = ended
        .iter()
        .filter(|program| !program.passed)
        .map(|program| program.name.as_str())
        .collect();
    if !failed.is_empty() {
        return Err(format!("tests failed in {}", failed.join(", ")));
    }
    steps.step("test in virtual machines", || {
        vm::run(&vm::VmOptions::all(extent == Extent::All), Some(backtrail))
    })?;
    if extent == Extent::All {
        steps.step("install the packages", dist::test)?;
    }
    steps.step("count instructions", || guard::run(false))
}

/// Returns whether a program runs while no other does. The collector sees the crashes of all
/// processes, also of those that other tests start.
fn runs_alone(program: &programs::TestProgram) -> bool {
    program.name == "backtrail-tests/collector" || program.name.starts_with("backtrail-collector/")
}

fn install(extent: Extent) -> Result<(), Failure> {
    packages::ensure(&[
        packages::BUILD,
        packages::VM,
        packages::ORACLE,
        packages::TEST,
        packages::READERS,
        packages::EDITORS,
        packages::COUNT,
    ])?;
    if extent == Extent::All {
        packages::ensure(&[
            packages::SOURCES,
            packages::HEAVY_READERS,
            packages::COMPILERS,
            &packages::programs(),
        ])?;
    }
    Ok(())
}

/// The environment of the tests: the binary, and what was installed for them.
fn variables(backtrail: &Path) -> Result<Vec<(String, String)>, Failure> {
    let (readers, vscode) = (readers::install(), vscode::install()?);
    let own = |(name, path): (&str, &Path)| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        (name.to_owned(), path.display().to_string())
    };
    let mut variables = vec![own(("BACKTRAIL_BIN", backtrail))];
    variables.extend(readers.variables().into_iter().map(own));
    variables.extend(vscode.variables().into_iter().map(own));
    Ok(variables)
}
