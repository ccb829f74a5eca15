//! The crash handler: the program that the kernel starts at each crash, the core on its standard input (core(5)).
//!
//! While it runs the process is kept: its memory, its mappings and its files can be read. It hands the core to the
//! daemon, waits for the answer, no longer than the limit, and then does what would have been done without us.

mod chain;
mod core_file;
mod core_pipe;
mod crashed_thread;
mod min_rate;

use crate::error::{Error, Result};
use crate::pattern::{SavedPattern, Specifiers};
use crate::runtime::Runtime;
use crate::wire::{Connection, Reply, Request};
use core_pipe::{CorePipe, remaining};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the daemon may take beyond the limit that it has set itself.
const GRACE: Duration = Duration::from_secs(1);

/// Runs as the kernel started us: `program` as it was called, and its arguments.
///
/// # Errors
/// When the arguments are not those that our pattern asks for, or the core cannot go on to where it went before.
/// That there is no daemon is no error.
pub fn run(program: &Path, arguments: &[OsString]) -> Result<()> {
    let started = Instant::now();
    let (runtime, arguments) = match arguments.split_first() {
        Some((first, rest)) if first.as_bytes().starts_with(b"/") => (Path::new(first), rest),
        // The pattern had no room for the runtime directory: the program is a link in it.
        _ => (program.parent().unwrap_or(Path::new("/")), arguments),
    };
    let runtime = Runtime::new(runtime);
    let crash = Specifiers::of(arguments).ok_or_else(|| {
        Error::Unable(
            "this command is for the kernel to start, by core_pattern; `backtrail collect` sets it"
                .to_owned(),
        )
    })?;
    // It was put back since the kernel started us, if only the second is there.
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

/// The core, of which the daemon may have read some.
#[derive(Debug, Default)]
struct CoreStream {
    /// What the daemon has taken and given back: so many bytes, which stand in the file.
    taken: Option<(File, u64)>,
    /// What was on its way to the daemon.
    leftover: Vec<u8>,
    /// The daemon has read a part of it and not given it back.
    is_broken: bool,
}

impl CoreStream {
    /// All of it, as the kernel sends it.
    fn read(self) -> io::Result<impl Read> {
        let taken: Box<dyn Read> = match self.taken {
            Some((mut file, bytes)) => {
                file.seek(SeekFrom::Start(0))?;
                Box::new(file.take(bytes))
            }
            None => Box::new(io::empty()),
        };
        let first = taken.chain(io::Cursor::new(self.leftover));
        Ok(first.chain(io::stdin().lock()))
    }
}

/// Has the daemon read the process, if there is one, until `deadline` at most.
fn hand_over(runtime: &Runtime, crash: &Specifiers, deadline: Instant) -> io::Result<CoreStream> {
    let mut pipe = CorePipe::new()?;
    // A daemon that is gone, or takes too long, has given nothing back.
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
