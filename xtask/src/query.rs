//! `cargo xtask test-query`: the tests of SQL over profiles.
//!
//! The engine compiles for much longer than all other crates together, so that `cargo xtask test`
//! leaves the package out.

use crate::node::folder;
use crate::{Failure, packages, shell};
use std::process::Command;

/// The package that other builds leave out.
pub const PACKAGE: &str = "backtrail-query";
/// The profile of its tests, which does not optimize the engine.
const PROFILE: &str = "query-dev";
/// The reference of the answers, and the folder that shows its presence.
const DUCKDB: (&str, &str) = ("duckdb==2.0.0", "duckdb-2.0.0.dist-info");

/// Lints and tests the package, also beside DuckDB.
pub fn test() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    let duckdb = folder("duckdb")?;
    if !duckdb.join(DUCKDB.1).is_dir() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .arg("--target")
            .arg(&duckdb)
            .arg(DUCKDB.0);
        shell::run(&mut pip)?;
    }
    let package = ["--profile", PROFILE, "--package", PACKAGE];
    let mut lint = shell::cargo();
    lint.arg("clippy")
        .args(package)
        .args(["--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut lint)?;
    let mut test = shell::cargo();
    test.arg("test").args(package).args(["--", "--include-ignored"]);
    shell::run(test.env("PYTHONPATH", duckdb))
}
