//! The calls of a bundle as a profile.

use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::progress::Bar;
use backtrail_debugger::OpenOptions;
use backtrail_decoder::{Progress, Watch};
use backtrail_export::{CallProfile, Options, Timeline};
use std::io::Read;
use std::path::Path;

/// The first bytes of packed bundles (zstd), and of cores.
const MAGICS: [[u8; 4]; 2] = [[0x28, 0xb5, 0x2f, 0xfd], *b"\x7fELF"];

/// Returns whether a path is a recording of control flow: a directory, or a file that begins as a
/// packed bundle or as a core. No file with samples does.
pub fn is_bundle(path: &Path) -> bool {
    let begins = || {
        let mut first = [0; 4];
        std::fs::File::open(path)?.read_exact(&mut first)?;
        std::io::Result::Ok(MAGICS.contains(&first))
    };
    // Bytes of a pipe can be read only once.
    path.is_dir() || path.is_file() && begins().unwrap_or(false)
}

/// Reads all calls of a bundle.
pub fn read(path: &Path) -> Result<CallProfile, Failure> {
    let interrupt = Interrupt::install();
    let session = open::session(path, &OpenOptions::default(), &interrupt)?;
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    let timeline = Timeline::new(&session, &Options::default(), &watch)?;
    Ok(CallProfile::new(&timeline, &watch)?)
}
