//! The minimum rate for writing a core file.
//!
//! The file system may belong to the crashing user. A handler that waits for it without a limit
//! would occupy one of the kernel's handler slots.

use nix::sys::signal::{SigSet, Signal};
use nix::unistd::alarm;
use std::io::{self, Read};
use std::time::Instant;

/// Seconds that writing may take in any case.
const BASE_SECONDS: u64 = 30;
/// Bytes that each further second must write.
const BYTES_PER_SECOND: u64 = 1 << 20;

/// A reader of the core that must keep the minimum rate. An alarm kills the handler otherwise.
#[derive(Debug)]
pub(super) struct MinRateReader<R> {
    core: R,
    started: Instant,
    passed: u64,
}

/// Starts the time limit for writing. When it expires, the kernel kills the handler.
pub(super) fn begin() {
    let mut alarms = SigSet::empty();
    alarms.add(Signal::SIGALRM);
    // This cannot fail. Without it there would be no limit.
    let _ = alarms.thread_unblock();
    arm(BASE_SECONDS);
}

fn arm(seconds: u64) {
    alarm::set(u32::try_from(seconds).unwrap_or(u32::MAX).max(1));
}

impl<R> MinRateReader<R> {
    pub(super) fn new(core: R) -> Self {
        Self {
            core,
            started: Instant::now(),
            passed: 0,
        }
    }
}

/// Returns the seconds that writing `passed` bytes may take.
fn allowed(passed: u64) -> u64 {
    BASE_SECONDS + passed / BYTES_PER_SECOND
}

impl<R: Read> Read for MinRateReader<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let left = allowed(self.passed).saturating_sub(self.started.elapsed().as_secs());
        if left == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        arm(left);
        let got = self.core.read(room)?;
        self.passed += got as u64;
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn too_slow_core_times_out() {
        let mut core = MinRateReader::new(&[1, 2, 3][..]);
        assert_eq!(core.read(&mut [0; 2]).unwrap(), 2);
        core.started -= Duration::from_secs(BASE_SECONDS);
        let late = core.read(&mut [0; 2]).unwrap_err();
        alarm::cancel();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn large_cores_have_more_time() {
        assert_eq!((allowed(0), allowed(10 << 30)), (30, 30 + 10 * 1024));
    }
}
