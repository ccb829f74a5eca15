//! `bench store`: sizes, ingestion and queries of the profile store, beside DuckDB and chdb.

mod ingest;
mod queries;
mod sizes;

use super::{folder, machine, typed};
use crate::{Failure, packages, shell};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Options of the measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Seconds of a recording of all processes. 0: sizes are left out.
    seconds: u64,
    /// A recording in place of that.
    recording: Option<PathBuf>,
    /// Seconds of ingestion. 0: it is left out.
    ingest: u64,
    /// Samples that queries read. 0: queries are left out.
    samples: u64,
    /// The number of their services.
    services: u64,
    /// The number of their days.
    days: u64,
}

impl StoreOptions {
    /// Reads them.
    pub fn parse(arguments: &[&str]) -> Result<Self, Failure> {
        let mut options = Self {
            seconds: 60,
            recording: None,
            ingest: 120,
            samples: 1_000_000_000,
            services: 100,
            days: 30,
        };
        let names = typed::read(
            arguments,
            |_| false,
            |word| {
                match word.name {
                    "--seconds" => options.seconds = word.number()?,
                    "--recording" => options.recording = Some(word.value()?.into()),
                    "--ingest" => options.ingest = word.number()?,
                    "--samples" => options.samples = word.number()?,
                    "--services" => options.services = word.number::<u64>()?.max(1),
                    "--days" => options.days = word.number::<u64>()?.max(1),
                    _ => return Ok(false),
                }
                Ok(true)
            },
        )?;
        match names.first() {
            Some(name) => Err(format!("bench store takes no \"{name}\"")),
            None => Ok(options),
        }
    }

    /// Returns whether a part needs the program `backtrail`.
    pub fn records(&self) -> bool {
        self.seconds > 0 && self.recording.is_none()
    }

    /// Returns whether a part needs a hub.
    pub fn ingests(&self) -> bool {
        self.ingest > 0
    }
}

/// The program that writes and queries stores.
struct Fleet(PathBuf);

impl Fleet {
    /// Builds it.
    fn built() -> Result<Self, Failure> {
        packages::ensure(&[packages::BUILD])?;
        let package = ["--package", "backtrail-store", "--example", "fleet"];
        shell::run(shell::cargo().args(["build", "--release"]).args(package))?;
        Ok(Self(shell::target().join("release/examples/fleet")))
    }

    /// Runs it, and returns what it printed.
    fn run(&self, arguments: &[&str], directory: &Path, more: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new(&self.0);
        command.args(arguments).arg(directory).args(more);
        output(&mut command)
    }
}

/// Runs a command, and returns what it printed. Its messages are shown.
fn output(command: &mut Command) -> Result<String, Failure> {
    let name = format!("{command:?}");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name} failed: {}", output.status)),
    }
}

/// Measures, and prints tables. `backtrail` and `hub` are needed by some parts only.
pub fn run(options: &StoreOptions, backtrail: Option<&Path>, hub: Option<&Path>) -> Result<(), Failure> {
    let folder = folder("bench/store")?;
    let fleet = Fleet::built()?;
    println!(
        "`cargo xtask bench store` on {}; load before {}.",
        machine::line(),
        machine::load()
    );
    let recorded = match (&options.recording, backtrail) {
        (Some(recording), _) => Some(recording.clone()),
        (None, Some(backtrail)) => Some(sizes::record(backtrail, &folder, options.seconds)?),
        (None, None) => None,
    };
    if let Some(recording) = recorded {
        sizes::measure(&fleet, &folder, &recording)?;
    }
    if let Some(hub) = hub {
        ingest::measure(&fleet, &folder, hub, options.ingest)?;
    }
    if options.samples > 0 {
        queries::measure(&fleet, &folder, options)?;
    }
    println!("\nLoad after: {}.", machine::load());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_left_out_by_zero() {
        let options = StoreOptions::parse(&["--seconds", "0", "--ingest", "0"]).unwrap();
        assert!(!options.records() && !options.ingests());
        assert_eq!(options.samples, 1_000_000_000);
        assert!(StoreOptions::parse(&["--what"]).is_err());
    }
}
