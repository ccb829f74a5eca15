//! The record of a crash in the ring, as declared in `crash_event.h`.

/// The number of words in the kernel's `struct pt_regs` on x86-64.
pub const REGISTERS: usize = 21;
/// The number of words in the kernel's `struct kernel_siginfo`.
pub const SIGINFO_WORDS: usize = 12;
/// The maximum number of frames in a record.
pub const FRAMES: usize = 32;

/// The id of an unknown user, which no user has.
pub const NO_USER: u32 = u32::MAX;

/// The parts of a signal's siginfo that a record contains ([`CrashEvent::siginfo_parts`]).
pub mod siginfo_parts {
    /// The signal number.
    pub const NUMBER: u32 = 0;
    /// The signal number, `si_errno` and `si_code`.
    pub const CODE: u32 = 1;
    /// All fields.
    pub const ALL: u32 = 2;
}

/// A stack frame: `struct bpf_stack_build_id` of `linux/bpf.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackFrame {
    /// One of the constants of this type.
    pub status: i32,
    /// The build id, if [`Self::VALID`]. A shorter id is padded with zeros.
    pub build_id: [u8; 20],
    /// The file offset if [`Self::VALID`], or the address if [`Self::ADDRESS`].
    pub offset: u64,
}

impl StackFrame {
    /// The frame does not exist (`BPF_STACK_BUILD_ID_EMPTY`).
    pub const EMPTY: i32 = 0;
    /// The build id and the offset are known (`BPF_STACK_BUILD_ID_VALID`).
    pub const VALID: i32 = 1;
    /// Only the address is known (`BPF_STACK_BUILD_ID_IP`).
    pub const ADDRESS: i32 = 2;
}

/// A crash, as the probe writes it. The bytes of the stack follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashEvent {
    /// The time by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The time by `CLOCK_BOOTTIME`, in nanoseconds.
    pub at_boot: u64,
    /// The start of the process by `CLOCK_BOOTTIME`, in nanoseconds.
    pub started: u64,
    /// The id of the control group (version 2).
    pub cgroup: u64,
    /// The address of the first stack byte.
    pub stack_at: u64,
    /// The `fs` base, as last saved by the kernel.
    pub fs_base: u64,
    /// The `gs` base, as last saved by the kernel.
    pub gs_base: u64,
    /// `thread.cr2`: the address of the last fault that caused a signal.
    pub fault_address: u64,
    /// `thread.trap_nr`: the number of the last exception that caused a signal.
    pub fault_trap: u64,
    /// `struct pt_regs`.
    pub registers: [u64; REGISTERS],
    /// The process, in the first pid namespace.
    pub pid: u32,
    /// The thread, in the first pid namespace.
    pub tid: u32,
    /// The process, in its own pid namespace.
    pub inner_pid: u32,
    /// The thread, in its own pid namespace.
    pub inner_tid: u32,
    /// The inode of the pid namespace.
    pub pid_namespace: u32,
    /// The inode of the mount namespace.
    pub mount_namespace: u32,
    /// The thread's real user in the first user namespace, or [`NO_USER`].
    pub user: u32,
    /// The thread's effective user in the first user namespace, or [`NO_USER`].
    pub effective_user: u32,
    /// The processor.
    pub cpu: u32,
    /// One of the constants of [`siginfo_parts`].
    pub siginfo_parts: u32,
    /// The number of stack bytes that follow.
    pub stack_len: u32,
    /// The number of bytes in `frames`, or a negative error.
    pub frames_len: i32,
    /// The segment register `ds`, as last saved by the kernel.
    pub ds: u16,
    /// The segment register `es`.
    pub es: u16,
    /// The segment register `fs`.
    pub fs: u16,
    /// The segment register `gs`.
    pub gs: u16,
    /// The thread name, padded with zeros.
    pub comm: [u8; 16],
    /// `struct kernel_siginfo`, the first 48 bytes of a `siginfo_t`.
    pub siginfo: [i32; SIGINFO_WORDS],
    /// The stack, innermost frame first.
    pub frames: [StackFrame; FRAMES],
}

impl CrashEvent {
    /// Parses a record and the stack that follows, or returns `None` if they are truncated.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Self>())?;
        // SAFETY: `head` has the size of the struct, whose fields are integers without padding. Any
        // bytes are a valid value, and the read needs no alignment.
        let event = unsafe { head.as_ptr().cast::<Self>().read_unaligned() };
        let stack = rest.get(..usize::try_from(event.stack_len).ok()?)?;
        Some((event, stack))
    }

    /// Returns the valid frames.
    #[must_use]
    pub fn frames(&self) -> &[StackFrame] {
        let count = usize::try_from(self.frames_len).unwrap_or(0) / size_of::<StackFrame>();
        &self.frames[..count.min(FRAMES)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_STACK_CHUNKS, STACK_CHUNK};

    #[test]
    fn truncated_record_is_none() {
        let mut bytes = vec![0; size_of::<CrashEvent>() + 2 * STACK_CHUNK];
        let at = std::mem::offset_of!(CrashEvent, stack_len);
        bytes[at..at + 4].copy_from_slice(&(STACK_CHUNK as u32).to_le_bytes());
        let whole = size_of::<CrashEvent>() + STACK_CHUNK;
        assert!((0..whole).all(|end| CrashEvent::parse(&bytes[..end]).is_none()));
        let (event, stack) = CrashEvent::parse(&bytes[..whole]).unwrap();
        assert_eq!(
            (event.stack_len as usize, stack.len()),
            (STACK_CHUNK, STACK_CHUNK)
        );
        assert_eq!(CrashEvent::parse(&bytes).unwrap().1.len(), STACK_CHUNK);
    }

    #[test]
    fn only_written_frames_are_returned() {
        let bytes = [0; size_of::<CrashEvent>()];
        let (mut event, _) = CrashEvent::parse(&bytes).unwrap();
        for (len, count) in [(-14, 0), (0, 0), (31, 0), (64, 2), (i32::MAX, FRAMES)] {
            event.frames_len = len;
            assert_eq!(event.frames().len(), count, "{len}");
        }
    }

    #[test]
    fn stack_constants_match_c_header() {
        let header = include_str!("crash_event.h");
        assert!(header.contains(&format!("CHUNK = {STACK_CHUNK},")));
        assert!(header.contains(&format!("MAX_CHUNKS = {MAX_STACK_CHUNKS},")));
        assert!(header.contains(&format!("NO_USER = {} ", NO_USER as i32)));
    }
}
