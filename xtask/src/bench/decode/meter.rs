//! Runs `backtrail-bench`, one process for each thing measured.

use crate::bench::sentence;
use crate::{Failure, cachegrind, shell};
use backtrail_tests::real::{Child, Ended};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// For one process: several runs of the slowest decoder on a prefix are far below.
const LIMIT: Duration = Duration::from_secs(1800);

/// Runs in a process of what is slow: one cold, one warm.
pub const SLOW_RUNS: u32 = 2;

/// The measured programs.
pub struct Binaries {
    /// `backtrail-bench`.
    pub bench: PathBuf,
    pub backtrail: PathBuf,
}

impl Binaries {
    /// The release builds of what measures.
    pub fn build(backtrail: &Path) -> Result<Self, Failure> {
        Ok(Self {
            bench: build_bench("edges")?,
            backtrail: backtrail.to_path_buf(),
        })
    }
}

fn build_bench(features: &str) -> Result<PathBuf, Failure> {
    let mut build = shell::cargo();
    let words = ["build", "--release", "--package", "backtrail-bench", "--features"];
    shell::run(build.args(words).arg(features))?;
    let binary = shell::target().join("release/backtrail-bench");
    binary
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {error}", binary.display()))
}

/// Runs the measurements.
pub struct Meter {
    binaries: Binaries,
    folder: TempDir,
    /// Our engines, and with how many threads each is measured.
    pub engines: Vec<Engine>,
}

/// One of our engines and a number of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub name: String,
    pub jobs: u64,
}

impl Engine {
    const ORACLE: &str = "libipt";

    /// Returns whether this is libipt, which the product does not contain.
    pub fn is_oracle(&self) -> bool {
        self.name == Self::ORACLE
    }

    /// Runs in a process, of as many as were asked for.
    pub fn runs(&self, asked: u32) -> u32 {
        if self.is_oracle() {
            asked.min(SLOW_RUNS)
        } else {
            asked
        }
    }
}

/// Drops what is in memory of the files in a folder.
fn forget(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

impl Meter {
    /// Asks the binary for its engines.
    pub fn new(binaries: Binaries) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| sentence("a temporary folder", &error))?;
        let mut meter = Self {
            binaries,
            folder,
            engines: Vec::new(),
        };
        let told = meter.ask("engines", Path::new(""), &[])?;
        let list = |key: &str| told[key].as_array().cloned().unwrap_or_default();
        for name in list("engines") {
            let name = name.as_str().unwrap_or_default();
            // The oracle has no use of a second thread, and takes long enough by itself.
            let jobs = list("jobs").into_iter().filter_map(|jobs| jobs.as_u64());
            let jobs = jobs.filter(|&jobs| jobs == 1 || name != Engine::ORACLE);
            meter.engines.extend(jobs.map(|jobs| Engine {
                name: name.to_owned(),
                jobs,
            }));
        }
        Ok(meter)
    }

    /// Returns the measurement, or the reason of its failure.
    pub fn ask(&self, kind: &str, bundle: &Path, options: &[(&str, String)]) -> Result<Value, Failure> {
        self.ask_of(&self.binaries.bench, kind, bundle, options)
    }

    fn ask_of(
        &self,
        binary: &Path,
        kind: &str,
        bundle: &Path,
        options: &[(&str, String)],
    ) -> Result<Value, Failure> {
        let command = self.command(binary, &[], kind, bundle, options);
        let ended = self.run(command, kind, LIMIT)?;
        serde_json::from_slice(&ended.stdout).map_err(|error| format!("{kind}: {error}"))
    }

    /// The machine instructions that it executes in all, and what it measures.
    pub fn machine_instructions(
        &self,
        kind: &str,
        bundle: &Path,
        options: &[(&str, String)],
    ) -> Result<(u64, Value), Failure> {
        if !shell::in_path("valgrind") {
            return Err("valgrind is not installed".to_owned());
        }
        let counts = self.folder.path().join("cachegrind.out");
        let words = cachegrind::words(&counts);
        let command = self.command(&self.binaries.bench, &words, kind, bundle, options);
        let ended = self.run(command, kind, LIMIT)?;
        let measured = serde_json::from_slice(&ended.stdout).map_err(|error| format!("{kind}: {error}"))?;
        Ok((cachegrind::total(&counts)?, measured))
    }

    /// Returns the seconds of `backtrail debug` with one command, with the bundle's files not
    /// cached.
    pub fn open(&self, engine: &Engine, bundle: &Path, first: &str, limit: Duration) -> Result<f64, Failure> {
        forget(bundle).map_err(|error| sentence("dropping the bundle from the page cache", &error))?;
        let mut command = Command::new(&self.binaries.backtrail);
        command.args(["debug", "--batch", "-e", first]);
        command.args(["--jobs", &engine.jobs.to_string()]).arg(bundle);
        self.run(command, "open", limit).map(|ended| ended.seconds)
    }

    fn command(
        &self,
        binary: &Path,
        under: &[String],
        kind: &str,
        bundle: &Path,
        options: &[(&str, String)],
    ) -> Command {
        let mut words: Vec<OsString> = under.iter().map(Into::into).collect();
        words.extend([binary.into(), kind.into(), bundle.into()]);
        for (name, value) in options {
            words.push(name.into());
            if !value.is_empty() {
                words.push(value.into());
            }
        }
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command
    }

    fn run(&self, command: Command, name: &str, limit: Duration) -> Result<Ended, Failure> {
        Child::run(command, self.folder.path(), name, limit)
            .and_then(|ended| ended.succeeded(name))
            .map_err(|error| error.to_string())
    }
}
