//! `cargo xtask test`: everything that must hold before a change goes in.

mod programs;
mod repeat;
mod steps;
mod unchanged;

use crate::{Failure, bpf, deps, dist, guard, packages, portable, query, readers, shell, tidy, vm, vscode};
use repeat::Repeated;
use std::collections::BTreeMap;
use std::path::Path;
use steps::Steps;
use unchanged::{Inputs, Passed};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The checks before a merge: well under half an hour on two cores.
    Usual,
    /// Long fuzzing, the whole matrix of programs, and the real programs too.
    All,
}

/// Options of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    pub extent: Extent,
    /// Print the time of each step.
    times: bool,
    /// Run what passed with the same inputs too.
    again: bool,
}

impl Options {
    /// Reads `[--times] [--again]`.
    pub fn parse(extent: Extent, words: &[&str]) -> Result<Self, Failure> {
        let mut options = Self {
            extent,
            times: false,
            again: extent == Extent::All,
        };
        for &word in words {
            match word {
                "--times" => options.times = true,
                "--again" => options.again = true,
                _ => return Err(format!("no option '{word}': choose --times and --again")),
            }
        }
        Ok(options)
    }
}

/// The steps after the test programs.
const MACHINES: &str = "test in virtual machines";
const COUNT: &str = "count instructions";

/// Packages, and folders of others, that the tests in virtual machines depend on.
const IN_MACHINES: (&[&str], &[&str]) = (
    &[
        "backtrail-vm-init",
        "backtrail-collector",
        "backtrail-recorder",
        "backtrail-decoder",
        "backtrail-symbolizer",
    ],
    &["cli", "xtask/src/vm"],
);

/// Packages and folders that the counted instructions depend on.
const COUNTED: (&[&str], &[&str]) = (&["backtrail-bench"], &["xtask/src/guard.rs"]);

/// The slowest test programs. They start first, so that none of them runs alone at the end.
const LONGEST: &[&str] = &[
    "backtrail-tests/debugging",
    "backtrail-tests/recording",
    "backtrail-recorder/translate",
    "backtrail-recorder/exact",
];

/// Installs requirements, checks the repository, builds, tests, and counts the cost of decoding.
///
/// The checks cover format, invariants, dependencies, eBPF objects and lints. Tests run here and in
/// virtual machines. A test that passed with the same inputs is not repeated.
pub fn run(options: Options) -> Result<(), Failure> {
    let mut steps = Steps::default();
    let result = all(options, &mut steps);
    if options.times {
        println!("\n{}", steps.table());
    }
    result
}

fn all(options: Options, steps: &mut Steps) -> Result<(), Failure> {
    let extent = options.extent;
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
            "--exclude",
            query::PACKAGE,
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
    // The end-to-end tests run the binaries of this very build.
    steps.step("build the binaries", || {
        shell::run(shell::cargo().args(["build", "--package", "backtrail", "--package", "backtrail-hub"]))
    })?;
    let [backtrail, hub] =
        ["debug/backtrail", "debug/backtrail-hub"].map(|program| shell::target().join(program));
    let variables = steps.step("install readers and editors", || variables(&backtrail, &hub))?;
    let built = steps.step("build tests", || programs::build(&[&backtrail, &hub]))?;
    let inputs = Inputs::find()?;
    let mut passed = Passed::read(shell::target().join("passed-tests.txt"));
    let built = built
        .into_iter()
        .map(|program| (inputs.of_program(&program), program));
    let is_same = |name: &str, inputs| !options.again && passed.contains(name, inputs);
    let (same, changed): (Vec<_>, Vec<_>) =
        built.partition(|(inputs, program)| is_same(&program.name, *inputs));
    let mut same: Vec<&str> = same.iter().map(|(_, program)| program.name.as_str()).collect();
    let machines = inputs.of_packages(IN_MACHINES.0, IN_MACHINES.1);
    let counted = inputs.of_packages(COUNTED.0, COUNTED.1);
    let rest = [(MACHINES, machines), (COUNT, counted)];
    same.extend(
        rest.iter()
            .filter(|(name, inputs)| is_same(name, *inputs))
            .map(|(name, _)| *name),
    );
    if !same.is_empty() {
        let same = same.join(", ");
        println!("Passed with the same inputs, and not repeated without --again: {same}");
    }
    let [run_machines, run_count] = rest.map(|(name, inputs)| !is_same(name, inputs));
    let hashes: BTreeMap<String, u64> = changed
        .iter()
        .map(|(inputs, program)| (program.name.clone(), *inputs))
        .collect();
    let changed: Vec<_> = changed.into_iter().map(|(_, program)| program).collect();
    let mut ended = steps.step("run tests", || run_programs(changed.clone(), extent, &variables))?;
    let Repeated { flaky } = steps.step("repeat failed tests", || {
        repeat::repeat(&mut ended, &changed, &variables)
    })?;
    for test in flaky {
        println!("FLAKY: {test} failed beside other tests and passed alone");
    }
    for program in &ended {
        steps.add(&format!("  {}", program.name), program.time);
        if let Some(inputs) = hashes.get(&program.name) {
            passed.note(&program.name, *inputs, program.passed)?;
        }
    }
    let failed: Vec<&str> = ended
        .iter()
        .filter(|program| !program.passed)
        .map(|program| program.name.as_str())
        .collect();
    if !failed.is_empty() {
        return Err(format!("tests failed in {}", failed.join(", ")));
    }
    if run_machines {
        steps.step(MACHINES, || {
            vm::run(&vm::VmOptions::all(extent == Extent::All), Some(backtrail))
        })?;
        passed.note(MACHINES, machines, true)?;
    }
    if extent == Extent::All {
        steps.step("install the packages", dist::test)?;
        steps.step("test profile queries", query::test)?;
    }
    if run_count {
        steps.step(COUNT, || guard::run(false))?;
        passed.note(COUNT, counted, true)?;
    }
    Ok(())
}

/// Runs those side by side that may.
fn run_programs(
    programs: Vec<programs::TestProgram>,
    extent: Extent,
    variables: &[(String, String)],
) -> Result<Vec<programs::Ended>, Failure> {
    let arguments: &[&str] = match extent {
        Extent::Usual => &[],
        Extent::All => &["--include-ignored"],
    };
    let (alone, together): (Vec<_>, Vec<_>) = programs.into_iter().partition(runs_alone);
    let mut ended = programs::run(together, LONGEST, arguments, variables)?;
    for program in alone {
        ended.extend(programs::run(vec![program], &[], arguments, variables)?);
    }
    Ok(ended)
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

/// The environment of the tests: the binaries, and what was installed for them.
fn variables(backtrail: &Path, hub: &Path) -> Result<Vec<(String, String)>, Failure> {
    let (readers, vscode) = (readers::install(), vscode::install()?);
    let own = |(name, path): (&str, &Path)| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        (name.to_owned(), path.display().to_string())
    };
    let mut variables = vec![own(("BACKTRAIL_BIN", backtrail)), own(("BACKTRAIL_HUB_BIN", hub))];
    variables.extend(readers.variables().into_iter().map(own));
    variables.extend(vscode.variables().into_iter().map(own));
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let usual = Options::parse(Extent::Usual, &["--times"]).unwrap();
        assert!(usual.times && !usual.again);
        assert!(Options::parse(Extent::Usual, &["--again"]).unwrap().again);
        assert!(Options::parse(Extent::All, &[]).unwrap().again);
        assert!(Options::parse(Extent::Usual, &["--fast"]).is_err());
    }
}
