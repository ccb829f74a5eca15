//! `cargo xtask test`: everything that must hold before a change goes in.

use crate::{Failure, bpf, deps, guard, packages, readers, shell, tidy, vm, vscode};

/// How much is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The checks before a merge: well under half an hour on two cores.
    Usual,
    /// Long fuzzing, the whole matrix of programs, and the real programs too.
    All,
}

/// Installs requirements, checks the repository, builds, tests, and counts the cost of decoding.
///
/// The checks cover format, invariants, dependencies, eBPF objects and lints. Tests run here and in
/// virtual machines.
pub fn run(extent: Extent) -> Result<(), Failure> {
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
        packages::ensure(&[packages::SOURCES, packages::HEAVY_READERS, &packages::programs()])?;
    }
    shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    tidy::run()?;
    deps::check()?;
    bpf::check()?;
    shell::run(shell::cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // The product is built without libipt, which all that follows is built with.
    shell::run(shell::cargo().args(["check", "--package", "backtrail"]))?;
    // The end-to-end tests run the binary of this very build.
    shell::run(shell::cargo().args(["build", "--package", "backtrail", "--features", "libipt"]))?;
    let backtrail = shell::target().join("debug/backtrail");
    let mut tests = shell::cargo();
    tests
        .args(["test", "--workspace"])
        .env("BACKTRAIL_BIN", &backtrail);
    tests.envs(readers::install().variables());
    tests.envs(vscode::install()?.variables());
    if extent == Extent::All {
        tests.args(["--", "--include-ignored"]);
    }
    shell::run(&mut tests)?;
    vm::run(&vm::Options::all(extent == Extent::All), Some(backtrail))?;
    guard::run(false)
}
