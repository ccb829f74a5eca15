//! The head of the core that the kernel writes into the handler's pipe: the registers of all threads, as they were.

use backtrail_bundle::core::{Core, CoreContents};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The head, and the bytes that it was read from.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) bytes: Vec<u8>,
    /// What it says, or why it says nothing.
    pub(super) contents: Result<CoreContents, String>,
}

/// Reads it, as far as it can be read until `deadline`; the kernel waits in the rest.
pub(super) fn read(pipe: OwnedFd, deadline: Instant) -> (Head, File) {
    let mut pipe = File::from(pipe);
    let mut bytes = Vec::new();
    let contents = read_all(&mut pipe, &mut bytes, deadline);
    let head = Head { bytes, contents };
    (head, pipe)
}

fn read_all(pipe: &mut File, bytes: &mut Vec<u8>, deadline: Instant) -> Result<CoreContents, String> {
    const FIRST: usize = 128;
    let failed = |error: io::Error| format!("the core could not be read ({error})");
    fill(pipe, bytes, FIRST, deadline).map_err(failed)?;
    let size = Core::head_size(bytes).ok_or("the core is not that of a 64-bit process")?;
    let size = usize::try_from(size).map_err(|_| "the core is too large")?;
    fill(pipe, bytes, size, deadline).map_err(failed)?;
    Core::parse_head(bytes.clone().into(), "the core").map_err(|error| error.to_string())
}

/// Reads until there are `size` bytes.
fn fill(pipe: &mut File, bytes: &mut Vec<u8>, size: usize, deadline: Instant) -> io::Result<()> {
    const CHUNK: usize = 256 << 10;
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
fn wait(pipe: &File, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
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

    fn read_what(bytes: &[u8], close: bool) -> Head {
        let (reading, mut writing) = io::pipe().unwrap();
        writing.write_all(bytes).unwrap();
        let kept = (!close).then_some(writing);
        let head = read(reading.into(), Instant::now() + Duration::from_millis(50)).0;
        drop(kept);
        head
    }

    #[test]
    fn rubbish_silence_and_a_broken_pipe_are_told() {
        assert!(
            read_what(&[0; 200], false)
                .contents
                .unwrap_err()
                .contains("64-bit")
        );
        assert!(
            read_what(b"\x7fELF", false)
                .contents
                .unwrap_err()
                .contains("timed out")
        );
        assert!(
            read_what(b"\x7fELF", true)
                .contents
                .unwrap_err()
                .contains("end of file")
        );
    }
}
