//! `cargo xtask demo`: a crash recorded, shown, and walked back to its cause.

use crate::{Failure, packages, shell};
use backtrail_tests::programs::Variant;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::Command;

/// Which program crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demo {
    /// `tests/fixtures/programs/ledger.c`.
    C,
    /// `tests/fixtures/programs/lease.rs`.
    Rust,
}

impl Demo {
    const ALL: [Self; 2] = [Self::C, Self::Rust];

    /// The demo in that language.
    pub fn named(language: &str) -> Result<Self, Failure> {
        match language {
            "c" => Ok(Self::C),
            "rust" => Ok(Self::Rust),
            _ => Err(format!("no demo program '{language}': choose c or rust")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::C => "ledger",
            Self::Rust => "lease",
        }
    }
}

/// Builds everything, records `demo`, prints its crash, and opens the debugger there; without a
/// terminal, runs the walk that `tests/fixtures/programs/*.bt` describes.
pub fn run(demo: Demo) -> Result<(), Failure> {
    packages::ensure(&[packages::BUILD])?;
    // The tests' build: it optimizes less than a release, and stepping is the kernel's time. The
    // demo needs neither the collector nor the editor's adapter, which have most dependencies.
    shell::run(shell::cargo().args(["build", "--package", "backtrail", "--no-default-features"]))?;
    let backtrail = shell::target().join("debug/backtrail");
    let backtrail = || Command::new(&backtrail);

    let folder = shell::target().join("demo");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    for each in Demo::ALL {
        compile(each, &folder.join(each.name()))?;
    }

    let bundle = folder.join(format!("{}.bundle", demo.name()));
    println!("\n# Recording {}\n", demo.name());
    shell::run(
        backtrail()
            .args(["record", "--values", "--exit-zero", "--overwrite", "-o"])
            .arg(&bundle)
            .arg("--")
            .arg(folder.join(demo.name()))
            .env("RUST_BACKTRACE", "0"),
    )?;

    println!("\n# The crash\n");
    shell::run(
        backtrail()
            .arg("debug")
            .arg(&bundle)
            .args(["--batch", "-e", "crash"]),
    )?;

    if io::stdin().is_terminal() && io::stdout().is_terminal() {
        println!("\n# The debugger, at the crash: try `reverse-step`, `calls`, `help`\n");
        return shell::run(backtrail().arg("debug").arg(&bundle));
    }
    println!("\n# Steps back to the cause\n");
    let script = format!("tests/fixtures/programs/{}.bt", demo.name());
    shell::run(
        backtrail()
            .arg("debug")
            .arg(&bundle)
            .arg("--batch")
            .arg("-x")
            .arg(script),
    )
}

fn compile(demo: Demo, to: &Path) -> Result<(), Failure> {
    let built = backtrail_tests::built(demo.name(), Variant::Pie).map_err(|error| error.to_string())?;
    // Written only once: a bundle refers to the program by path and build id.
    fs::copy(built, to)
        .map(drop)
        .map_err(|error| format!("cannot write {}: {error}", to.display()))
}
