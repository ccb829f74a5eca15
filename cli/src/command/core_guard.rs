//! `backtrail core-guard`: restores `core_pattern` when the collector is killed.

use crate::args::CoreGuard;
use crate::exit::Failure;
use backtrail_collector::{Runtime, guard};

/// Waits until the collector has exited.
pub fn run(args: &CoreGuard) -> Result<(), Failure> {
    Ok(guard::run(&Runtime::new(&args.runtime), std::io::stdin())?)
}
