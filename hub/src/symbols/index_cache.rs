//! Open indexes of builds in memory, with a limit in bytes.

use backtrail_symbol_index::Index;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which the record of an open index is read again. Another hub may have made a
/// better one.
const FRESH: Duration = Duration::from_secs(60);

/// The open indexes. The one that was not used for the longest time is closed first.
pub struct IndexCache {
    limit: u64,
    state: Mutex<State>,
    hits: AtomicU64,
    misses: AtomicU64,
    /// Held while an index is read, so that memory is bounded.
    pub reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    open: HashMap<String, Entry>,
    bytes: u64,
    /// The number of uses, as a clock.
    uses: u64,
}

struct Entry {
    index: Arc<Index>,
    bytes: u64,
    used: u64,
    /// When the record said so.
    made: i64,
    checked: Instant,
}

/// An open index in the cache.
#[derive(Clone)]
pub struct Cached {
    /// The index.
    pub index: Arc<Index>,
    /// The time at which it was made.
    pub made: i64,
    /// Whether its record was read recently.
    pub is_fresh: bool,
}

/// The counters of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Requests for a build whose index was open.
    pub hits: u64,
    /// Requests for other builds.
    pub misses: u64,
    /// The open indexes.
    pub open: u64,
    /// The bytes of the open indexes.
    pub bytes: u64,
}

impl IndexCache {
    /// Creates a cache with a limit in bytes. One index may exceed it, and is then alone.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            reading: tokio::sync::Mutex::new(()),
        }
    }

    /// Returns the open index of a build, and counts whether there is one.
    pub fn get(&self, build_id: &str) -> Option<Cached> {
        let found = self.find(build_id);
        let counter = if found.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// Returns the open index of a build without counting.
    pub fn find(&self, build_id: &str) -> Option<Cached> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.uses += 1;
        let uses = state.uses;
        let entry = state.open.get_mut(build_id)?;
        entry.used = uses;
        Some(Cached {
            index: entry.index.clone(),
            made: entry.made,
            is_fresh: entry.checked.elapsed() < FRESH,
        })
    }

    /// Notes that the record of an open index still names it.
    pub fn note_fresh(&self, build_id: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = state.open.get_mut(build_id) {
            entry.checked = Instant::now();
        }
    }

    /// Adds an open index that was made at this time, and closes others beyond the limit.
    pub fn add(&self, build_id: &str, index: Arc<Index>, bytes: u64, made: i64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(build_id);
        while state.bytes.saturating_add(bytes) > self.limit {
            let oldest = state.open.iter().min_by_key(|(_, entry)| entry.used);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                break;
            };
            state.remove(&oldest);
        }
        state.uses += 1;
        let entry = Entry {
            index,
            bytes,
            used: state.uses,
            made,
            checked: Instant::now(),
        };
        state.bytes = state.bytes.saturating_add(bytes);
        state.open.insert(build_id.to_owned(), entry);
    }

    /// Closes the index of a build.
    pub fn remove(&self, build_id: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.remove(build_id);
    }

    /// Returns the counters.
    pub fn counts(&self) -> CacheCounts {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            open: state.open.len() as u64,
            bytes: state.bytes,
        }
    }
}

impl State {
    fn remove(&mut self, build_id: &str) {
        if let Some(entry) = self.open.remove(build_id) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_symbol_index::{BuildOptions, OpenOptions, build};
    use backtrail_symbolizer::{DebugSearch, SymbolFile};

    fn index() -> Option<Arc<Index>> {
        let shell = std::path::Path::new("/bin/sh");
        let symbols = SymbolFile::open(shell, &DebugSearch::none()).ok()?;
        let files = build(&symbols, &BuildOptions::default()).ok()?;
        let (gsym, types) = (Arc::new(files.gsym), Arc::new(files.types));
        Some(Arc::new(Index::open(gsym, types, &OpenOptions::default()).ok()?))
    }

    #[test]
    fn index_that_is_unused_for_longest_is_closed_first() {
        let Some(index) = index() else {
            println!("left out: /bin/sh names no function");
            return;
        };
        let cache = IndexCache::new(100);
        cache.add("a", index.clone(), 40, 1);
        cache.add("b", index.clone(), 40, 2);
        assert!(
            cache
                .get("a")
                .is_some_and(|found| found.made == 1 && found.is_fresh)
        );
        cache.add("c", index.clone(), 40, 3);
        assert!(cache.get("b").is_none() && cache.get("a").is_some() && cache.get("c").is_some());
        let expected = CacheCounts {
            hits: 3,
            misses: 1,
            open: 2,
            bytes: 80,
        };
        assert_eq!(cache.counts(), expected);
        cache.add("large", index, 1000, 4);
        assert_eq!((cache.counts().open, cache.counts().bytes), (1, 1000));
        cache.remove("large");
        assert_eq!((cache.counts().open, cache.counts().bytes), (0, 0));
    }
}
