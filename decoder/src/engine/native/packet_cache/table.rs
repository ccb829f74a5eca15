//! The hash table of cached paths.

use super::{BlockEpoch, CacheEntry, CacheKey, CachedPath};
use crate::cache_throttle::CacheThrottle;

pub(super) struct CacheTable<const WINDOW: usize> {
    /// The entries in order of insertion, so that entries in use are close together.
    entries: Vec<CacheEntry<WINDOW>>,
    /// Entries and miss counters by hash. The length is a power of two, or 0.
    buckets: Vec<Bucket>,
    max_buckets: usize,
    /// Trace bytes for each bucket; the bytes of all earlier traces; and those including the
    /// current one.
    bytes_for_bucket: usize,
    before: usize,
    bytes: usize,
    /// A path is recorded at this many misses of its key.
    threshold: u32,
    /// The number of entries inserted since the last code change.
    inserted: usize,
    throttle: CacheThrottle,
}

/// A few slots for keys with similar hashes.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
struct Bucket([CacheSlot; Bucket::SLOTS]);

/// The upper bits are a hash tag. The lower bits are an entry index plus
/// [`CacheSlot::FIRST_ENTRY`], or a miss counter below it; 0: empty.
#[derive(Clone, Copy, Debug, Default)]
struct CacheSlot(u32);

impl CacheSlot {
    /// The lowest bit of the tag.
    const TAG: u32 = 19;
    /// The value of the first entry; the limit of miss counters.
    const FIRST_ENTRY: u32 = 8;

    #[inline]
    fn new(hash: u64, known: u32) -> Self {
        Self((hash >> 51 << Self::TAG) as u32 | known)
    }

    #[inline]
    fn known(self) -> u32 {
        self.0 & ((1 << Self::TAG) - 1)
    }
}

impl<const WINDOW: usize> CacheTable<WINDOW> {
    /// The most buckets, a power of two.
    const MAX_BUCKETS: usize = 1 << 13;
    /// The most entries, apart from one more for each `BYTES_FOR_ONE` trace bytes. An entry also
    /// costs memory in the history and the forest, which pays only for frequent paths.
    const MAX: usize = 1 << 13;
    const BYTES_FOR_ONE: usize = 1 << 16;
    /// The most entries over all code changes. This bounds memory, and is the limit of a slot's
    /// index.
    const MAX_IN_ALL: usize = 1 << 18;

    pub fn new(bytes_for_bucket: usize, threshold: u32, hit_weight: i32) -> Self {
        Self {
            entries: Vec::new(),
            buckets: Vec::new(),
            max_buckets: 1,
            bytes_for_bucket,
            before: 0,
            bytes: 0,
            threshold,
            inserted: 0,
            throttle: CacheThrottle::new(hit_weight),
        }
    }

    /// Starts a trace of `bytes` bytes.
    pub fn begin_trace(&mut self, bytes: usize) {
        self.before = self.bytes;
        self.bytes += bytes;
        let buckets = self.bytes / self.bytes_for_bucket;
        let max_buckets = buckets.clamp(1, Self::MAX_BUCKETS).next_power_of_two();
        if max_buckets > self.max_buckets {
            self.max_buckets = max_buckets;
            self.buckets = Vec::new();
            for number in 0..self.entries.len() {
                self.put(number);
            }
        }
        self.throttle.reset();
    }

    /// Resets the limit of entries: the code has changed.
    pub fn code_changed(&mut self) {
        self.inserted = 0;
    }

    /// Returns whether a lookup is worthwhile.
    #[inline]
    pub fn admits_lookup(&mut self) -> bool {
        self.throttle.admits_lookup()
    }

    /// Returns the cached path of a key with this hash.
    #[inline]
    pub fn find(&self, window: &[u8; WINDOW], block_epoch: BlockEpoch, hash: u64) -> Option<CachedPath> {
        let bucket = self.buckets.get(self.bucket_at(hash))?;
        let mut matching = bucket.matching(hash);
        while matching != 0 {
            let slot = bucket.slot(matching.trailing_zeros());
            if let Some(number) = slot.known().checked_sub(CacheSlot::FIRST_ENTRY)
                && let Some(entry) = self.entries.get(number as usize)
                && entry.start.block_epoch == block_epoch
                && entry.start.window == *window
            {
                return Some(entry.path);
            }
            matching &= matching - 1;
        }
        None
    }

