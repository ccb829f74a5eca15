//! Bounds the work for a file in proportion to its size.

use std::sync::atomic::{AtomicU64, Ordering};

/// The remaining amount of data that a file can refer to repeatedly: range lists, attributes
/// without bytes, path names. A genuine file refers to each about once.
pub(crate) struct Budget(AtomicU64);

impl Budget {
    /// Builds a budget for DWARF sections of `bytes` in total.
    pub fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes.saturating_mul(16).saturating_add(1 << 20)))
    }

    /// Adds the budget for `bytes` of additional sections.
    pub fn add(&self, bytes: u64) {
        let more = |left: u64| Some(left.saturating_add(bytes.saturating_mul(16)));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Builds the budget of one query.
    pub fn of(amount: u64) -> Self {
        Self(AtomicU64::new(amount))
    }

    /// Returns the remaining amount.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes `amount` from the budget. Returns `None` if less remains; the file is not read further
    /// then.
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
    fn budget_is_exhausted_permanently() {
        let budget = Budget::new(0);
        assert!(budget.spend(1 << 20).is_some());
        assert!(budget.spend(1).is_none());
        assert!(budget.spend(0).is_some());
    }
}
