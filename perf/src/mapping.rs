//! LockedMemory mappings: of events, and of anonymous memory with a fixed address.

use crate::Error;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping of an event's memory, or an anonymous mapping.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that created it.
unsafe impl Send for Mapping {}
// SAFETY: shared references only expose its address and length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of an event from `offset` on.
    pub(crate) fn of_event(
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        writable: bool,
    ) -> Result<Self, Error> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        Self::map(len, protection, libc::MAP_SHARED, fd.as_raw_fd(), offset)
    }

    fn anonymous(len: usize) -> Result<Self, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        Self::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    }

    fn map(len: usize, protection: i32, flags: i32, fd: i32, offset: i64) -> Result<Self, Error> {
        // SAFETY: the kernel chooses a free address, so that no memory is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        NonNull::new(start.cast::<u8>())
            .filter(|_| start != libc::MAP_FAILED)
            .map(|start| Self { start, len })
            .ok_or_else(|| failed(&format!("mapping {len} bytes")))
    }

    /// Returns the start address.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies bytes from offset `from` to `to`, or returns `None` if the mapping is too short.
    ///
    /// Bytes that the kernel writes at the same time may be old or new.
    pub(crate) fn copy(&self, from: usize, to: &mut [u8]) -> Option<()> {
        let end = from.checked_add(to.len()).filter(|end| *end <= self.len)?;
        debug_assert!(end <= self.len);
        // SAFETY: `from..end` is inside the mapping, which is readable as long as `self` lives.
        // `to` is borrowed exclusively, so the two do not overlap. The kernel is not a Rust thread:
        // its stores appear as old or new bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.start().add(from), to.as_mut_ptr(), to.len()) };
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping was created in `map`, and no borrow of it outlives `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn failed(call: &str) -> Error {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let hint = match errno {
        libc::EPERM => {
            "; the limit of locked memory for unprivileged users is reached: give CAP_IPC_LOCK or raise `kernel.perf_event_mlock_kb`"
        }
        libc::ENOMEM => "; use a smaller ring",
        _ => "",
    };
    Error::Call {
        call: call.to_owned(),
        errno,
        hint,
    }
}

/// LockedMemory in its own pages, all of which are present from the start.
#[derive(Debug)]
pub struct LockedMemory {
    mapping: Mapping,
    locked: bool,
}

impl LockedMemory {
    /// Allocates `len` bytes, zeroed and touched, so that later accesses do not fault. Locks them
    /// if requested and allowed.
    ///
    /// # Errors
    /// Fails if memory is insufficient.
    pub fn new(len: usize, lock: bool) -> Result<Self, Error> {
        let mapping = Mapping::anonymous(len.max(1))?;
        // SAFETY: the range is the mapping created above.
        let locked = lock && unsafe { libc::mlock(mapping.start().cast(), mapping.len()) } == 0;
        let mut memory = Self { mapping, locked };
        memory.bytes_mut().fill(0);
        Ok(memory)
    }

    /// Returns whether it is locked against paging.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: private memory of exactly this length, mapped as long as `self` lives. It changes
        // only through `bytes_mut`, which borrows `self` exclusively.
        unsafe { std::slice::from_raw_parts(self.mapping.start(), self.mapping.len()) }
    }

    /// Returns the bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start(), self.mapping.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_writable() {
        let mut memory = LockedMemory::new(10_000, true).unwrap();
        assert_eq!(memory.bytes(), vec![0; 10_000]);
        memory.bytes_mut()[9_999] = 7;
        assert_eq!(memory.bytes()[9_999], 7);
    }

    #[test]
    fn oversized_allocation_is_refused_with_advice() {
        let error = LockedMemory::new(1 << 60, false).unwrap_err().to_string();
        assert!(error.contains("use a smaller ring"), "{error}");
    }

    #[test]
    fn copy_stays_inside_the_mapping() {
        let mapping = Mapping::anonymous(8192).unwrap();
        let mut bytes = [1; 16];
        assert_eq!(mapping.copy(8192 - 16, &mut bytes), Some(()));
        assert_eq!(bytes, [0; 16]);
        assert_eq!(mapping.copy(8192 - 15, &mut bytes), None);
        assert_eq!(mapping.copy(usize::MAX, &mut bytes), None);
    }
}
