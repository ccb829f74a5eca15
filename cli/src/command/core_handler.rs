//! `backtrail core-handler`: what the kernel starts at a crash.

use crate::args::CoreHandler;
use crate::exit::Failure;
use std::path::PathBuf;

/// Hands the crash to the collector.
pub fn run(args: &CoreHandler) -> Result<(), Failure> {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    Ok(backtrail_collector::handler::run(&program, &args.arguments)?)
}
