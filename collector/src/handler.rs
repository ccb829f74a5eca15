//! The crash handler: the program that the kernel starts at each crash, with the core on its
//! standard input (core(5)).
//!
//! The kernel holds the process while the handler runs, so its memory, mappings and files can be
//! read. The handler gives the core to the daemon and waits for the answer, at most for the limit.
//! Then it passes the core on to the previous handler.

mod chain;
mod core_file;
mod core_pipe;
mod core_stream;
mod crashed_thread;
mod min_rate;

use crate::error::{Error, Result};
use crate::pattern::{SavedPattern, Specifiers};
use crate::runtime::Runtime;
use crate::wire::{Connection, Reply, Request};
use core_pipe::{CorePipe, remaining};
use core_stream::CoreStream;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Extra time for the daemon after its own limit.
const GRACE: Duration = Duration::from_secs(1);

/// Runs the handler as the kernel starts it. `program` is the path of the call.
///
/// # Errors
/// When the arguments do not match the installed pattern, or the core cannot be passed on. A
/// missing daemon is not an error.
pub fn run(program: &Path, arguments: &[OsString]) -> Result<()> {
    let started = Instant::now();
    let (runtime, arguments) = match arguments.split_first() {
        Some((first, rest)) if first.as_bytes().starts_with(b"/") => (Path::new(first), rest),
        // The pattern had no space for the runtime directory, so the program is a link in that
        // directory.
        _ => (program.parent().unwrap_or(Path::new("/")), arguments),
    };
    let runtime = Runtime::new(runtime);
    let crash = Specifiers::of(arguments).ok_or_else(|| {
        Error::Unable(
            "only the kernel starts this command, by core_pattern; `backtrail collect` sets it".to_owned(),
        )
    })?;
    // If only the second file exists, the pattern was restored after the kernel started this
    // handler.
    let saved =
        SavedPattern::read(&runtime.saved_pattern()).or_else(|| SavedPattern::read(&runtime.past_pattern()));
    let Some(saved) = saved else { return Ok(()) };
    let core = if saved.daemon == crash.pid {
        CoreStream::default()
    } else {
        let deadline = started + Duration::from_millis(saved.hold_limit) + GRACE;
        hand_over(&runtime, &crash, deadline).map_err(Error::system("hand the core to the collector"))?
    };
    if !saved.chain {
        return Ok(());
    }
    chain::pass_on(&saved.previous, &crash, core)
}

/// Gives the core to the daemon, if one is running, and waits for its answer until `deadline`.
fn hand_over(runtime: &Runtime, crash: &Specifiers, deadline: Instant) -> io::Result<CoreStream> {
    let mut pipe = CorePipe::new()?;
    // A daemon that has ended, or takes too long, returns nothing.
    let reply = ask(runtime, crash, &mut pipe, deadline);
    let taken = reply.ok().and_then(|(reply, file)| Some((file?, reply.taken)));
    let leftover = pipe.leftover(taken.as_ref().map_or(0, |(_, bytes)| *bytes))?;
    Ok(CoreStream {
        taken,
        is_broken: leftover.is_none(),
        leftover: leftover.unwrap_or_default(),
    })
}

fn ask(
    runtime: &Runtime,
    crash: &Specifiers,
    pipe: &mut CorePipe,
    deadline: Instant,
) -> io::Result<(Reply, Option<File>)> {
    let connection = Connection::open_within(&runtime.crash_socket(), remaining(deadline)?)?;
    connection.set_timeout(remaining(deadline)?)?;
    connection.send(&Request::Crash(crash.clone()), Some(pipe.end()))?;
    pipe.until_answered(io::stdin().as_fd(), connection.as_fd(), deadline)?;
    connection.set_timeout(remaining(deadline)?)?;
    let (reply, file) = connection.receive::<Reply>()?;
    Ok((reply, file.map(File::from)))
}
