//! `backtrail core-handler`: what the kernel starts at a crash.

use crate::args::CoreHandler;
use crate::exit::Failure;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Handles the crash if the kernel started this process as the handler.
///
/// The handler's name is the first argument. The others are a program's name in any bytes, and are
/// not parsed.
pub fn as_the_kernel_starts_it() -> Option<Result<(), Failure>> {
    let mut words = std::env::args_os();
    let program = words.next()?;
    if words.next()? != "core-handler" {
        return None;
    }
    let arguments: Vec<OsString> = words.collect();
    Some(handle(Path::new(&program), &arguments))
}

/// Hands the crash to the collector.
pub fn run(args: &CoreHandler) -> Result<(), Failure> {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    handle(&program, &args.arguments)
}

fn handle(program: &Path, arguments: &[OsString]) -> Result<(), Failure> {
    Ok(backtrail_collector::handler::run(program, arguments)?)
}
