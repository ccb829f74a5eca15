//! A cache with a limit in bytes, which threads share.

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, PoisonError};

/// The number of independent parts for many small values. Threads seldom need the same one.
pub const MANY_SHARDS: usize = 16;
/// The number of parts for few large values. A part keeps a value of an eighth of the limit.
pub const FEW_SHARDS: usize = 4;

/// A cache with a limit in bytes. When the recent entries take half of the limit, they become the
/// older ones, and the previous older ones are dropped.
pub struct ByteCache<K, V> {
    shards: Vec<Mutex<Generations<K, V>>>,
    /// The most bytes of recent entries in a shard.
    limit: usize,
}

struct Generations<K, V> {
    recent: FxHashMap<K, (V, usize)>,
    older: FxHashMap<K, (V, usize)>,
    /// The bytes of `recent`.
    weight: usize,
}

impl<K, V> Default for Generations<K, V> {
    fn default() -> Self {
        Self {
            recent: FxHashMap::default(),
            older: FxHashMap::default(),
            weight: 0,
        }
    }
}

impl<K: Hash + Eq, V: Clone> ByteCache<K, V> {
    /// Creates a cache of at most `bytes` in independent parts.
    pub fn new(bytes: usize, shards: usize) -> Self {
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            limit: bytes / (2 * shards).max(1),
        }
    }

    fn shard<Q: Hash + ?Sized>(&self, key: &Q) -> Option<&Mutex<Generations<K, V>>> {
        // The maps use the upper bits of the same hash.
        let hash = FxBuildHasher.hash_one(key);
        self.shards.get((hash >> 20) as usize % self.shards.len().max(1))
    }

    /// Returns the value of a key.
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let mut shard = self.shard(key)?.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((value, _)) = shard.recent.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = shard.older.remove_entry(key)?;
        shard.add(key, value.clone(), weight, self.limit);
        Some(value)
    }

    /// Returns whether the cache can keep a value that takes `weight` bytes.
    pub fn keeps(&self, weight: usize) -> bool {
        weight <= self.limit
    }

    /// Stores a value that takes `weight` bytes. A value over the limit is not stored.
    pub fn insert(&self, key: K, value: V, weight: usize) {
        if !self.keeps(weight) {
            return;
        }
        if let Some(shard) = self.shard(&key) {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.add(key, value, weight, self.limit);
        }
    }
}

impl<K: Hash + Eq, V> Generations<K, V> {
    fn add(&mut self, key: K, value: V, weight: usize, limit: usize) {
        if self.weight.saturating_add(weight) > limit {
            self.older = std::mem::take(&mut self.recent);
            self.weight = 0;
        }
        self.weight = self.weight.saturating_add(weight);
        if let Some((_, before)) = self.recent.insert(key, (value, weight)) {
            self.weight = self.weight.saturating_sub(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_stays_below_its_limit_and_keeps_used_entries() {
        let cache: ByteCache<u64, u64> = ByteCache::new(32_000, MANY_SHARDS);
        for key in 0..100_000 {
            cache.insert(key, key * 2, 10);
            assert_eq!(cache.get(&1).unwrap_or(2), 2, "{key}");
            cache.insert(1, 2, 10);
        }
        let kept = (0..100_000).filter(|key| cache.get(key).is_some()).count();
        assert!((1..=3200).contains(&kept), "{kept}");
        assert_eq!(cache.get(&99_999), Some(199_998));
        cache.insert(5, 5, 1 << 20);
        assert_eq!(cache.get(&5), None);
    }
}
