//! Groups of samples and what is added up for each.

use crate::{Error, Result};
use std::collections::HashMap;

/// The texts of a group's columns.
pub(crate) type GroupKey = Box<[Box<str>]>;

/// The sum over a group's samples.
pub(crate) trait Accumulate: Send + 'static {
    /// Adds a sample with its time in microseconds. Columns that the scan does not need are zero.
    /// Returns `false` if the sample has an id that is out of range.
    fn add(&mut self, time: i64, weight: i64, stack: u32) -> bool;

    /// Adds the sum of other samples.
    fn absorb(&mut self, other: Self) -> Result<()>;

    /// Returns the memory in bytes.
    fn memory(&self) -> u64;
}

/// The groups of some samples.
pub(crate) struct Groups<A> {
    groups: HashMap<GroupKey, A>,
    limit: u64,
}

impl<A: Accumulate> Groups<A> {
    /// Builds an empty list that may need `limit` bytes of memory.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            groups: HashMap::new(),
            limit,
        }
    }

    /// Adds the sum of a group.
    pub(crate) fn insert(&mut self, key: GroupKey, sum: A) -> Result<()> {
        match self.groups.get_mut(&key) {
            Some(group) => group.absorb(sum),
            None => {
                self.groups.insert(key, sum);
                self.check()
            }
        }
    }

    fn check(&self) -> Result<()> {
        let bytes = |key: &GroupKey| key.iter().map(|text| text.len() as u64 + 16).sum::<u64>();
        // The sums of one kind have about the same size. Summing all would be quadratic.
        let Some((key, sum)) = self.groups.iter().next() else {
            return Ok(());
        };
        let one = sum.memory().saturating_add(bytes(key)).saturating_add(64);
        check_memory(one.saturating_mul(self.groups.len() as u64), self.limit)
    }

    /// Adds all groups of another list.
    pub(crate) fn add(&mut self, other: Self) -> Result<()> {
        other
            .groups
            .into_iter()
            .try_for_each(|(key, sum)| self.insert(key, sum))
    }

    /// Returns the groups, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&GroupKey, &A)> {
        self.groups.iter()
    }

    /// Returns the groups, in any order.
    pub(crate) fn into_iter(self) -> impl Iterator<Item = (GroupKey, A)> {
        self.groups.into_iter()
    }
}

/// Checks that a query does not need more memory than its limit.
pub(crate) fn check_memory(needed: u64, limit: u64) -> Result<()> {
    match needed <= limit {
        true => Ok(()),
        false => Err(Error::Memory {
            job: "the query",
            needed,
            limit,
            advice: "narrow its filter, or group by fewer columns",
        }),
    }
}
