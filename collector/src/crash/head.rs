//! The head of the core that the kernel writes into the handler's pipe: the registers of all
//! threads, as they were.
//!
//! Its bytes are read here; a worker parses them.

use crate::clock;
use backtrail_bundle::core::Core;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// How many bytes say how long the head is.
const FIRST: usize = 128;
/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// No head is larger: that of a process with 32 768 threads, of 3.5 KiB each with AVX-512.
const MAX_HEAD: u64 = 128 << 20;

/// Reads the head of a core as far as it comes until `deadline` (`CLOCK_MONOTONIC`, nanoseconds);
/// the kernel waits in the rest. The bytes are all that were read, and the sentence says why they
/// are no whole head.
pub(super) fn read(pipe: &File, deadline: u64) -> (Vec<u8>, Option<String>) {
    let mut bytes = Vec::new();
    let why = read_all(pipe, &mut bytes, deadline).err();
    (bytes, why)
}

fn read_all(pipe: &File, bytes: &mut Vec<u8>, deadline: u64) -> Result<(), String> {
    let failed = |error: io::Error| format!("the core could not be read ({error})");
    fill(pipe, bytes, FIRST, deadline).map_err(failed)?;
    let size = Core::head_size(bytes).ok_or("the core is not that of a 64-bit process")?;
    let size = usize::try_from(size.min(MAX_HEAD)).unwrap_or(FIRST);
    fill(pipe, bytes, size, deadline).map_err(failed)
}

/// Reads until there are `size` bytes.
fn fill(mut pipe: &File, bytes: &mut Vec<u8>, size: usize, deadline: u64) -> io::Result<()> {
    while bytes.len() < size {
        wait(pipe, deadline)?;
        let start = bytes.len();
        bytes.resize(size.min(start + CHUNK), 0);
        let got = pipe.read(bytes.get_mut(start..).unwrap_or_default());
        bytes.truncate(start + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Waits until there is something to read.
pub(super) fn wait(pipe: &File, deadline: u64) -> io::Result<()> {
    let left = Duration::from_nanos(deadline.saturating_sub(clock::monotonic()));
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let timeout = PollTimeout::try_from(left.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout)? {
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
        let kept = (!close).then_some(writing);
        let pipe = File::from(OwnedFd::from(reading));
        let (_, why) = read(&pipe, clock::monotonic() + 50_000_000);
        drop(kept);
        why.unwrap()
    }

    #[test]
    fn rubbish_silence_and_a_broken_pipe_are_told() {
        assert!(read_what(&[0; 200], false).contains("64-bit"));
        assert!(read_what(b"\x7fELF", false).contains("timed out"));
        assert!(read_what(b"\x7fELF", true).contains("end of file"));
    }
}
