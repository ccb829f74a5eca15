//! The record of a crash in the ring, the same as in `crash_event.h`.

/// Words of the kernel's `struct pt_regs` on x86-64.
pub const REGISTERS: usize = 21;
/// Words of the kernel's `struct kernel_siginfo`.
pub const SIGINFO_WORDS: usize = 12;
/// The most frames that a record holds.
pub const FRAMES: usize = 32;

/// The id that stands for an unknown user: no user has it.
pub const NO_USER: u32 = u32::MAX;

/// How much of a signal's siginfo the record has ([`CrashEvent::told`]).
pub mod told {
    /// The number of the signal.
    pub const NUMBER: u32 = 0;
    /// The number, `si_errno` and `si_code`.
    pub const CODE: u32 = 1;
    /// All of it.
    pub const ALL: u32 = 2;
}

/// A frame of the stack: `struct bpf_stack_build_id` of `linux/bpf.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackFrame {
    /// One of the constants of this type.
    pub status: i32,
    /// The build id, with [`Self::VALID`]; a shorter one is filled with zeros.
    pub build_id: [u8; 20],
    /// The offset in the file with [`Self::VALID`], the address with [`Self::ADDRESS`].
    pub offset: u64,
}

impl StackFrame {
    /// There is no such frame (`BPF_STACK_BUILD_ID_EMPTY`).
    pub const EMPTY: i32 = 0;
    /// Build id and offset are known (`BPF_STACK_BUILD_ID_VALID`).
    pub const VALID: i32 = 1;
    /// Only the address is (`BPF_STACK_BUILD_ID_IP`).
    pub const ADDRESS: i32 = 2;
}

/// A crash, as the probe writes it; the bytes of the stack follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashEvent {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// When, by `CLOCK_BOOTTIME`, in nanoseconds.
    pub at_boot: u64,
    /// When the process began, by `CLOCK_BOOTTIME`, in nanoseconds.
    pub started: u64,
    /// The id of its cgroup (version 2).
    pub cgroup: u64,
    /// The address of the first byte of the stack that follows.
    pub stack_at: u64,
    /// The base of `fs`, as the kernel last saved it.
    pub fs_base: u64,
    /// The base of `gs`, as the kernel last saved it.
    pub gs_base: u64,
    /// `thread.cr2`: the address of the last fault that became a signal.
    pub fault_address: u64,
    /// `thread.trap_nr`: the number of the exception that last became a signal.
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
    /// The inode of its pid namespace.
    pub pid_namespace: u32,
    /// The inode of its mount namespace.
    pub mount_namespace: u32,
    /// The thread's real user in the first user namespace, or [`NO_USER`].
    pub user: u32,
    /// The thread's effective user in the first user namespace, or [`NO_USER`].
    pub effective_user: u32,
    /// The processor.
    pub cpu: u32,
    /// One of [`told`].
    pub told: u32,
    /// How many bytes of stack follow and were read.
    pub stack_len: u32,
    /// How many bytes of `frames` were written, or a negative error.
    pub frames_len: i32,
    /// The segment register `ds`, as the kernel last saved it.
    pub ds: u16,
    /// The same of `es`.
    pub es: u16,
    /// The same of `fs`.
    pub fs: u16,
    /// The same of `gs`.
    pub gs: u16,
    /// The thread's name, ended by zeros.
    pub comm: [u8; 16],
    /// `struct kernel_siginfo`, the first 48 bytes of a `siginfo_t`.
    pub siginfo: [i32; SIGINFO_WORDS],
    /// The stack, innermost frame first.
    pub frames: [StackFrame; FRAMES],
}

impl CrashEvent {
    /// The record in these bytes and the stack that follows it; `None`: they are cut short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(size_of::<Self>())?;
        // SAFETY: `head` has the size of the struct, whose fields are whole numbers without padding between
        // them: any bytes are a value of it, and the read asks for no alignment.
        let event = unsafe { head.as_ptr().cast::<Self>().read_unaligned() };
        let stack = rest.get(..usize::try_from(event.stack_len).ok()?)?;
        Some((event, stack))
    }

    /// The frames that were written.
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
    fn bytes_cut_anywhere_are_none() {
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
    fn frames_are_those_that_were_written() {
        let bytes = [0; size_of::<CrashEvent>()];
        let (mut event, _) = CrashEvent::parse(&bytes).unwrap();
        for (len, count) in [(-14, 0), (0, 0), (31, 0), (64, 2), (i32::MAX, FRAMES)] {
            event.frames_len = len;
            assert_eq!(event.frames().len(), count, "{len}");
        }
    }

    #[test]
    fn the_stack_is_what_the_header_says() {
        let header = include_str!("crash_event.h");
        assert!(header.contains(&format!("CHUNK = {STACK_CHUNK},")));
        assert!(header.contains(&format!("MAX_CHUNKS = {MAX_STACK_CHUNKS},")));
        assert!(header.contains(&format!("NO_USER = {} ", NO_USER as i32)));
    }
}
