//! Opens a bundle or core for the commands that decode: jobs, progress bar, Ctrl-C.

use crate::args::Decode;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Bar;
use crate::terminal;
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::{Progress, Watch};
use std::path::Path;

/// Converts [`Decode`] to options.
pub fn options(decode: &Decode) -> OpenOptions {
    OpenOptions {
        jobs: decode.jobs,
        last: decode.last.map(|mib| u64::from(mib.get()) << 20),
        debug_roots: decode.symfs.clone(),
        ..OpenOptions::default()
    }
}

/// Opens and decodes a bundle or core, with a progress bar. Warnings go to standard error.
pub fn session(path: &Path, options: &OpenOptions, interrupt: &Interrupt) -> Result<Session, Failure> {
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    let session = Session::open(path, options, &watch)?;
    for warning in session.warnings() {
        terminal::print_error(&format!("warning: {warning}"));
    }
    Ok(session)
}
