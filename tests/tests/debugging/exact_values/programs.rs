//! The programs whose recorded values are compared.

use backtrail_tests::backtrail::repository;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The instructions of a program that are compared, because each run executes them in the same
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All from `main` on, with those of libraries.
    FromMain,
    /// Those of the program's file, in each thread. Libraries of several threads wait for each
    /// other, and those of Rust read `/proc/self/maps`.
    OwnFile,
    /// Those of package `main`, in any thread. The runtime of Go moves its work between threads.
    /// Registers also have what other goroutines left there, so only variables are compared.
    PackageMain,
}

/// A program, how it is built, and its argument.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The source, below `tests/fixtures`.
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    /// The number of rounds of its work.
    pub rounds: u32,
    pub extent: Extent,
}

const fn program(
    source: &'static str,
    compiler: &'static str,
    flags: &'static [&'static str],
    rounds: u32,
) -> Program {
    Program {
        source,
        compiler,
        flags,
        rounds,
        extent: Extent::FromMain,
    }
}

const fn within(extent: Extent, program: Program) -> Program {
    Program { extent, ..program }
}

/// All programs. Those of [`SHORT`] are compared in each run of the tests.
#[rustfmt::skip]
pub const PROGRAMS: [Program; 20] = [
    program("locals/parcels.c", "cc", &["-O0"], 12),
    program("locals/parcels.c", "cc", &["-O2"], 12),
    program("locals/parcels.c", "cc", &["-O3", "-march=x86-64-v3"], 12),
    program("locals/routes.cpp", "c++", &["-O0"], 12),
    program("locals/routes.cpp", "c++", &["-O2"], 12),
    within(Extent::OwnFile, program("locals/meals.rs", "rustc", &["-Copt-level=0"], 12)),
    within(Extent::OwnFile, program("locals/meals.rs", "rustc", &["-Copt-level=2"], 12)),
    within(Extent::PackageMain, program("locals/meters.go", "go", &["-gcflags=-N -l"], 12)),
    within(Extent::PackageMain, program("locals/meters.go", "go", &[], 12)),
    program("recorded_values/witness.c", "cc", &["-O0"], 0),
    program("recorded_values/witness.c", "cc", &["-O2"], 0),
    program("programs/containers.cpp", "c++", &["-O0"], 0),
    program("programs/containers.cpp", "c++", &["-O2"], 0),
    within(Extent::OwnFile, program("programs/lets.rs", "rustc", &["-Copt-level=0", "-Cpanic=abort"], 0)),
    within(Extent::OwnFile, program("programs/lets.rs", "rustc", &["-Copt-level=2", "-Cpanic=abort"], 0)),
    within(Extent::OwnFile, program("exact_values/lanes.c", "cc", &["-O0", "-pthread"], 6)),
    within(Extent::OwnFile, program("exact_values/lanes.c", "cc", &["-O2", "-pthread"], 6)),
    program("exact_values/jit.c", "cc", &["-O0"], 20),
    program("exact_values/jit.c", "cc", &["-O2"], 20),
    program("programs/ledger.c", "cc", &["-O2", "-static"], 0),
];

/// The programs of each run of the tests, by their numbers.
pub const SHORT: [usize; 3] = [1, 16, 17];

impl Program {
    /// Returns the name in messages and in the log.
    pub fn name(&self) -> String {
        let file = self.source.rsplit('/').next().unwrap_or_default();
        let words = [file, self.compiler]
            .into_iter()
            .chain(self.flags.iter().copied());
        words.collect::<Vec<_>>().join(" ")
    }

    /// Builds the program into a folder; `None` if its compiler is not installed.
    pub fn built(&self, folder: &Path) -> Option<PathBuf> {
        let (executable, source) = (folder.join("program"), repository().join("tests/fixtures"));
        let mut command = Command::new(self.compiler);
        match self.compiler {
            "go" => command
                .arg("build")
                .env("GO111MODULE", "off")
                .env("CGO_ENABLED", "0"),
            "rustc" => command.args(["--edition=2024", "-g", "-Ccodegen-units=1"]),
            "c++" => command.args(["-g", "-std=c++17"]),
            _ => command.arg("-g"),
        };
        let output = command
            .args(self.flags)
            .arg("-o")
            .arg(&executable)
            .arg(source.join(self.source))
            .output();
        match output {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                eprintln!("skipped: no {} on this machine", self.compiler);
                None
            }
            output => {
                let output = output.unwrap();
                let text = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}: {text}", self.name());
                assert!(fs::exists(&executable).unwrap());
                Some(executable)
            }
        }
    }
}

/// The environment of the recording and of the steps, which is a part of the stack.
///
/// The recorder answers `rseq` as an older kernel, and Go's threads are not interrupted.
pub const ENVIRONMENT: [(&str, &str); 5] = [
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0"),
    ("GODEBUG", "asyncpreemptoff=1"),
    ("GOGC", "off"),
    ("GOMAXPROCS", "1"),
    ("RUST_BACKTRACE", "0"),
];
