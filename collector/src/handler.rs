//! The crash handler: the program that the kernel starts at each crash, the core on its standard input (core(5)).
//!
//! While it runs the process is kept: its memory, its mappings and its files can be read. It hands the core's pipe
//! to the daemon, waits for the answer, no longer than the limit, and then does what would have been done without us.

mod chain;
mod core_file;
mod crashed_thread;

use crate::error::{Error, Result};
use crate::pattern::{Saved, Specifiers};
use crate::runtime::Runtime;
use crate::wire::{Connection, Reply, Request};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// How long the daemon may take beyond the limit that it has set itself.
const GRACE: Duration = Duration::from_secs(5);

/// Runs as the kernel started us: `program` as it was called, and its arguments.
///
/// # Errors
/// When the arguments are not those that our pattern asks for, or the core cannot go on to where it went before.
/// That there is no daemon is no error.
pub fn run(program: &Path, arguments: &[OsString]) -> Result<()> {
    let crash = Specifiers::of(arguments).ok_or_else(|| {
        Error::Unable(
            "this command is for the kernel to start, by core_pattern; `backtrail collect` sets it"
                .to_owned(),
        )
    })?;
    let runtime = Runtime::new(program.parent().unwrap_or(Path::new("/run/backtrail")));
    // It was put back since the kernel started us, if only the second is there.
    let saved = Saved::read(&runtime.saved_pattern()).or_else(|| Saved::read(&runtime.past_pattern()));
    let taken = match &saved {
        Some(saved) if saved.daemon != crash.pid => {
            let limit = Duration::from_millis(saved.hold_limit) + GRACE;
            tell(&runtime, &crash, limit).unwrap_or_default()
        }
        _ => Taken::default(),
    };
    match saved {
        Some(saved) if saved.chain => chain::pass_on(&saved.previous, &crash, taken),
        _ => Ok(()),
    }
}

/// What the daemon has read of the core already: so many bytes, which stand in the file.
#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    file: Option<File>,
}

/// Has the daemon read the process.
fn tell(runtime: &Runtime, crash: &Specifiers, limit: Duration) -> io::Result<Taken> {
    let connection = Connection::open(&runtime.crash_socket())?;
    connection.set_timeout(limit)?;
    connection.send(&Request::Crash(crash.clone()), Some(io::stdin().as_fd()))?;
    let (reply, file) = connection.receive::<Reply>()?;
    Ok(Taken {
        bytes: reply.taken,
        file: file.map(File::from),
    })
}
