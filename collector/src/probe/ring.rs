//! The mapped ring of a perf event.
//!
//! Layout and memory order: `struct perf_event_mmap_page` in `include/uapi/linux/perf_event.h`.

use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

/// Page size. The ring is a multiple of it.
const PAGE: usize = 4096;
/// `struct perf_event_header`: type u32, misc u16, size u16.
const HEADER: usize = 8;

/// A mapped ring. Its first page has the positions of the kernel's writes and of our reads.
pub(super) struct SampleRing {
    page: NonNull<perf_event_mmap_page>,
    data_size: usize,
}

// SAFETY: only this value uses the mapping, and any thread may do so.
unsafe impl Send for SampleRing {}

impl SampleRing {
    /// Maps the ring of `event` with at least `size` bytes of data.
    pub(super) fn map(event: BorrowedFd<'_>, size: usize) -> io::Result<Self> {
        let data_size = size.clamp(PAGE, 1 << 30).next_power_of_two();
        // SAFETY: the call creates a mapping at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE + data_size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(page.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { page, data_size })
    }

    /// Takes the next record. Returns its type, and copies the bytes after its header to `record`.
    /// Never blocks.
    pub(super) fn next(&mut self, record: &mut Vec<u8>) -> Option<u32> {
        // SAFETY: the first page of the mapping lives as long as `self`. The kernel writes this
        // word, so it is read atomically, before the data that it covers (acquire).
        let head = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_head) };
        // SAFETY: as above. Only this thread writes this word.
        let tail = unsafe { AtomicU64::from_ptr(&raw mut (*self.page.as_ptr()).data_tail) };
        let end = head.load(Ordering::Acquire);
        let at = tail.load(Ordering::Relaxed);
        let waits = end.wrapping_sub(at);
        if waits < HEADER as u64 {
            return None;
        }
        let mut header = [0; HEADER];
        self.copy(at, &mut header);
        let [k0, k1, k2, k3, _, _, s0, s1] = header;
        let size = usize::from(u16::from_le_bytes([s0, s1]));
        if size < HEADER || size as u64 > waits {
            // Not written by a kernel. The next record cannot be found.
            tail.store(end, Ordering::Release);
            return None;
        }
        record.resize(size - HEADER, 0);
        self.copy(at.wrapping_add(HEADER as u64), record);
        // The kernel may overwrite the copied bytes from here on (release).
        tail.store(at.wrapping_add(size as u64), Ordering::Release);
        Some(u32::from_le_bytes([k0, k1, k2, k3]))
    }

    /// Copies from a position of the ring, across its end.
    fn copy(&self, position: u64, to: &mut [u8]) {
        let from = (position % self.data_size as u64) as usize;
        let first = to.len().min(self.data_size - from);
        let rest = (to.len() - first).min(self.data_size);
        // SAFETY: both parts are within the data pages, which follow the first page: `from + first`
        // and `rest` are at most `data_size`. The kernel does not write between tail and head,
        // where they are.
        unsafe {
            let data = self.page.as_ptr().cast::<u8>().add(PAGE);
            ptr::copy_nonoverlapping(data.add(from), to.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(data, to.as_mut_ptr().add(first), rest);
        }
    }
}

impl Drop for SampleRing {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping, and nothing uses it any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE + self.data_size) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a ring in anonymous memory, as the kernel would write it.
    fn made(data_size: usize) -> SampleRing {
        // SAFETY: a new anonymous mapping.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                PAGE + data_size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(page, libc::MAP_FAILED);
        SampleRing {
            page: NonNull::new(page.cast()).unwrap(),
            data_size,
        }
    }

    fn write(ring: &mut SampleRing, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let position = ((at + index as u64) % ring.data_size as u64) as usize;
            // SAFETY: within the data pages.
            unsafe { *ring.page.as_ptr().cast::<u8>().add(PAGE + position) = *byte };
        }
        // SAFETY: the first page of the mapping.
        unsafe { (*ring.page.as_ptr()).data_head = at + bytes.len() as u64 };
    }

    fn record(kind: u32, contents: &[u8]) -> Vec<u8> {
        let size = (HEADER + contents.len()) as u16;
        [&kind.to_le_bytes()[..], &[0, 0], &size.to_le_bytes(), contents].concat()
    }

    #[test]
    fn records_wrap_around_the_end() {
        let mut ring = made(PAGE);
        let mut at = 0;
        for round in 0..600_u32 {
            let contents: Vec<u8> = (0..round as usize % 40)
                .map(|index| index as u8 ^ round as u8)
                .collect();
            let bytes = record(round, &contents);
            write(&mut ring, at, &bytes);
            at += bytes.len() as u64;
            let mut found = Vec::new();
            assert_eq!(ring.next(&mut found), Some(round));
            assert_eq!(found, contents);
            assert_eq!(ring.next(&mut found), None, "nothing waits");
        }
        assert!(at > 2 * PAGE as u64);
    }

    #[test]
    fn invalid_record_size_skips_the_rest() {
        let mut ring = made(PAGE);
        write(&mut ring, 0, &[1, 0, 0, 0, 0, 0, 4, 0, 9, 9, 9, 9, 9, 9, 9, 9]);
        let mut found = Vec::new();
        assert_eq!(ring.next(&mut found), None);
        let bytes = record(7, b"after");
        write(&mut ring, 16, &bytes);
        assert_eq!(ring.next(&mut found), Some(7));
        assert_eq!(found, b"after");
    }
}
