//! Opening a bundle or core for the commands that decode: engine, jobs, progress bar, Ctrl-C.

use crate::args::Decode;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Bar;
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::{EngineKind, Progress, Watch};
use std::path::Path;

/// The options of [`Decode`].
pub fn options(decode: &Decode) -> Result<OpenOptions, Failure> {
    let engine: EngineKind = decode.engine.parse().map_err(Failure::usage)?;
    Ok(OpenOptions {
        engine,
        jobs: decode.jobs,
        last: decode.last.map(|mib| u64::from(mib.get()) << 20),
        ..OpenOptions::default()
    })
}

/// Opens and decodes, with a progress bar.
pub fn session(path: &Path, options: &OpenOptions, interrupt: &Interrupt) -> Result<Session, Failure> {
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    Ok(Session::open(
        path,
        options,
        &Watch {
            cancel: interrupt.flag(),
            progress: &progress,
        },
    )?)
}
