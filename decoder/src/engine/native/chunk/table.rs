//! Chunks by their starts.

use super::{Chunk, Gone, Place, Start};
use crate::luck::Luck;

#[derive(Clone)]
pub(super) struct Table<const WINDOW: usize> {
    /// In the order in which they were made: those in use lie close together.
    chunks: Vec<Chunk<WINDOW>>,
    /// What is known of starts, by their hashes; a power of two, or none yet.
    buckets: Vec<Bucket>,
    most: usize,
    /// Bytes of traces for each bucket, and of the traces before this one and up to its end.
    bytes_for_bucket: usize,
    before: usize,
    bytes: usize,
    /// A chunk is made the time that its start is met for this time.
    enough: u32,
    /// How many chunks were made since the code is what it is.
    made: usize,
    luck: Luck,
}

/// A few starts of which the hashes are alike.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(16))]
struct Bucket([Slot; Bucket::SLOTS]);

/// What is known of a start: in the upper bits some of its hash, in the lower the number of its chunk, from [`Slot::MADE`] on, or how
/// often it was met; 0: nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Slot(u32);

impl Slot {
    /// The lowest bit of the hash's.
    const TAG: u32 = 19;
    /// The most often that is counted, and the first number of a chunk.
    const MADE: u32 = 8;

    #[inline]
    fn new(hash: u64, known: u32) -> Self {
        Self((hash >> 51 << Self::TAG) as u32 | known)
    }

    #[inline]
    fn known(self) -> u32 {
        self.0 & ((1 << Self::TAG) - 1)
    }
}

impl<const WINDOW: usize> Table<WINDOW> {
    /// Buckets at most, a power of two.
    const MAX_BUCKETS: usize = 1 << 13;
    /// Chunks made at most, and one more for so many bytes of the trace. What each costs here, in the history and in the
    /// forest is worth it for the few that come all the time, and not for the many that come now and then.
    const MAX: usize = 1 << 13;
    const BYTES_FOR_ONE: usize = 1 << 16;
    /// The same where code changes often: bounds memory, and slots have no higher numbers.
    const MAX_IN_ALL: usize = 1 << 18;

    pub fn new(bytes_for_bucket: usize, enough: u32, worth: i32) -> Self {
        Self {
            chunks: Vec::new(),
            buckets: Vec::new(),
            most: 1,
            bytes_for_bucket,
            before: 0,
            bytes: 0,
            enough,
            made: 0,
            luck: Luck::new(worth),
        }
    }

    /// A trace of so many bytes begins.
    pub fn begin(&mut self, bytes: usize) {
        self.before = self.bytes;
        self.bytes += bytes;
        let buckets = self.bytes / self.bytes_for_bucket;
        let most = buckets.clamp(1, Self::MAX_BUCKETS).next_power_of_two();
        if most > self.most {
            self.most = most;
            self.buckets = Vec::new();
            for number in 0..self.chunks.len() {
                self.put(number);
            }
        }
        self.luck.reset();
    }

    /// The code has changed: what was made is of no use any more.
    pub fn begin_anew(&mut self) {
        self.made = 0;
    }

    /// A chunk may be looked for.
    #[inline]
    pub fn is_wanted(&mut self) -> bool {
        self.luck.allows()
    }

    /// What the chunk does that begins so, which has this hash.
    #[inline]
    pub fn find(&self, window: &[u8; WINDOW], place: Place, hash: u64) -> Option<Gone> {
        let bucket = self.buckets.get(self.bucket_at(hash))?;
        let mut alike = bucket.alike(hash);
        while alike != 0 {
            let slot = bucket.slot(alike.trailing_zeros());
            if let Some(number) = slot.known().checked_sub(Slot::MADE)
                && let Some(chunk) = self.chunks.get(number as usize)
                && chunk.start.place == place
                && chunk.start.window == *window
            {
                return Some(chunk.gone);
            }
            alike &= alike - 1;
        }
        None
    }

    /// A chunk was found, or none.
    #[inline]
    pub fn count(&mut self, found: bool) {
        match found {
            true => self.luck.found(),
            false => self.luck.missed(),
        }
    }

    #[inline]
    fn bucket_at(&self, hash: u64) -> usize {
        hash as usize & (self.most - 1)
    }

    #[inline]
    fn bucket(&mut self, hash: u64) -> Option<&mut Bucket> {
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket::default(); self.most];
        }
        let at = self.bucket_at(hash);
        self.buckets.get_mut(at)
    }

    /// No chunk was found of this hash, at an offset of the trace. Says whether one is to be made: when it was met often
    /// enough.
    #[inline]
    pub fn meet(&mut self, hash: u64, offset: usize) -> bool {
        let room = Self::MAX + (self.before + offset) / Self::BYTES_FOR_ONE;
        if self.made >= room || self.chunks.len() >= Self::MAX_IN_ALL {
            return false;
        }
        let Some(bucket) = self.bucket(hash) else {
            return false;
        };
        let (at, times) = match bucket.met(hash) {
            Some((at, times)) => (at, (times + 1).min(Slot::MADE - 1)),
            None => (bucket.least(hash), 1),
        };
        bucket.set(at, Slot::new(hash, times));
        times >= self.enough
    }

    pub fn insert(&mut self, chunk: Chunk<WINDOW>) {
        self.made += 1;
        self.chunks.push(chunk);
        self.put(self.chunks.len() - 1);
    }

    /// Puts a chunk into a slot of its bucket.
    fn put(&mut self, number: usize) -> Option<()> {
        let Start { window, place } = &self.chunks.get(number)?.start;
        let hash = Start::hash(window, *place);
        let bucket = self.bucket(hash)?;
        let at = bucket.met(hash).map_or_else(|| bucket.least(hash), |(at, _)| at);
        bucket.set(at, Slot::new(hash, number as u32 + Slot::MADE));
        Some(())
    }
}

