//! A cache with a limit of bytes that drops the values that were used least recently.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Uses and size of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The reads that found their value.
    pub hits: u64,
    /// The reads that did not.
    pub misses: u64,
    /// The memory of the values in bytes.
    pub bytes: u64,
}

/// The cached value, its bytes, and the tick of its last use.
type Slot<V> = (Arc<V>, usize, u64);

struct State<K, V> {
    values: HashMap<K, Slot<V>>,
    by_use: BTreeMap<u64, K>,
    tick: u64,
    stats: CacheStats,
}

/// A cache of shared values.
pub(crate) struct Lru<K, V> {
    limit: usize,
    state: Mutex<State<K, V>>,
}

impl<K: Hash + Eq + Clone, V> Lru<K, V> {
    /// Builds an empty cache.
    pub(crate) fn new(limit: usize) -> Self {
        let state = State {
            values: HashMap::new(),
            by_use: BTreeMap::new(),
            tick: 0,
            stats: CacheStats::default(),
        };
        Self {
            limit,
            state: Mutex::new(state),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a value, and counts the read.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut state = self.state();
        let state = &mut *state;
        state.tick += 1;
        let Some((value, _, used)) = state.values.get_mut(key) else {
            state.stats.misses += 1;
            return None;
        };
        state.stats.hits += 1;
        if let Some(key) = state.by_use.remove(used) {
            state.by_use.insert(state.tick, key);
        }
        *used = state.tick;
        Some(Arc::clone(value))
    }

    /// Adds a value, and drops others to stay within the limit. A value above it is not kept.
    pub(crate) fn insert(&self, key: K, value: V, bytes: usize) -> Arc<V> {
        let value = Arc::new(value);
        if bytes > self.limit {
            return value;
        }
        let mut state = self.state();
        let state = &mut *state;
        state.tick += 1;
        let slot = (Arc::clone(&value), bytes, state.tick);
        if let Some((_, bytes, used)) = state.values.insert(key.clone(), slot) {
            state.by_use.remove(&used);
            state.stats.bytes -= bytes as u64;
        }
        state.by_use.insert(state.tick, key);
        state.stats.bytes += bytes as u64;
        while state.stats.bytes > self.limit as u64 {
            let Some((_, key)) = state.by_use.pop_first() else {
                break;
            };
            if let Some((_, bytes, _)) = state.values.remove(&key) {
                state.stats.bytes -= bytes as u64;
            }
        }
        value
    }

    /// Returns uses and size.
    pub(crate) fn stats(&self) -> CacheStats {
        self.state().stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_value_is_dropped() {
        let cache = Lru::new(10);
        cache.insert("a", 1, 4);
        cache.insert("b", 2, 4);
        assert_eq!(cache.get(&"a").as_deref(), Some(&1));
        cache.insert("c", 3, 4);
        assert_eq!(cache.get(&"b"), None);
        assert_eq!(cache.get(&"a").as_deref(), Some(&1));
        let stats = cache.stats();
        assert_eq!((stats.hits, stats.misses, stats.bytes), (2, 1, 8));
    }

    #[test]
    fn value_above_the_limit_is_not_kept() {
        let cache = Lru::new(10);
        cache.insert("a", 1, 4);
        assert_eq!(*cache.insert("b", 2, 11), 2);
        assert_eq!(cache.get(&"b"), None);
        assert!(cache.get(&"a").is_some());
    }

    #[test]
    fn replaced_value_counts_once() {
        let cache = Lru::new(10);
        cache.insert("a", 1, 4);
        cache.insert("a", 2, 6);
        assert_eq!(cache.stats().bytes, 6);
        assert_eq!(cache.get(&"a").as_deref(), Some(&2));
    }
}
