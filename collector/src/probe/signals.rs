//! Sets of fatal signals.

use super::ProbeError;

/// Signals whose default action ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalSet(u64);

/// Signals that are ignored or stop the process by default: `SIG_KERNEL_IGNORE_MASK` and
/// `SIG_KERNEL_STOP_MASK` of the kernel's `include/linux/signal.h`. They are CONT, CHLD, WINCH,
/// URG, STOP, TSTP, TTIN and TTOU.
const HARMLESS: [i32; 8] = [18, 17, 28, 23, 19, 20, 21, 22];

impl SignalSet {
    /// The signals that dump core (`SIG_KERNEL_COREDUMP_MASK`): QUIT, ILL, TRAP, ABRT, BUS, FPE,
    /// SEGV, XCPU, XFSZ, SYS.
    pub const CORE_DUMPING: Self = Self::bits_of(&[3, 4, 5, 6, 7, 8, 11, 24, 25, 31]);

    /// Creates a set of signals by their numbers on x86-64 Linux, 1 to 64.
    ///
    /// # Errors
    /// When a signal does not kill by default.
    pub fn new(signals: &[i32]) -> Result<Self, ProbeError> {
        match signals
            .iter()
            .find(|signal| !(1..=64).contains(*signal) || HARMLESS.contains(signal))
        {
            Some(&signal) => Err(ProbeError::Harmless(signal)),
            None => Ok(Self::bits_of(signals)),
        }
    }

    const fn bits_of(signals: &[i32]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < signals.len() {
            bits |= 1 << (signals[index] - 1);
            index += 1;
        }
        Self(bits)
    }

    /// Returns the set as bits. Bit N−1 is signal N.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the signal is in the set.
    #[must_use]
    pub fn contains(self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.0 >> (signal - 1) & 1 != 0
    }

    /// Returns the signal numbers in order.
    pub fn iter(self) -> impl Iterator<Item = i32> {
        (1..=64).filter(move |signal| self.contains(*signal))
    }
}

impl Default for SignalSet {
    fn default() -> Self {
        Self::CORE_DUMPING
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_dumping_signals_match_the_bundle() {
        let crashes = (1..=64).filter(|&signal| backtrail_bundle::manifest::is_crash(signal));
        assert!(SignalSet::CORE_DUMPING.iter().eq(crashes));
    }

    #[test]
    fn only_fatal_signals_are_accepted() {
        let set = SignalSet::new(&[64, 15, 11]).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [11, 15, 64]);
        assert!(!set.contains(0) && !set.contains(65) && !set.contains(-1));
        for signal in HARMLESS.into_iter().chain([0, 65, -1]) {
            assert!(
                matches!(SignalSet::new(&[11, signal]), Err(ProbeError::Harmless(found)) if found == signal),
                "{signal}"
            );
        }
    }

    #[test]
    fn core_dumping_signals_match_signal_h() {
        assert_eq!(SignalSet::default().bits(), 0x830009f8 >> 1);
        assert_eq!(SignalSet::default().iter().count(), 10);
    }
}
