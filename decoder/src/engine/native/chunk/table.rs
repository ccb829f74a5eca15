//! Chunks by their starts.

use super::{Chunk, Start, Way};

pub(super) struct Table {
    /// Pairs, of a power of two: a chunk is in one of two slots.
    slots: Vec<Chunk>,
    pairs: usize,
    /// Of starts that were met: what says so, and in the low three bits how often.
    met: Vec<u16>,
    /// A chunk is made the time that its start is met for this time.
    enough: u16,
    /// How many chunks were made.
    made: usize,
    /// Chunks found, each worth so many of those not found, less these, of late.
    luck: i32,
    worth: i32,
    /// How often none is looked for, because hardly any was found.
    idle: u32,
}

const NO_CHUNK: Chunk = Chunk {
    start: Start {
        block: u32::MAX,
        epoch: 0,
        bytes: 0,
    },
    way: Way { run: 0, next: 0 },
    ip_before: 0,
    ip_after: 0,
    ip_matters: false,
    offset: 0,
    len: 0,
    deepest: 0,
    first_call: 0,
    returned: 0,
    opened: 0,
};

impl Table {
    /// Pairs of slots at most, a power of two.
    const MAX_PAIRS: usize = 1 << 16;
    /// Chunks made at most: bounds memory where hardly any comes again.
    const MAX: usize = 1 << 18;
    /// So much bad luck is enough, and then for so long none is looked for.
    const BAD_LUCK: i32 = -(1 << 14);
    const IDLE: u32 = 1 << 20;

    pub fn new(pairs: usize, enough: u16, worth: i32) -> Self {
        Self {
            slots: Vec::new(),
            pairs: pairs.clamp(1, Self::MAX_PAIRS).next_power_of_two(),
            met: Vec::new(),
            enough,
            made: 0,
            luck: 0,
            worth,
            idle: 0,
        }
    }

    /// A chunk may be looked for.
    #[inline]
    pub fn is_wanted(&mut self) -> bool {
        if self.idle > 0 {
            self.idle -= 1;
            return false;
        }
        if self.luck < Self::BAD_LUCK {
            (self.luck, self.idle) = (0, Self::IDLE);
        }
        true
    }

    /// The slot of the chunk that begins so, when it fits.
    #[inline]
    pub fn find(&mut self, start: Start, fits: impl Fn(&Chunk) -> bool) -> Option<usize> {
        let hash = hash(start);
        let first = self.pair(hash);
        // The list of what was met is small: where little comes again, it spares the way to the slots.
        let made = self.met.get(self.met_at(hash));
        let made = made.is_some_and(|&met| met & !TIMES == tag(hash) && met & TIMES >= self.enough);
        let pair = self.slots.get(first..first + 2).filter(|_| made).unwrap_or(&[]);
        let found = pair.iter().position(|chunk| chunk.start == start);
        let found = found.filter(|&at| pair.get(at).is_some_and(&fits));
        self.luck = match found {
            Some(_) => (self.luck + self.worth).min(0),
            None => self.luck - 1,
        };
        Some(first + found?)
    }

    #[inline]
    pub fn get(&self, slot: usize) -> Option<&Chunk> {
        self.slots.get(slot)
    }

    /// The first slot of a pair.
    #[inline]
    fn pair(&self, hash: u64) -> usize {
        (hash as usize & (self.pairs - 1)) * 2
    }

    #[inline]
    fn met_at(&self, hash: u64) -> usize {
        hash as usize >> 8 & (self.pairs - 1)
    }

    /// No chunk was found here. Says whether one is to be made: when it was met often enough.
    #[inline]
    pub fn meet(&mut self, start: Start) -> bool {
        if self.slots.is_empty() {
            self.slots.resize(self.pairs * 2, NO_CHUNK);
            self.met.resize(self.pairs, 0);
        }
        let hash = hash(start);
        let (at, tag) = (self.met_at(hash), tag(hash));
        let Some(met) = self.met.get_mut(at) else {
            return false;
        };
        let times = if *met & !TIMES == tag {
            (*met & TIMES) + 1
        } else {
            1
        };
        *met = tag | times.min(TIMES);
        times >= self.enough && self.made < Self::MAX
    }

    pub fn insert(&mut self, chunk: Chunk) -> Option<()> {
        self.made += 1;
        // The newer of the two stays the longer.
        let pair = self.pair(hash(chunk.start));
        let [first, second] = self.slots.get_mut(pair..pair + 2)?.first_chunk_mut()?;
        *second = std::mem::replace(first, chunk);
        Some(())
    }
}

/// The bits of what was met that say how often.
const TIMES: u16 = 7;

/// The other bits.
#[inline]
fn tag(hash: u64) -> u16 {
    (hash >> 48) as u16 & !TIMES
}

#[inline]
fn hash(start: Start) -> u64 {
    let place = u64::from(start.block) << 32 | u64::from(start.epoch);
    let mixed = start.bytes ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ mixed >> 32
}
