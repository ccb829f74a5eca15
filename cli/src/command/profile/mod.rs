//! `backtrail profile`: views and conversions of profiles.

mod diff;
mod export;
mod report;
mod selected;
mod symbolize;
mod weight;

use crate::args::Profile;
use crate::exit::Failure;

/// Runs a command of `backtrail profile`.
pub fn run(args: &Profile) -> Result<(), Failure> {
    match args {
        Profile::Report(args) => report::run(args),
        Profile::Diff(args) => diff::run(args),
        Profile::Export(args) => export::run(args),
    }
}
