//! `backtrail core-worker`: what the collector starts to read one crash.

use crate::exit::Failure;

/// Runs the task that comes over standard input.
pub fn run() -> Result<(), Failure> {
    Ok(backtrail_collector::worker::run()?)
}
