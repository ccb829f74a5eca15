//! A bound on the work that a file may ask for, in proportion to its size.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much may still be read of what a file can name many times over: range lists, attributes
/// without bytes, path names. A genuine file names each about once.
pub(crate) struct Budget(AtomicU64);

impl Budget {
    /// For DWARF sections of `bytes` in all.
    pub fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes.saturating_mul(16).saturating_add(1 << 20)))
    }

    /// More, for as many bytes of sections beside those.
    pub fn add(&self, bytes: u64) {
        let more = |left: u64| Some(left.saturating_add(bytes.saturating_mul(16)));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// For one question.
    pub fn of(amount: u64) -> Self {
        Self(AtomicU64::new(amount))
    }

    /// How much is left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes `amount`; `None` once there is not so much left, from then on the file is not believed.
    pub fn spend(&self, amount: usize) -> Option<()> {
        let take = |left: u64| left.checked_sub(amount as u64);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .ok()
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_is_gone() {
        let budget = Budget::new(0);
        assert!(budget.spend(1 << 20).is_some());
        assert!(budget.spend(1).is_none());
        assert!(budget.spend(0).is_some());
    }
}