    /// Counts a lookup as a hit or a miss.
    #[inline]
    pub fn count_lookup(&mut self, found: bool) {
        match found {
            true => self.throttle.hit(),
            false => self.throttle.miss(),
        }
    }

    #[inline]
    fn bucket_at(&self, hash: u64) -> usize {
        hash as usize & (self.max_buckets - 1)
    }

    #[inline]
    fn bucket(&mut self, hash: u64) -> Option<&mut Bucket> {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket::default(); self.max_buckets];
        }
        let at = self.bucket_at(hash);
        self.buckets.get_mut(at)
    }

    /// Counts a miss of this hash at an offset of the trace. Returns whether to record a path for
    /// it.
    #[inline]
    pub fn note_miss(&mut self, hash: u64, offset: usize) -> bool {
        let room = Self::MAX + (self.before + offset) / Self::BYTES_FOR_ONE;
        if self.inserted >= room || self.entries.len() >= Self::MAX_IN_ALL {
            return false;
        }
        let Some(bucket) = self.bucket(hash) else {
            return false;
        };
        let (at, times) = match bucket.counter(hash) {
            Some((at, times)) => (at, (times + 1).min(CacheSlot::FIRST_ENTRY - 1)),
            None => (bucket.victim(hash), 1),
        };
        bucket.set(at, CacheSlot::new(hash, times));
        times >= self.threshold
    }

    pub fn insert(&mut self, entry: CacheEntry<WINDOW>) {
        self.inserted += 1;
        self.entries.push(entry);
        self.put(self.entries.len() - 1);
    }

    /// Puts an entry into a slot of its bucket.
    fn put(&mut self, number: usize) -> Option<()> {
        let CacheKey { window, block_epoch } = &self.entries.get(number)?.start;
        let hash = CacheKey::hash(window, *block_epoch);
        let bucket = self.bucket(hash)?;
        let at = bucket
            .counter(hash)
            .map_or_else(|| bucket.victim(hash), |(at, _)| at);
        bucket.set(at, CacheSlot::new(hash, number as u32 + CacheSlot::FIRST_ENTRY));
        Some(())
    }
}

impl Bucket {
    const SLOTS: usize = 4;

    /// Returns the slots with the tag of a hash, as a bit set.
    #[inline]
    fn matching(&self, hash: u64) -> u32 {
        let wanted = CacheSlot::new(hash, 0).0;
        let matching = |at: usize| u32::from((self.0[at].0 ^ wanted) >> CacheSlot::TAG == 0) << at;
        matching(0) | matching(1) | matching(2) | matching(3)
    }

    #[inline]
    fn slot(&self, at: u32) -> CacheSlot {
        self.0[at as usize % Self::SLOTS]
    }

    #[inline]
    fn set(&mut self, at: u32, slot: CacheSlot) {
        self.0[at as usize % Self::SLOTS] = slot;
    }

    /// Returns the slot with the miss counter of a hash, and its count.
    #[inline]
    fn counter(&self, hash: u64) -> Option<(u32, u32)> {
        let mut matching = self.matching(hash);
        while matching != 0 {
            let at = matching.trailing_zeros();
            let known = self.slot(at).known();
            if known < CacheSlot::FIRST_ENTRY {
                return Some((at, known));
            }
            matching &= matching - 1;
        }
        None
    }

