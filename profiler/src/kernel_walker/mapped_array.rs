//! Array maps of eBPF programs, mapped into this process (`BPF_F_MMAPABLE`).

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};

const PAGE: usize = 4096;

/// Values that consist of integers without padding, so that a program may read them.
///
/// # Safety
///
/// The type has no padding and no pointers, its size is a multiple of 8, and it needs at most the
/// alignment of 8.
pub(super) unsafe trait MapValue: Copy {}

/// A part of an array map. The programs see each write at once.
#[derive(Debug)]
pub(super) struct MappedArray<T> {
    pages: NonNull<u8>,
    size: usize,
    /// The bytes before the first value of the part.
    skipped: usize,
    len: usize,
    value: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone, and is the same for all threads of the process.
unsafe impl<T: MapValue + Send> Send for MappedArray<T> {}

impl<T: MapValue> MappedArray<T> {
    /// Maps `len` values from index `first` on.
    ///
    /// # Errors
    ///
    /// Those of mmap(2).
    pub fn map(map: BorrowedFd<'_>, first: usize, len: usize) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let start = first.checked_mul(size_of::<T>()).ok_or_else(invalid)?;
        let skipped = start % PAGE;
        let bytes = len
            .checked_mul(size_of::<T>())
            .and_then(|bytes| bytes.checked_add(skipped));
        let size = bytes.ok_or_else(invalid)?.max(1).next_multiple_of(PAGE);
        let offset = i64::try_from(start - skipped).map_err(|_| invalid())?;
        // SAFETY: the call creates a mapping at an address of the kernel's choice.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                offset,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self {
            pages,
            size,
            skipped,
            len,
            value: PhantomData,
        })
    }

    /// Writes a value. An index beyond the part is ignored.
    pub fn set(&mut self, index: usize, value: T) {
        if index >= self.len {
            return;
        }
        // SAFETY: the value is in the mapping, which is `skipped` bytes and `len` values long. Both
        // `skipped` and the size of a value are multiples of 8, as the alignment needs. Programs of
        // the kernel read the value as integers.
        unsafe {
            let at = self.pages.as_ptr().add(self.skipped).cast::<T>().add(index);
            at.write_volatile(value);
        }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: `map` created this mapping, and nothing uses it any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), self.size) };
    }
}
