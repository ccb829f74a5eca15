//! Memory we map: that of events, and plain memory that is to stay where it is.

use crate::Error;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A mapping of an event's memory, or of nothing.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory of the process, not of the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: shared, it gives out nothing but its address and length.
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
        // SAFETY: the kernel chooses a place that is free, so that no memory of ours is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset) };
        NonNull::new(start.cast::<u8>())
            .filter(|_| start != libc::MAP_FAILED)
            .map(|start| Self { start, len })
            .ok_or_else(|| failed(&format!("mapping {len} bytes")))
    }

    /// The first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// In bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Copies the bytes from `from` on to `to`; `None`, when there are not as many.
    ///
    /// What the kernel writes there meanwhile comes out as old or new bytes.
    pub(crate) fn copy(&self, from: usize, to: &mut [u8]) -> Option<()> {
        let end = from.checked_add(to.len()).filter(|end| *end <= self.len)?;
        debug_assert!(end <= self.len);
        // SAFETY: `from..end` is inside the mapping, which is readable as long as `self` lives; `to` is ours alone, so
        // the two do not overlap. The kernel is no Rust thread: its stores are seen as old or new bytes.
        unsafe { std::ptr::copy_nonoverlapping(self.start().add(from), to.as_mut_ptr(), to.len()) };
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `map`, and nothing of it is lent out beyond `self`'s life.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn failed(call: &str) -> Error {
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    let hint = match errno {
        libc::EPERM => {
            "; the memory an unprivileged user may lock is used up: give CAP_IPC_LOCK or raise `kernel.perf_event_mlock_kb`"
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

/// Plain memory in pages of its own, all of them there from the beginning.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
    locked: bool,
}

impl Memory {
    /// Takes `len` bytes, zeroed and touched, so that later use faults on none. Locked, where that is wanted and allowed.
    ///
    /// # Errors
    /// When there is not as much.
    pub fn new(len: usize, lock: bool) -> Result<Self, Error> {
        let mapping = Mapping::anonymous(len.max(1))?;
        // SAFETY: the range is the mapping that we have just made.
        let locked = lock && unsafe { libc::mlock(mapping.start().cast(), mapping.len()) } == 0;
        let mut memory = Self { mapping, locked };
        memory.bytes_mut().fill(0);
        Ok(memory)
    }

    /// Whether it cannot be paged out.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.locked
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: private memory of exactly this length, mapped as long as `self` lives; it changes only through
        // `bytes_mut`, which needs `self` alone.
        unsafe { std::slice::from_raw_parts(self.mapping.start(), self.mapping.len()) }
    }

    /// The bytes, to change.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start(), self.mapping.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_ours() {
        let mut memory = Memory::new(10_000, true).unwrap();
        assert_eq!(memory.bytes(), vec![0; 10_000]);
        memory.bytes_mut()[9_999] = 7;
        assert_eq!(memory.bytes()[9_999], 7);
    }

    #[test]
    fn more_than_there_is_is_refused_in_a_sentence() {
        let error = Memory::new(1 << 60, false).unwrap_err().to_string();
        assert!(error.contains("use a smaller ring"), "{error}");
    }

    #[test]
    fn a_copy_never_leaves_the_mapping() {
        let mapping = Mapping::anonymous(8192).unwrap();
        let mut bytes = [1; 16];
        assert_eq!(mapping.copy(8192 - 16, &mut bytes), Some(()));
        assert_eq!(bytes, [0; 16]);
        assert_eq!(mapping.copy(8192 - 15, &mut bytes), None);
        assert_eq!(mapping.copy(usize::MAX, &mut bytes), None);
    }
}
