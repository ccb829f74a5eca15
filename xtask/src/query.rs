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
/// The other readers of the store's files, and the folder that shows the presence of each.
const OTHERS: [(&str, &str); 3] = [
    ("duckdb==2.0.1", "duckdb-2.0.1.dist-info"),
    ("chdb==4.4.0", "chdb-4.4.0.dist-info"),
    ("pyarrow==26.0.1", "pyarrow-26.0.1.dist-info"),
];

/// Lints and tests the package, also beside DuckDB. Other readers read the store's files.
pub fn test() -> Result<(), Failure> {
    packages::ensure(&[packages::READERS])?;
    let others = folder("parquet-readers")?;
    if !OTHERS.iter().all(|(_, info)| others.join(info).is_dir()) {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--upgrade", "--target"])
            .arg(&others)
            .args(OTHERS.map(|(package, _)| package));
        shell::run(&mut pip)?;
    }
    let mut readers = shell::cargo();
    readers
        .args(["test", "--package", "backtrail-store", "--test", "store", "--"])
        .args(["--ignored", "readers::"]);
    shell::run(readers.env("PYTHONPATH", &others))?;
    let package = ["--profile", PROFILE, "--package", PACKAGE];
    let mut lint = shell::cargo();
    lint.arg("clippy")
        .args(package)
        .args(["--all-targets", "--", "-D", "warnings"]);
    shell::run(&mut lint)?;
    let mut test = shell::cargo();
    test.arg("test").args(package).args(["--", "--include-ignored"]);
    shell::run(test.env("PYTHONPATH", others))?;
    let mut build = shell::cargo();
    shell::run(build.arg("build").args(package))?;
    shell::run(shell::cargo().args(["build", "--package", "backtrail", "--package", "backtrail-hub"]))?;
    let mut workers = shell::cargo();
    workers
        .args(["test", "--package", "backtrail-tests", "--test", "hub", "--"])
        .args(["--ignored", "query_workers::"])
        .env("BACKTRAIL_BIN", shell::target().join("debug/backtrail"))
        .env("BACKTRAIL_HUB_BIN", shell::target().join("debug/backtrail-hub"))
        .env("BACKTRAIL_QUERY_BIN", shell::target().join(PROFILE).join(PACKAGE));
    shell::run(&mut workers)
}
