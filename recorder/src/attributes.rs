//! The dumpable attribute of a process (`PR_SET_DUMPABLE`, prctl(2)).
//!
//! The memory of a process without this attribute may be read only with CAP_SYS_PTRACE. A recorder
//! without this capability keeps the attribute set, and shows the program the value that it would
//! have otherwise. The kernel also clears the attribute when a process changes its credentials, for
//! example to enter a user namespace.

use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;

/// System calls that change the credentials of a process.
pub(crate) const OF_CREDENTIALS: [libc::c_long; 11] = [
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setfsuid,
    libc::SYS_setfsgid,
    libc::SYS_capset,
    libc::SYS_unshare,
    libc::SYS_setns,
];

/// A system call that sets or reads the dumpable attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttributeCall {
    SetDumpable(u64),
    GetDumpable,
    /// One of [`OF_CREDENTIALS`].
    SetCredentials,
}

impl AttributeCall {
    /// Returns the call with these registers, if it is one.
    pub(crate) fn read(registers: &Registers) -> Option<Self> {
        if OF_CREDENTIALS.contains(&(registers.rax as libc::c_long)) {
            return Some(Self::SetCredentials);
        }
        if registers.rax != libc::SYS_prctl as u64 {
            return None;
        }
        match registers.rdi as libc::c_int {
            libc::PR_SET_DUMPABLE => Some(Self::SetDumpable(registers.rsi)),
            libc::PR_GET_DUMPABLE => Some(Self::GetDumpable),
            _ => None,
        }
    }

    /// Changes the arguments of the call so that the process stays dumpable.
    pub(crate) fn keep_dumpable(registers: &mut Registers) {
        if Self::read(registers) == Some(Self::SetDumpable(0)) {
            registers.rsi = 1;
        }
    }
}

/// Returns whether this process may read the memory of processes that are not dumpable.
pub(crate) fn may_read_undumpable() -> bool {
    /// The number of the capability (`linux/capability.h`).
    const CAP_SYS_PTRACE: u32 = 19;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & 1 << CAP_SYS_PTRACE != 0)
}

/// Returns the note about a process that would not be dumpable, and the cause.
pub(crate) fn undumpable_note(pid: RawTid, call: AttributeCall) -> String {
    let cause = match call {
        AttributeCall::SetCredentials => "changed its credentials",
        AttributeCall::SetDumpable(_) | AttributeCall::GetDumpable => "called prctl(PR_SET_DUMPABLE, 0)",
    };
    format!(
        "process {pid} has {cause}; it stayed dumpable while it was recorded, because the recorder reads its memory \
         without CAP_SYS_PTRACE"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clearing_the_attribute_is_changed() {
        let changed = |rax: libc::c_long, rdi: libc::c_int, rsi: u64| {
            let mut registers = Registers {
                rax: rax as u64,
                rdi: rdi as u64,
                rsi,
                ..Registers::default()
            };
            AttributeCall::keep_dumpable(&mut registers);
            registers.rsi
        };
        assert_eq!(changed(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0), 1);
        // The kernel refuses other values.
        assert_eq!(changed(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 2), 2);
        assert_eq!(changed(libc::SYS_prctl, libc::PR_SET_NAME, 0), 0);
        assert_eq!(changed(libc::SYS_read, libc::PR_SET_DUMPABLE, 0), 0);
        assert_eq!(changed(libc::SYS_setresuid, libc::PR_SET_DUMPABLE, 0), 0);
    }

    #[test]
    fn calls_that_change_credentials_are_recognized() {
        let read = |number: libc::c_long| {
            AttributeCall::read(&Registers {
                rax: number as u64,
                ..Registers::default()
            })
        };
        assert_eq!(read(libc::SYS_unshare), Some(AttributeCall::SetCredentials));
        assert_eq!(read(libc::SYS_setresuid), Some(AttributeCall::SetCredentials));
        assert_eq!(read(libc::SYS_getuid), None);
    }
}