impl Bucket {
    const SLOTS: usize = 4;

    /// The slots that are of a hash, a bit each.
    #[inline]
    fn alike(&self, hash: u64) -> u32 {
        let wanted = Slot::new(hash, 0).0;
        let alike = |at: usize| u32::from((self.0[at].0 ^ wanted) >> Slot::TAG == 0) << at;
        alike(0) | alike(1) | alike(2) | alike(3)
    }

    #[inline]
    fn slot(&self, at: u32) -> Slot {
        self.0[at as usize % Self::SLOTS]
    }

    #[inline]
    fn set(&mut self, at: u32, slot: Slot) {
        self.0[at as usize % Self::SLOTS] = slot;
    }

    /// The slot of a start that was met, of this hash, and how often it was.
    #[inline]
    fn met(&self, hash: u64) -> Option<(u32, u32)> {
        let mut alike = self.alike(hash);
        while alike != 0 {
            let at = alike.trailing_zeros();
            let known = self.slot(at).known();
            if known < Slot::MADE {
                return Some((at, known));
            }
            alike &= alike - 1;
        }
        None
    }

    /// The slot that is given up for another start, by chance: one of a start that was only met, if there is any.
    #[inline]
    fn least(&self, hash: u64) -> u32 {
        const SLOTS: u32 = Bucket::SLOTS as u32;
        let first = (hash >> 28) as u32 % SLOTS;
        let of_met = |&at: &u32| self.slot(at).known() < Slot::MADE;
        (first..first + SLOTS).find(of_met).unwrap_or(first) % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::native::chunk::Way;
    use crate::engine::native::did::Did;

    fn chunk(block: u32) -> Chunk<8> {
        Chunk {
            start: Start {
                window: u64::from(block).to_le_bytes(),
                place: Place::new(block, 1),
            },
            gone: Gone {
                way: Way { run: 0, next: 0 },
                did: Did::NOTHING,
                len: 0,
            },
        }
    }

    #[test]
    fn what_was_met_often_enough_is_made_and_found() {
        let mut table = Table::<8>::new(1, 2, 1);
        table.begin(1 << 10);
        let Start { window, place } = chunk(7).start;
        let hash = Start::hash(&window, place);
        assert!(!table.meet(hash, 0));
        assert!(table.meet(hash, 0));
        assert!(table.find(&window, place, hash).is_none());
        table.insert(chunk(7));
        assert!(table.find(&window, place, hash).is_some());
        let later = Place::new(7, 2);
        assert!(table.find(&window, later, Start::hash(&window, later)).is_none());
    }

    #[test]
    fn every_hash_has_a_slot() {
        let mut bucket = Bucket::default();
        for hash in [0, 1 << 28, u64::MAX >> 1, u64::MAX] {
            assert!((bucket.least(hash) as usize) < Bucket::SLOTS);
        }
        bucket.0 = [
            Slot::new(7, Slot::MADE),
            Slot::new(7, Slot::MADE),
            Slot::new(7, 1),
            Slot::new(7, Slot::MADE),
        ];
        assert_eq!(bucket.least(u64::MAX), 2);
    }

    #[test]
    fn what_was_made_of_a_trace_is_found_in_the_next() {
        let mut table = Table::<8>::new(1, 1, 1);
        let found = |table: &Table<8>, block| {
            let Start { window, place } = chunk(block).start;
            table.find(&window, place, Start::hash(&window, place)).is_some()
        };
        table.begin(4);
        for block in 0..4 {
            let Start { window, place } = chunk(block).start;
            table.meet(Start::hash(&window, place), 0);
            table.insert(chunk(block));
        }
        let before: Vec<u32> = (0..4).filter(|&block| found(&table, block)).collect();
        assert!(before.len() > 1);
        table.begin(1 << 12);
        assert_eq!(table.buckets.len(), 1 << 13);
        assert!(before.iter().all(|&block| found(&table, block)));
        assert!(!found(&table, 4));
    }

    #[test]
    fn few_are_made_until_the_code_changes() {
        let mut table = Table::<8>::new(1, 1, 1);
        table.begin(1 << 10);
        (0..Table::<8>::MAX as u32).for_each(|block| {
            table.insert(chunk(block));
        });
        let Start { window, place } = chunk(u32::MAX - 1).start;
        let hash = Start::hash(&window, place);
        assert!(!table.meet(hash, Table::<8>::BYTES_FOR_ONE - 1));
        assert!(table.meet(hash, Table::<8>::BYTES_FOR_ONE));
        table.begin_anew();
        assert!(table.meet(hash, 0));
        for _ in 0..Table::<8>::MAX_IN_ALL / Table::<8>::MAX {
            table.begin_anew();
            (0..Table::<8>::MAX as u32).for_each(|block| {
                table.insert(chunk(block));
            });
        }
        table.begin_anew();
        assert!(!table.meet(hash, 0));
    }
}
