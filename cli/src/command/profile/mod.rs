//! `backtrail profile`: takes, shows and converts profiles.

#[cfg(all(feature = "profiler", feature = "hub"))]
mod agent;
#[cfg(all(feature = "profiler", feature = "hub"))]
mod agent_requests;
mod bundle;
mod calls;
mod diff;
mod export;
mod html;
mod lines;
mod otlp_headers;
#[cfg(feature = "profiler")]
mod record;
#[cfg(feature = "profiler")]
mod record_options;
mod report;
mod selected;
mod send;
mod symbolize;
#[cfg(feature = "profiler")]
mod uprobe;
mod weight;

use crate::args::Profile;
use crate::exit::Failure;
use std::process::ExitCode;

/// Runs a command of `backtrail profile`. `record` returns the exit status of its program.
pub fn run(args: &Profile) -> Result<ExitCode, Failure> {
    let done = match args {
        #[cfg(feature = "profiler")]
        Profile::Record(args) => return record::run(args),
        #[cfg(all(feature = "profiler", feature = "hub"))]
        Profile::Agent(args) => agent::run(args),
        Profile::Report(args) => report::run(args),
        Profile::Diff(args) => diff::run(args),
        Profile::Export(args) => export::run(args),
    };
    done.map(|()| ExitCode::SUCCESS)
}
