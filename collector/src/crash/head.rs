//! The head of the core that the kernel writes into the handler's pipe. It has the registers of all
//! threads.
//!
//! This module copies its bytes into a memory file. A worker parses them.

use crate::clock;
use crate::worker::Sealed;
use backtrail_bundle::core::Core;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

/// Bytes that contain the size of the head.
const SIZE_PREFIX: usize = 128;
/// Bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Maximum size of a head. This is enough for some 11 000 threads with AMX state.
const MAX_HEAD: u64 = 128 << 20;

/// Reads the head of a core until `deadline` (`CLOCK_MONOTONIC`, nanoseconds). The kernel waits
/// with the rest. Returns the bytes that were read, and why the head is incomplete, if it is.
///
/// # Errors
/// When memory is exhausted.
pub(super) fn read(pipe: &File, deadline: u64) -> io::Result<(Sealed, Option<String>)> {
    let mut bytes = Sealed::begin()?;
    let why = read_all(pipe, &mut bytes, deadline).err();
    Ok((bytes.seal()?, why))
}

fn read_all(pipe: &File, bytes: &mut File, deadline: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("the core could not be read ({error})");
    let mut first = Vec::new();
    fill(pipe, &mut first, SIZE_PREFIX as u64, deadline).map_err(failed)?;
    bytes.write_all(&first).map_err(failed)?;
    let size = Core::head_size(&first).ok_or("the core is not that of a 64-bit process")?;
    if size > MAX_HEAD {
        return Err(format!(
            "the core has too many threads: its head is larger than {} MiB",
            MAX_HEAD >> 20
        ));
    }
    fill(pipe, bytes, size.saturating_sub(first.len() as u64), deadline).map_err(failed)
}

/// Reads `size` bytes.
fn fill(mut pipe: &File, to: &mut impl Write, size: u64, deadline: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    let mut left = size;
    while left != 0 {
        wait(pipe, PollFlags::POLLIN, deadline)?;
        let room = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        match pipe.read(chunk.get_mut(..room).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => {
                to.write_all(chunk.get(..got).unwrap_or_default())?;
                left -= got as u64;
            }
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            Err(_) => {}
        }
    }
    Ok(())
}

/// Waits until the pipe is ready for reading or writing.
pub(super) fn wait(pipe: &File, what: PollFlags, deadline: u64) -> io::Result<()> {
    let left = Duration::from_nanos(deadline.saturating_sub(clock::monotonic()));
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let timeout = PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(pipe.as_fd(), what)], timeout)? {
        0 => Err(io::ErrorKind::TimedOut.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;

    fn read_what(bytes: &[u8], close: bool) -> String {
        let (reading, mut writing) = io::pipe().unwrap();
        writing.write_all(bytes).unwrap();
        let writer = (!close).then_some(writing);
        let pipe = File::from(OwnedFd::from(reading));
        let (_, why) = read(&pipe, clock::monotonic() + 50_000_000).unwrap();
        drop(writer);
        why.unwrap()
    }

    #[test]
    fn incomplete_heads_have_a_reason() {
        assert!(read_what(&[0; 200], false).contains("64-bit"));
        assert!(read_what(b"\x7fELF", false).contains("timed out"));
        assert!(read_what(b"\x7fELF", true).contains("end of file"));
    }
}
