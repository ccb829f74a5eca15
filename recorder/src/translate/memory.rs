//! Memory that is shared with the program, as the recorder sees it.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A shared mapping of a file, unmapped when dropped.
///
/// The program may write to it at any time. A read is meaningful only if the program is known to
/// have finished writing.
#[derive(Debug)]
pub(super) struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is plain memory owned by this value. Every access is atomic or copies within
// its bounds.
unsafe impl Send for SharedMemory {}
// SAFETY: as above; no method returns a reference that another one could invalidate.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps the first `len` bytes of `file`, and sets its size to `len`.
    pub(super) fn map(file: &File, len: u64) -> io::Result<Self> {
        file.set_len(len)?;
        let len = len as usize;
        // SAFETY: a new mapping at an address that the kernel chooses; the file is open.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { start, len })
    }

    fn at(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let offset = usize::try_from(offset).ok()?;
        let end = offset.checked_add(len)?;
        // SAFETY: the offset is inside the mapping.
        (end <= self.len).then(|| unsafe { self.start.add(offset) })
    }

    /// Returns the word at `offset`, or 0 out of bounds.
    pub(super) fn load(&self, offset: u64) -> u64 {
        self.word(offset).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes the word at `offset` in one store.
    pub(super) fn store(&self, offset: u64, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: aligned (the mapping begins at a page), inside, and valid for any bits.
        Some(unsafe { at.cast().as_ref() })
    }

    /// Writes the four bytes at `offset`, a multiple of 4, in one store.
    pub(super) fn store_half(&self, offset: u64, value: u32) {
        if let Some(at) = self.at(offset, 4).filter(|_| offset.is_multiple_of(4)) {
            // SAFETY: aligned, inside, and valid for any bits.
            let half: &AtomicU32 = unsafe { at.cast().as_ref() };
            half.store(value, Ordering::Release);
        }
    }

    /// Copies bytes into the mapping. Does nothing out of bounds.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) {
        if let Some(at) = self.at(offset, bytes.len()) {
            // SAFETY: inside, and the source does not overlap the mapping.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at.as_ptr(), bytes.len()) };
        }
    }

    /// Appends bytes of the mapping to `out`. Does nothing out of bounds.
    pub(super) fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let Some(at) = self.at(offset, len) else { return };
        out.reserve(len);
        // SAFETY: inside; the capacity was just reserved, and is filled before the length is set.
        unsafe {
            let end = out.as_mut_ptr().add(out.len());
            std::ptr::copy_nonoverlapping(at.as_ptr(), end, len);
            out.set_len(out.len() + len);
        }
    }

    /// Returns the first `len` bytes.
    pub(super) fn bytes(&self, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read(0, len as usize, &mut bytes);
        bytes
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it remains.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_bounds_access_has_no_effect() {
        let memory = SharedMemory::map(&tempfile::tempfile().unwrap(), 4096).unwrap();
        memory.store(4088, 7);
        memory.store(4096, 9);
        memory.store(4, 9);
        memory.write(4095, &[1, 2]);
        assert_eq!((memory.load(4088), memory.load(4096), memory.load(0)), (7, 0, 0));
        memory.store_half(12, 3);
        assert_eq!(memory.load(8), 3 << 32);
        let mut out = vec![0];
        memory.read(4088, 8, &mut out);
        memory.read(4090, 8, &mut out);
        assert_eq!(out, [0, 7, 0, 0, 0, 0, 0, 0, 0]);
    }
}
