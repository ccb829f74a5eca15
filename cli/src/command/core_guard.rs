//! `backtrail core-guard`: what puts `core_pattern` back when the collector is killed.

use crate::args::CoreGuard;
use crate::exit::Failure;
use backtrail_collector::{Runtime, guard};

/// Sleeps until the collector is gone.
pub fn run(args: &CoreGuard) -> Result<(), Failure> {
    Ok(guard::run(&Runtime::new(&args.runtime), std::io::stdin())?)
}
