//! Flags of clone(2) that hide a new thread from the tracer of its parent.

use crate::ptrace::{self, RawTid};
use backtrail_bundle::core::Registers;
use backtrail_process::memory;

/// `CLONE_UNTRACED` prevents that the new thread is traced. `CLONE_PTRACE` attaches the tracer
/// without an event.
pub(crate) const HIDING: u64 = (libc::CLONE_UNTRACED | libc::CLONE_PTRACE) as u64;
/// The bit that marks x32 system call numbers (`asm/unistd.h`, `__X32_SYSCALL_BIT`).
const X32: u64 = 0x4000_0000;

/// A system call that starts a thread with flags that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloneCall {
    /// `clone(2)`: the first argument holds the flags.
    Clone,
    /// `clone3(2)`: the first argument points to `struct clone_args`, which begins with the flags.
    Clone3,
}

impl CloneCall {
    /// Returns the clone call with this system call number, if there is one.
    pub(crate) fn of(number: u64) -> Option<Self> {
        match (number & !X32) as libc::c_long {
            libc::SYS_clone => Some(Self::Clone),
            libc::SYS_clone3 => Some(Self::Clone3),
            _ => None,
        }
    }

    /// Returns the flags of a call whose first argument is `first`, or 0 if they cannot be read.
    pub(crate) fn flags(self, pid: RawTid, first: u64) -> u64 {
        match self {
            Self::Clone => first,
            Self::Clone3 => {
                let mut flags = [0; 8];
                let _ = memory::read(pid, first, &mut flags);
                u64::from_le_bytes(flags)
            }
        }
    }
}

/// The original flags of a call, to be restored after it.
#[derive(Debug)]
pub(crate) enum ClearedFlags {
    /// The original first argument.
    Argument(u64),
    /// An address and the original word there.
    Word(u64, u64),
}

impl ClearedFlags {
    /// Clears the hiding flags of the call that a stopped thread is about to make. Returns `None`
    /// if none is set, or if the system call is not a clone call.
    pub(crate) fn clear(tid: RawTid, registers: &Registers) -> Option<Self> {
        let call = CloneCall::of(registers.rax)?;
        let flags = call.flags(tid, registers.rdi);
        if flags & HIDING == 0 {
            return None;
        }
        match call {
            CloneCall::Clone => {
                set_first(tid, registers, flags & !HIDING);
                Some(Self::Argument(flags))
            }
            CloneCall::Clone3 => {
                ptrace::write_word(tid, registers.rdi, flags & !HIDING).ok()?;
                Some(Self::Word(registers.rdi, flags))
            }
        }
    }

    /// Restores flags in memory only: the registers already belong to a signal handler.
    pub(crate) fn restore_memory(self, tid: RawTid) {
        if let Self::Word(..) = self {
            self.restore(tid);
        }
    }

    /// Restores the flags. A thread that was killed in the meantime needs no flags.
    pub(crate) fn restore(self, tid: RawTid) {
        match self {
            Self::Argument(flags) => {
                if let Ok(registers) = ptrace::registers(tid) {
                    set_first(tid, &registers, flags);
                }
            }
            Self::Word(address, flags) => {
                let _ = ptrace::write_word(tid, address, flags);
            }
        }
    }
}

fn set_first(tid: RawTid, registers: &Registers, rdi: u64) {
    let registers = Registers { rdi, ..*registers };
    let _ = ptrace::set_registers(tid, &registers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_calls_are_recognized_by_number() {
        let of = |number: libc::c_long| CloneCall::of(number as u64);
        assert_eq!(of(libc::SYS_clone), Some(CloneCall::Clone));
        assert_eq!(
            of(libc::SYS_clone3 | X32 as libc::c_long),
            Some(CloneCall::Clone3)
        );
        assert_eq!(of(libc::SYS_fork), None);
    }

    #[test]
    fn clone_flags_are_read_from_register_or_memory() {
        let pid = std::process::id() as RawTid;
        let arguments = [HIDING | 0x11, 7];
        let at = arguments.as_ptr() as u64;
        assert_eq!(CloneCall::Clone.flags(pid, 0x11), 0x11);
        assert_eq!(CloneCall::Clone3.flags(pid, at), HIDING | 0x11);
        assert_eq!(CloneCall::Clone3.flags(pid, 8), 0, "nothing is there");
    }
}
