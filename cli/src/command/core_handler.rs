//! `backtrail core-handler`: handles a crash for the kernel.

use crate::args::CoreHandler;
use crate::exit::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Handles the crash if the kernel started the handler, which it does with this command's name as
/// the first argument. The other arguments include a program's name, which may be any bytes, so
/// they are not parsed.
pub fn run_for_kernel() -> Option<Result<(), Failure>> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if words.next()? != "core-handler" {
        return None;
    }
    let arguments: Vec<OsString> = words.collect();
    Some(handle(Path::new(&program), &arguments))
}

/// Passes the crash to the collector.
pub fn run(args: &CoreHandler) -> Result<(), Failure> {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    handle(&program, &args.arguments)
}

fn handle(program: &Path, arguments: &[OsString]) -> Result<(), Failure> {
    Ok(backtrail_collector::handler::run(program, arguments)?)
}
