//! The heap of the recorder, which returns memory that it no longer needs.

/// Sets the allocator to return large blocks to the kernel when they are freed. By default, glibc
/// keeps blocks of up to 32 MiB in its heap after the first one was freed. Sections of files and
/// copied stacks then stay resident for the rest of the recording.
pub(crate) fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    {
        /// The size from which on a block of memory has pages of its own.
        const OWN_PAGES: libc::c_int = 32 << 10;
        // Without this setting, more memory stays resident.
        // SAFETY: the call changes a number of the allocator. Other threads may allocate then.
        let _ = unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_PAGES) };
    }
}

/// Returns the free pages of the heap to the kernel. The types of the kernel, which loading an eBPF
/// program needs, leave many of them.
pub(crate) fn return_free_pages() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call returns memory that is not in use. Other threads may allocate then.
        let _ = unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use super::*;

    /// Returns whether the page of an address is mapped.
    fn is_mapped(address: usize) -> bool {
        let mut resident = 0_u8;
        let page = std::ptr::without_provenance_mut(address & !0xfff);
        // SAFETY: the call reads no memory of this process, and writes one byte for one page.
        let result = unsafe { libc::mincore(page, 4096, &raw mut resident) };
        result == 0
    }

    #[test]
    fn freed_blocks_are_returned() {
        return_large_blocks();
        // The first freed block of this size raises the limit of the allocator, unless it is set.
        let is_returned = || {
            let block = std::hint::black_box(vec![1_u8; 30 << 20]);
            let address = block.as_ptr().addr();
            assert!(is_mapped(address));
            drop(block);
            !is_mapped(address)
        };
        let returned = (0..8).filter(|_| is_returned()).count();
        // Other threads may map the addresses again.
        assert!(returned > 4, "{returned}");
    }
}
