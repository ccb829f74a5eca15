//! The record of a function's call in the ring, the same as in `function_event.h`.

/// A call of a function that a trigger is on, as the program writes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FunctionEvent {
    /// When the condition was met, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// How long the call took, in nanoseconds; 0: it has just begun.
    pub lasted: u64,
    /// The process, in the first pid namespace.
    pub pid: u32,
    /// The thread, in the first pid namespace.
    pub tid: u32,
    /// The processor.
    pub cpu: u32,
    /// How many calls of the function were open in the thread, this one left out.
    pub depth: u32,
}

impl FunctionEvent {
    /// The record in these bytes; `None`: they are cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..size_of::<Self>())?;
        // SAFETY: `head` has the size of the struct, whose fields are whole numbers without padding between them: any
        // bytes are a value of it, and the read asks for no alignment.
        Some(unsafe { head.as_ptr().cast::<Self>().read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_cut_anywhere_are_none() {
        let bytes: Vec<u8> = (0..size_of::<FunctionEvent>() as u8).collect();
        assert!((0..bytes.len()).all(|end| FunctionEvent::parse(&bytes[..end]).is_none()));
        let event = FunctionEvent::parse(&bytes).unwrap();
        assert_eq!((event.at, event.depth), (0x0706_0504_0302_0100, 0x1f1e_1d1c));
    }
}
