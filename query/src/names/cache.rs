//! The names of the segments that a query needs, at most a few at a time.

use super::read::NameFiles;
use super::segment::SegmentNames;
use super::symbols::Symbols;
use crate::objects::CountingStore;
use crate::request::Symbol;
use crate::{Error, Result};
use backtrail_store::{Hour, SegmentId};
use datafusion::execution::memory_pool::MemoryPool;
use regex::{Regex, RegexBuilder};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;

/// The number of segments whose names stay in memory.
const MAX_SEGMENTS: usize = 8;
/// The number of patterns whose results stay in memory, per segment.
const MAX_PATTERNS: usize = 8;
/// The maximum length of a pattern.
const MAX_PATTERN: usize = 4096;
/// The maximum size of a compiled pattern.
const MAX_COMPILED: usize = 1 << 20;

/// The names of one segment, and what patterns match.
#[derive(Debug, Default)]
struct Slot {
    names: Option<Arc<SegmentNames>>,
    matches: HashMap<Box<str>, Arc<[bool]>>,
    last_use: u64,
}

/// The slots of the segments.
#[derive(Debug, Default)]
struct Slots {
    slots: HashMap<Box<str>, Arc<Mutex<Slot>>>,
    uses: u64,
}

/// The source of names for the functions of queries.
#[derive(Debug)]
pub(crate) struct NameSource {
    files: NameFiles,
    segments: HashMap<SegmentId, Hour>,
    slots: Mutex<Slots>,
    runtime: Handle,
}

impl NameSource {
    /// Builds the source for segments and symbols. It must be called within a runtime with several
    /// threads.
    pub(crate) fn new(
        store: Arc<CountingStore>,
        pool: Arc<dyn MemoryPool>,
        memory: u64,
        segments: HashMap<SegmentId, Hour>,
        symbols: &[Symbol],
    ) -> Result<Self> {
        Ok(Self {
            files: NameFiles {
                store,
                pool,
                memory,
                symbols: Symbols::new(symbols)?,
            },
            segments,
            slots: Mutex::default(),
            runtime: Handle::try_current().map_err(|error| Error::Failed(error.to_string()))?,
        })
    }

    /// Returns the pool of the query's memory.
    pub(crate) fn pool(&self) -> &Arc<dyn MemoryPool> {
        &self.files.pool
    }

    /// Returns the names of a segment. It blocks the thread.
    pub(crate) fn names(&self, segment: &str) -> Result<Arc<SegmentNames>> {
        let slot = self.slot(segment);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        self.load(segment, &mut slot)
    }

    /// Returns whether each stack of a segment has a name that matches. It blocks the thread.
    pub(crate) fn matches(&self, segment: &str, pattern: &str) -> Result<Arc<[bool]>> {
        let slot = self.slot(segment);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = slot.matches.get(pattern) {
            return Ok(Arc::clone(found));
        }
        let regex = compile(pattern)?;
        let names = self.load(segment, &mut slot)?;
        let found: Arc<[bool]> = names.matches(&regex).into();
        if slot.matches.len() >= MAX_PATTERNS {
            slot.matches.clear();
        }
        slot.matches.insert(pattern.into(), Arc::clone(&found));
        Ok(found)
    }

    fn load(&self, segment: &str, slot: &mut Slot) -> Result<Arc<SegmentNames>> {
        if let Some(names) = &slot.names {
            return Ok(Arc::clone(names));
        }
        let unknown = || Error::Failed(format!("there is no segment {segment:?} in this query"));
        let id: SegmentId = segment.parse().map_err(|_| unknown())?;
        let hour = self.segments.get(&id).ok_or_else(unknown)?;
        let read = self.files.read(*hour, id);
        let names = Arc::new(tokio::task::block_in_place(|| self.runtime.block_on(read))?);
        slot.names = Some(Arc::clone(&names));
        Ok(names)
    }

    /// Returns the slot of a segment, and removes the one that was not used for the longest time.
    fn slot(&self, segment: &str) -> Arc<Mutex<Slot>> {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        all.uses += 1;
        let uses = all.uses;
        if !all.slots.contains_key(segment) {
            if all.slots.len() >= MAX_SEGMENTS {
                // A slot that is in use right now stays.
                let idle = all.slots.iter().filter_map(|(name, slot)| {
                    let slot = slot.try_lock().ok()?;
                    Some((slot.last_use, name.clone()))
                });
                if let Some((_, oldest)) = idle.min() {
                    all.slots.remove(&oldest);
                }
            }
            all.slots.insert(segment.into(), Arc::default());
        }
        let slot = all.slots.entry(segment.into()).or_default();
        if let Ok(mut slot) = slot.try_lock() {
            slot.last_use = uses;
        }
        Arc::clone(slot)
    }
}

/// Compiles a pattern within limits of memory.
fn compile(pattern: &str) -> Result<Regex> {
    if pattern.len() > MAX_PATTERN {
        return Err(Error::Sql(format!(
            "a pattern has {} bytes, more than {MAX_PATTERN}",
            pattern.len()
        )));
    }
    let built = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
    built.map_err(|error| Error::Sql(crate::error::sentence(&error.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_patterns_are_refused() {
        assert!(compile("^std::.*vector").is_ok());
        for wrong in ["(", "a{1000}{1000}{1000}", &"a".repeat(5000)] {
            assert_eq!(compile(wrong).unwrap_err().status(), 3);
        }
    }
}
