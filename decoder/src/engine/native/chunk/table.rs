//! Chunks by their starts.

use super::{Chunk, Gone, Place, Start, Way};

pub(super) struct Table<const WINDOW: usize> {
    /// A chunk is in one of the two slots of a pair; a power of two, or none yet.
    pairs: Vec<Pair<WINDOW>>,
    most: usize,
    /// Of starts that were met: what says so, and in the low three bits how often.
    met: Vec<u16>,
    /// A chunk is made the time that its start is met for this time.
    enough: u16,
    /// How many chunks were made since the code is what it is, and in all.
    made: usize,
    all: usize,
    /// Chunks found, each worth so many of those not found, less these, of late.
    luck: i32,
    worth: i32,
    /// How often none is looked for, because hardly any was found.
    idle: u32,
}

#[repr(align(64))]
#[derive(Clone, Copy)]
struct Pair<const WINDOW: usize>([Chunk<WINDOW>; 2]);

impl<const WINDOW: usize> Chunk<WINDOW> {
    const NONE: Self = Self {
        start: Start {
            window: [0; WINDOW],
            place: Place(u64::MAX),
        },
        gone: Gone {
            way: Way { run: 0, next: 0 },
            effect: 0,
            len: 0,
            deepest: 0,
        },
    };
}

impl<const WINDOW: usize> Table<WINDOW> {
    /// Pairs of slots at most, a power of two.
    const MAX_PAIRS: usize = 1 << 16;
    /// Chunks made at most, and one more for so many bytes of the trace. What each costs here, in the history and in the
    /// forest is worth it for the few that come all the time, and not for the many that come now and then.
    const MAX: usize = 1 << 14;
    const BYTES_FOR_ONE: usize = 1 << 14;
    /// The same where code changes often: bounds memory.
    const MAX_IN_ALL: usize = 1 << 18;
    /// So much bad luck is enough, and then for so long none is looked for.
    const BAD_LUCK: i32 = -(1 << 14);
    const IDLE: u32 = 1 << 20;

    pub fn new(pairs: usize, enough: u16, worth: i32) -> Self {
        Self {
            pairs: Vec::new(),
            most: pairs.clamp(1, Self::MAX_PAIRS).next_power_of_two(),
            met: Vec::new(),
            enough,
            made: 0,
            all: 0,
            luck: 0,
            worth,
            idle: 0,
        }
    }

    /// The code has changed: what was made is of no use any more.
    pub fn begin_anew(&mut self) {
        self.made = 0;
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

    /// What the chunk does that begins so, which has this hash.
    #[inline]
    pub fn find(&self, window: &[u8; WINDOW], place: Place, hash: u64) -> Option<Gone> {
        // The list of what was met is small: where little comes again, it spares the way to the slots.
        let met = *self.met.get(self.met_at(hash))? ^ tag(hash);
        if met > TIMES || met < self.enough {
            return None;
        }
        let Pair([one, other]) = self.pairs.get(self.pair_at(hash))?;
        let is_it = |chunk: &Chunk<WINDOW>| chunk.start.place == place && chunk.start.window == *window;
        if is_it(one) {
            Some(one.gone)
        } else {
            is_it(other).then_some(other.gone)
        }
    }

    /// A chunk was found, or none.
    #[inline]
    pub fn count(&mut self, found: bool) {
        self.luck = match found {
            true => (self.luck + self.worth).min(0),
            false => self.luck - 1,
        };
    }

    #[inline]
    fn pair_at(&self, hash: u64) -> usize {
        hash as usize & (self.most - 1)
    }

    #[inline]
    fn met_at(&self, hash: u64) -> usize {
        hash as usize >> 8 & (self.most - 1)
    }

    /// No chunk was found of this hash, at an offset of the trace. Says whether one is to be made: when it was met often
    /// enough.
    #[inline]
    pub fn meet(&mut self, hash: u64, offset: usize) -> bool {
        if self.pairs.is_empty() {
            self.pairs.resize(self.most, Pair([Chunk::NONE; 2]));
            self.met.resize(self.most, 0);
        }
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
        let room = self.made < Self::MAX + offset / Self::BYTES_FOR_ONE && self.all < Self::MAX_IN_ALL;
        room && times >= self.enough
    }

    pub fn insert(&mut self, chunk: Chunk<WINDOW>) -> Option<()> {
        self.made += 1;
        self.all += 1;
        // The newer of the two stays the longer.
        let at = self.pair_at(Start::hash(&chunk.start.window, chunk.start.place));
        let Pair([first, second]) = self.pairs.get_mut(at)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(block: u32) -> Chunk<8> {
        Chunk {
            start: Start {
                window: u64::from(block).to_le_bytes(),
                place: Place::new(block, 1),
            },
            ..Chunk::NONE
        }
    }

    #[test]
    fn what_was_met_often_enough_is_made_and_found() {
        let mut table = Table::<8>::new(1 << 10, 2, 1);
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
    fn few_are_made_until_the_code_changes() {
        let mut table = Table::<8>::new(1 << 10, 1, 1);
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
