//! The record of a function call in the ring, as declared in `function_event.h`.

/// A call of a traced function, as the eBPF program writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionEvent {
    /// The time of the event by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The duration of the call in nanoseconds, or 0 if it has just begun.
    pub lasted: u64,
    /// The process, in the first pid namespace.
    pub pid: u32,
    /// The thread, in the first pid namespace.
    pub tid: u32,
    /// The processor.
    pub cpu: u32,
    /// The number of other open calls of the function in the thread.
    pub depth: u32,
}

impl FunctionEvent {
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
        let bytes: Vec<u8> = (0..size_of::<FunctionEvent>() as u8).collect();
        assert!((0..bytes.len()).all(|end| FunctionEvent::parse(&bytes[..end]).is_none()));
        let event = FunctionEvent::parse(&bytes).unwrap();
        assert_eq!((event.at, event.depth), (0x0706_0504_0302_0100, 0x1f1e_1d1c));
    }
}
