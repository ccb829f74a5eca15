//! Passes the core on as if the collector were not installed: to the previous handler, or to the
//! file that `core_pattern` named.

use super::core_file;
use super::core_stream::CoreStream;
use super::crashed_thread::CrashedThread;
use super::min_rate::{self, MinRateReader};
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
        // A socket of another program. Only the kernel can connect there and identify the process.
        return Ok(());
    }
    // The kernel writes no core file of a process that is not dumpable.
    if crash.dumpable != 1 {
        return Ok(());
    }
    if core.is_broken {
        return Err(Error::Unable(
            "the collector did not return a part of the core: no core file is written".to_owned(),
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
        // The previous handler gets no part of an incomplete core, but can still report the crash.
        if let Some(mut input) = input.filter(|_| !core.is_broken) {
            match io::copy(&mut core.read()?, &mut input) {
                // The handler has read enough.
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error),
                _ => {}
            }
        }
        child.wait().map(drop)
    };
    run().map_err(Error::file("pass the core on to", program.as_ref()))
}
