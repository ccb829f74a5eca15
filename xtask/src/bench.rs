//! `cargo xtask bench`: costs of recording and decoding, next to those of other tools.
//!
//! The tables are Markdown for `docs/benchmarks.md` and `docs/programs.md`.

mod adapter;
mod collect;
mod costs;
mod debug;
mod decode;
mod fdo;
mod heap;
mod hub;
mod machine;
mod options;
mod peers;
mod processes;
mod profile;
mod programs;
mod record;
mod store;
mod symbolize;
mod table;
mod typed;
mod values;
mod zoom;

use crate::{Failure, packages, shell};
pub use debug::DebugOptions;
pub use decode::DecodeOptions;
pub use hub::HubOptions;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
pub use options::Options;
use std::path::PathBuf;
use std::process::Command;
pub use store::StoreOptions;

/// `bench record`: compute-bound programs natively, recorded, and under qemu and valgrind.
pub fn record(options: &Options) -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    record::run(options, &binary)
}

/// `bench programs`: the table of real programs, each compared with its run without the recorder.
pub fn programs(options: &Options) -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    programs::run(options, &binary)
}

/// `bench decode`: recorded streams decoded by our engines and by others.
pub fn decode(options: &DecodeOptions) -> Result<(), Failure> {
    packages::ensure(&[packages::ORACLE])?;
    let binary = release()?;
    on_two_cores()?;
    decode::run(options, &binary)
}

/// `bench debug`: times of the debugger's commands on a history of 100 million instructions.
pub fn debug(options: &DebugOptions) -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    debug::run(options, &binary)
}

/// `bench fdo`: lua as `-O2` builds it, and rebuilt with the branches of a recording.
pub fn fdo() -> Result<(), Failure> {
    packages::ensure(&[packages::FDO])?;
    fdo::run(&release()?)
}

/// `bench heap`: two programs natively, recorded, and recorded with heap events.
pub fn heap() -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    heap::run(&binary)
}

/// `bench processes`: many and short processes, with and without kept translations.
pub fn processes() -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    processes::run(&binary)
}

/// `bench profile`: the cost of sampling all processes for a number of seconds, beside perf.
pub fn profile(seconds: u64) -> Result<(), Failure> {
    profile::run(&release()?, seconds)
}

/// `bench symbolize`: 20 000 addresses with inlined calls, beside other symbolizers.
pub fn symbolize() -> Result<(), Failure> {
    packages::ensure(&[packages::FDO])?;
    symbolize::run()
}

/// `bench zoom`: pictures a second of a large flame graph that zooms in Chromium.
pub fn zoom(seconds: u32) -> Result<(), Failure> {
    packages::ensure(&[packages::READERS, packages::EDITORS])?;
    zoom::run(seconds)
}

/// `bench collect`: how soon the collector knows of crashes, and what it costs.
pub fn collect() -> Result<(), Failure> {
    collect::run(&release()?)
}

/// `bench hub`: reports, pages and bundles at a hub, beside Bugsink.
pub fn hub(options: &HubOptions) -> Result<(), Failure> {
    let hub = release_of("backtrail-hub", "BACKTRAIL_HUB_BIN")?;
    hub::run(options, &release()?, &hub)
}

/// `bench store`: sizes, ingestion and queries of the profile store, beside DuckDB and chdb.
pub fn store(options: &StoreOptions) -> Result<(), Failure> {
    let backtrail = options.records().then(release).transpose()?;
    let hub = options
        .ingests()
        .then(|| release_of("backtrail-hub", "BACKTRAIL_HUB_BIN"));
    store::run(options, backtrail.as_deref(), hub.transpose()?.as_deref())
}

/// `bench adapter`: times of the debug adapter to open a trace and to answer.
pub fn adapter(bundle: Option<&str>) -> Result<(), Failure> {
    let binary = release()?;
    on_two_cores()?;
    let bundle = match bundle {
        Some(bundle) => PathBuf::from(bundle),
        None => debug::recorded(&DebugOptions::default(), &folder("bench/debug")?, &binary)?,
    };
    adapter::run(&binary, &bundle)
}

/// The release build of `backtrail`, or what `BACKTRAIL_BIN` names.
fn release() -> Result<PathBuf, Failure> {
    release_of("backtrail", "BACKTRAIL_BIN")
}

/// The release build of a package, or the binary that a variable names.
fn release_of(package: &str, variable: &str) -> Result<PathBuf, Failure> {
    let binary = match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => {
            packages::ensure(&[packages::BUILD])?;
            shell::run(shell::cargo().args(["build", "--release", "--package", package]))?;
            shell::target().join("release").join(package)
        }
    };
    binary
        .canonicalize()
        .map_err(|error| format!("cannot find {}: {error}", binary.display()))
}

/// Binds this process and its children to its first two processors: the goals are for two.
fn on_two_cores() -> Result<(), Failure> {
    let failed = |error| format!("cannot select two processors: {error}");
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).map_err(failed)?;
    let mut two = CpuSet::new();
    let processors = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor).unwrap_or(false));
    for processor in processors.take(2) {
        two.set(processor).map_err(failed)?;
    }
    sched_setaffinity(this, &two).map_err(failed)
}

/// A folder of the target directory, made where it is not there; absolute.
fn folder(name: &str) -> Result<PathBuf, Failure> {
    let folder = shell::target().join(name);
    std::fs::create_dir_all(&folder)
        .and_then(|()| folder.canonicalize())
        .map_err(|error| sentence("the bench folder", &error))
}

/// An error of a run as one sentence.
fn sentence(what: &str, error: &std::io::Error) -> Failure {
    format!("{what}: {error}")
}

/// Returns the version of a program, which is its first line of output.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(str::to_owned)
}
