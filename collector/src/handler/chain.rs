//! What would have become of the core without us: it goes to the handler that stood in `core_pattern`, or into the
//! file that it named.

use super::crashed_thread::CrashedThread;
use super::{Taken, core_file};
use crate::error::{Error, Result};
use crate::pattern::{Specifiers, expand};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Command, Stdio};

/// Passes the core on, what was taken of it first.
pub(super) fn pass_on(previous: &str, crash: &Specifiers, taken: Taken) -> Result<()> {
    let words = expand(previous, crash);
    let Some((first, rest)) = words.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Ok(());
    };
    if previous.starts_with('|') {
        return run(first, rest, taken);
    }
    if previous.starts_with('@') {
        // A socket of somebody else: only the kernel can connect there and say who it is.
        return Ok(());
    }
    // The kernel writes no file at a limit of 0, nor of a process that is not to be dumped.
    if crash.limit == 0 || crash.dumpable != 1 {
        return Ok(());
    }
    let name = core_file::with_pid(first.clone(), crash.inner_pid);
    CrashedThread::open(crash)
        .and_then(|thread| core_file::write(&name, thread, crash.limit, core(taken)?))
        .map_err(Error::file("write the core file", name.as_ref()))
}

/// The core as the kernel sends it.
fn core(taken: Taken) -> io::Result<impl Read> {
    let first: Box<dyn Read> = match taken.file {
        Some(mut file) => {
            file.seek(SeekFrom::Start(0))?;
            Box::new(file.take(taken.bytes))
        }
        None => Box::new(io::empty()),
    };
    Ok(first.chain(io::stdin().lock()))
}

fn run(program: &OsStr, arguments: &[OsString], taken: Taken) -> Result<()> {
    let run = || -> io::Result<()> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()?;
        if let Some(mut input) = child.stdin.take() {
            match io::copy(&mut core(taken)?, &mut input) {
                // It has seen enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait().map(drop)
    };
    run().map_err(Error::file("pass the core on to", program.as_ref()))
}
