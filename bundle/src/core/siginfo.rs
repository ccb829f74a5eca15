//! The information that a signal carries (`siginfo_t`).

use backtrail_pt::Avma;
use std::fmt;

/// The kernel's `siginfo_t`, stored as its 128 bytes (`asm-generic/siginfo.h`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SigInfo(pub [u8; Self::SIZE]);

impl SigInfo {
    /// `sizeof(siginfo_t)`.
    pub const SIZE: usize = 128;

    /// Builds the information of a signal with this number, code and fault address. The rest is
    /// zero.
    #[must_use]
    pub fn new(signal: i32, code: i32, address: Avma) -> Self {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&signal.to_le_bytes());
        bytes[8..12].copy_from_slice(&code.to_le_bytes());
        bytes[16..24].copy_from_slice(&address.0.to_le_bytes());
        Self(bytes)
    }

    /// Returns the same information with another `si_addr`.
    #[must_use]
    pub fn with_address(mut self, address: Avma) -> Self {
        self.0[16..24].copy_from_slice(&address.0.to_le_bytes());
        self
    }

    /// Returns `si_signo`.
    #[must_use]
    pub fn signal(&self) -> i32 {
        self.word(0)
    }

    /// Returns `si_errno`.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.word(4)
    }

    /// Returns `si_code`. The kernel raised the signal if it is above 0.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.word(8)
    }

    /// Returns `si_addr` of signals that a fault raised (SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV).
    #[must_use]
    pub fn address(&self) -> Option<Avma> {
        // Signal numbers are those of x86-64 Linux, whatever platform the reader runs on. Code
        // SI_KERNEL (0x80) is a general protection fault: the processor does not report its
        // address.
        const FAULTS: [i32; 5] = [4, 5, 7, 8, 11];
        const SI_KERNEL: i32 = 0x80;
        let mut address = [0; 8];
        address.copy_from_slice(&self.0[16..24]);
        let is_fault = self.code() > 0 && self.code() != SI_KERNEL;
        (is_fault && FAULTS.contains(&self.signal())).then_some(Avma(u64::from_le_bytes(address)))
    }

    /// Returns `si_call_addr` of a SIGSYS that the kernel raised: the address after a system call
    /// instruction.
    #[must_use]
    pub fn call_address(&self) -> Option<Avma> {
        const SIGSYS: i32 = 31;
        let mut address = [0; 8];
        address.copy_from_slice(&self.0[16..24]);
        (self.signal() == SIGSYS && self.code() > 0).then_some(Avma(u64::from_le_bytes(address)))
    }

    fn word(&self, at: usize) -> i32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.0[at..at + 4]);
        i32::from_le_bytes(word)
    }
}

impl fmt::Debug for SigInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigInfo")
            .field("signal", &self.signal())
            .field("code", &self.code())
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_have_an_address() {
        assert_eq!(SigInfo::new(11, 1, Avma(8)).address(), Some(Avma(8)));
        assert_eq!(
            SigInfo::new(11, 0x80, Avma(0)).address(),
            None,
            "general protection"
        );
        assert_eq!(SigInfo::new(6, -6, Avma(0x1234)).address(), None, "tgkill");
        assert_eq!(SigInfo::new(11, 0, Avma(0x1234)).address(), None, "kill -SEGV");
    }
}
