//! The record of an allocator call in the ring, as declared in `heap_event.h`.

/// The maximum number of words of the caller's stack (`HEAP_STACK_WORDS`).
pub const HEAP_STACK_WORDS: usize = 22;

/// Parts of the cookie of an attached function, besides its number (`src/heap.bpf.c`).
pub mod heap_cookie {
    /// The size is the second argument.
    pub const SIZE_IN_SI: u64 = 1 << 8;
    /// The size is the product of two arguments.
    pub const SIZE_IS_PRODUCT: u64 = 1 << 9;
    /// The first argument is a block, and the second its new size.
    pub const RESIZES: u64 = 1 << 10;
    /// The block is written to the first argument, and the size is the third.
    pub const STORES_BLOCK: u64 = 1 << 11;
}

/// A call of an allocator function, as the eBPF program writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// The time of the entry by `CLOCK_MONOTONIC`, in nanoseconds.
    pub began: u64,
    /// The time of the return; of a call that frees, the entry.
    pub ended: u64,
    /// The block that it frees or resizes, or else the size in bytes.
    pub argument: u64,
    /// The new size of a block that it resizes.
    pub size: u64,
    /// The returned block; 0 after a failure.
    pub result: u64,
    /// The return address.
    pub caller: u64,
    /// The caller's stack pointer after the return.
    pub sp: u64,
    /// The caller's frame pointer register.
    pub bp: u64,
    /// The process, in the first pid namespace.
    pub pid: u32,
    /// The thread, in the first pid namespace.
    pub tid: u32,
    /// A number that differs after the process executes another program.
    pub image: u32,
    /// The number of the function, as attached.
    pub function: u16,
    /// The number of words in `stack`.
    pub words: u16,
    /// The words of the stack from `sp` on.
    pub stack: [u64; HEAP_STACK_WORDS],
}

/// A process whose calls are recorded, as in the map.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapProcessRow {
    /// The number of lost calls.
    pub lost: u64,
    /// The time of the last lost call by `CLOCK_MONOTONIC`.
    pub lost_at: u64,
    /// Whether one free can pass two probes.
    pub repeats: u32,
    /// Not used.
    pub unused: u32,
}

impl HeapEvent {
    /// Parses a record, or returns `None` if it is truncated.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..size_of::<Self>())?;
        // SAFETY: `head` has the size of the struct, whose fields are integers without padding. Any
        // bytes are a valid value, and the read needs no alignment.
        Some(unsafe { head.as_ptr().cast::<Self>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn truncated_record_is_none() {
        let bytes = [7; size_of::<HeapEvent>()];
        assert!((0..bytes.len()).all(|end| HeapEvent::parse(&bytes[..end]).is_none()));
        let event = HeapEvent::parse(&bytes).unwrap();
        assert_eq!((event.words, event.stack[21]), (0x0707, 0x0707_0707_0707_0707));
    }
}
