//! What would have become of the core without us: it goes to the handler that stood in `core_pattern`, or into the
//! file that it named.

use super::crashed_thread::CrashedThread;
use super::min_rate::{self, MinRateReader};
use super::{CoreStream, core_file};
use crate::error::{Error, Result};
use crate::pattern::{Specifiers, expand};
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};

/// Passes the core on.
pub(super) fn pass_on(previous: &str, crash: &Specifiers, core: CoreStream) -> Result<()> {
    let words = expand(previous, crash);
    let Some((first, rest)) = words.split_first().filter(|(first, _)| !first.is_empty()) else {
        return Ok(());
    };
    if previous.starts_with('|') {
        return run(first, rest, core);
    }
    if previous.starts_with('@') {
        // A socket of somebody else: only the kernel can connect there and say who it is.
        return Ok(());
    }
    // The kernel writes no file of a process that is not to be dumped.
    if crash.dumpable != 1 {
        return Ok(());
    }
    if core.is_broken {
        return Err(Error::Unable(
            "the collector has kept a part of the core: no core file is written".to_owned(),
        ));
    }
    min_rate::begin();
    let name = core_file::with_pid(first.clone(), crash.inner_pid);
    CrashedThread::open(crash)
        .and_then(|thread| core_file::write(&name, thread, crash.limit, MinRateReader::new(core.read()?)))
        .map_err(Error::file("write the core file", name.as_ref()))
}

fn run(program: &OsStr, arguments: &[OsString], core: CoreStream) -> Result<()> {
    let run = || -> io::Result<()> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        // Of a broken core it gets nothing, and can tell of the crash alone.
        if let Some(mut input) = input.filter(|_| !core.is_broken) {
            match io::copy(&mut core.read()?, &mut input) {
                // It has seen enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait().map(drop)
    };
    run().map_err(Error::file("pass the core on to", program.as_ref()))
}
