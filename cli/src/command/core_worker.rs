//! `backtrail core-worker`: reads one crash for the collector.

use crate::exit::Failure;

/// Runs the task received on standard input.
pub fn run() -> Result<(), Failure> {
    Ok(backtrail_collector::worker::run()?)
}
