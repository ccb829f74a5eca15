//! Reads the memory of another process.

use crate::{RawTid, status};
use std::io;

/// Copies memory from an address of a process (`process_vm_readv(2)`), and returns the number of
/// bytes read.
#[must_use]
pub fn read(pid: RawTid, address: u64, out: &mut [u8]) -> usize {
    match read_by(pid, address, out) {
        // The first thread has ended, but others may continue.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            let other = Some(status::thread_with_memory(pid)).filter(|other| *other != pid);
            other.map_or(0, |other| read_by(other, address, out).unwrap_or(0))
        }
        read => read.unwrap_or(0),
    }
}

fn read_by(pid: RawTid, address: u64, out: &mut [u8]) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: out.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut libc::c_void,
        iov_len: out.len(),
    };
    // SAFETY: `local` describes `out`, and the kernel checks the remote side.
    let read = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}
