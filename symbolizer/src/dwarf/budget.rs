//! Bounds the work for a file in proportion to its size.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The remaining amount of data that a file can refer to repeatedly: range lists, attributes
/// without bytes, path names. A genuine file refers to each about once.
pub(crate) struct Budget {
    left: AtomicU64,
    /// Whether more was asked for than remained.
    exceeded: AtomicBool,
}

impl Budget {
    /// Builds a budget for DWARF sections of `bytes` in total.
    pub fn new(bytes: u64) -> Self {
        Self::of(bytes.saturating_mul(16).saturating_add(1 << 20))
    }

    /// Adds the budget for `bytes` of additional sections.
    pub fn add(&self, bytes: u64) {
        let more = |left: u64| Some(left.saturating_add(bytes.saturating_mul(16)));
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Builds the budget of one query.
    pub fn of(amount: u64) -> Self {
        Self {
            left: AtomicU64::new(amount),
            exceeded: AtomicBool::new(false),
        }
    }

    /// Returns the remaining amount.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Returns whether more was asked for than remained, so that something was not read.
    pub fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }

    /// Takes `amount` from the budget. Returns `None` if less remains; the file is not read further
    /// then.
    pub fn spend(&self, amount: usize) -> Option<()> {
        let take = |left: u64| left.checked_sub(amount as u64);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_err() {
            self.exceeded.store(true, Ordering::Relaxed);
        }
        taken.ok().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_exhausted_permanently() {
        let budget = Budget::new(0);
        assert!(budget.spend(1 << 20).is_some() && !budget.is_exceeded());
        assert!(budget.spend(1).is_none() && budget.is_exceeded());
        assert!(budget.spend(0).is_some());
    }
}