    /// Returns the slot to replace: pseudo-random, but a miss counter if there is any.
    #[inline]
    fn victim(&self, hash: u64) -> u32 {
        const SLOTS: u32 = Bucket::SLOTS as u32;
        let first = (hash >> 28) as u32 % SLOTS;
        let is_counter = |&at: &u32| self.slot(at).known() < CacheSlot::FIRST_ENTRY;
        (first..first + SLOTS).find(is_counter).unwrap_or(first) % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathIdx;
    use crate::engine::native::code::BlockIdx;
    use crate::engine::native::packet_cache::PathTarget;

    fn entry(block: u32) -> CacheEntry<8> {
        CacheEntry {
            start: CacheKey {
                window: u64::from(block).to_le_bytes(),
                block_epoch: BlockEpoch::new(BlockIdx(block), 1),
            },
            path: CachedPath {
                target: PathTarget {
                    path: PathIdx::NONE,
                    next: BlockIdx(0),
                },
                effect: 0,
                max_depth: 0,
                len: 0,
            },
        }
    }

    #[test]
    fn key_missed_often_enough_is_recorded() {
        let mut table = CacheTable::<8>::new(1, 2, 1);
        table.begin_trace(1 << 10);
        let CacheKey { window, block_epoch } = entry(7).start;
        let hash = CacheKey::hash(&window, block_epoch);
        assert!(!table.note_miss(hash, 0));
        assert!(table.note_miss(hash, 0));
        assert!(table.find(&window, block_epoch, hash).is_none());
        table.insert(entry(7));
        assert!(table.find(&window, block_epoch, hash).is_some());
        let later = BlockEpoch::new(BlockIdx(7), 2);
        assert!(
            table
                .find(&window, later, CacheKey::hash(&window, later))
                .is_none()
        );
    }

    #[test]
    fn every_hash_has_a_victim() {
        let mut bucket = Bucket::default();
        for hash in [0, 1 << 28, u64::MAX >> 1, u64::MAX] {
            assert!((bucket.victim(hash) as usize) < Bucket::SLOTS);
        }
        bucket.0 = [
            CacheSlot::new(7, CacheSlot::FIRST_ENTRY),
            CacheSlot::new(7, CacheSlot::FIRST_ENTRY),
            CacheSlot::new(7, 1),
            CacheSlot::new(7, CacheSlot::FIRST_ENTRY),
        ];
        assert_eq!(bucket.victim(u64::MAX), 2);
    }

    #[test]
    fn entries_of_one_trace_are_found_in_the_next() {
        let mut table = CacheTable::<8>::new(1, 1, 1);
        let found = |table: &CacheTable<8>, block| {
            let CacheKey { window, block_epoch } = entry(block).start;
            table
                .find(&window, block_epoch, CacheKey::hash(&window, block_epoch))
                .is_some()
        };
        table.begin_trace(4);
        for block in 0..4 {
            let CacheKey { window, block_epoch } = entry(block).start;
            table.note_miss(CacheKey::hash(&window, block_epoch), 0);
            table.insert(entry(block));
        }
        let before: Vec<u32> = (0..4).filter(|&block| found(&table, block)).collect();
        assert!(before.len() > 1);
        table.begin_trace(1 << 12);
        assert_eq!(table.buckets.len(), 1 << 13);
        assert!(before.iter().all(|&block| found(&table, block)));
        assert!(!found(&table, 4));
    }

    #[test]
    fn entries_are_limited_until_the_code_changes() {
        let mut table = CacheTable::<8>::new(1, 1, 1);
        table.begin_trace(1 << 10);
        (0..CacheTable::<8>::MAX as u32).for_each(|block| {
            table.insert(entry(block));
        });
        let CacheKey { window, block_epoch } = entry(u32::MAX - 1).start;
        let hash = CacheKey::hash(&window, block_epoch);
        assert!(!table.note_miss(hash, CacheTable::<8>::BYTES_FOR_ONE - 1));
        assert!(table.note_miss(hash, CacheTable::<8>::BYTES_FOR_ONE));
        table.code_changed();
        assert!(table.note_miss(hash, 0));
        for _ in 0..CacheTable::<8>::MAX_IN_ALL / CacheTable::<8>::MAX {
            table.code_changed();
            (0..CacheTable::<8>::MAX as u32).for_each(|block| {
                table.insert(entry(block));
            });
        }
        table.code_changed();
        assert!(!table.note_miss(hash, 0));
    }
}
