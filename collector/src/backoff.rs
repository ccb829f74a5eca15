//! The pauses before a program that ended is started again.

use std::time::Duration;

/// The shortest and the longest pause.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);
/// A program that ran for so long is started again after the shortest pause.
const STABLE: Duration = Duration::from_secs(600);

/// The next pause, which grows with each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: SHORTEST }
    }
}

impl Backoff {
    /// Returns the pause after a program that ran for a time.
    pub(crate) fn after(&mut self, ran: Duration) -> Duration {
        let pause = if ran >= STABLE { SHORTEST } else { self.next };
        self.next = (2 * pause).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_program_is_stable() {
        let mut backoff = Backoff::default();
        let short = Duration::from_millis(10);
        let pauses = [0; 10].map(|_| backoff.after(short).as_secs());
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        assert_eq!(backoff.after(STABLE), SHORTEST);
        assert_eq!(backoff.after(short), 2 * SHORTEST);
    }
}
