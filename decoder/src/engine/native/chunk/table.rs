//! Chunks by their starts.

use super::{Chunk, Gone, Place, Start, Way};

pub(super) struct Table<const WINDOW: usize> {
    /// A chunk is in one of the two slots of a pair; a power of two, or none yet.
    pairs: Vec<Pair<WINDOW>>,
    most: usize,
    /// Bytes of traces for each pair, and of the traces before this one and up to its end.
    bytes_for_pair: usize,
    before: usize,
    bytes: usize,
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
            place: Place::NONE,
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

    pub fn new(bytes_for_pair: usize, enough: u16, worth: i32) -> Self {
        Self {
            pairs: Vec::new(),
            most: 1,
            bytes_for_pair,
            before: 0,
            bytes: 0,
            met: Vec::new(),
            enough,
            made: 0,
            all: 0,
            luck: 0,
            worth,
            idle: 0,
        }
    }

    /// A trace of so many bytes begins.
    pub fn begin(&mut self, bytes: usize) {
        self.before = self.bytes;
        self.bytes += bytes;
        let pairs = self.bytes / self.bytes_for_pair;
        let most = pairs.clamp(1, Self::MAX_PAIRS).next_power_of_two();
        if most > self.most {
            self.most = most;
            let pairs = std::mem::take(&mut self.pairs);
            if !pairs.is_empty() {
                self.make_room();
            }
            // Of each two, the newer comes first.
            let chunks = pairs.into_iter().flat_map(|Pair([newer, older])| [older, newer]);
            for chunk in chunks.filter(|chunk| chunk.start.place != Place::NONE) {
                self.move_in(chunk);
            }
        }
        (self.luck, self.idle) = (0, 0);
    }

    /// A chunk that there was comes in.
    fn move_in(&mut self, chunk: Chunk<WINDOW>) -> Option<()> {
        let hash = self.put(chunk)?;
        let at = self.met_at(hash);
        *self.met.get_mut(at)? = tag(hash) | self.enough;
        Some(())
    }

    fn make_room(&mut self) {
        self.pairs = vec![Pair([Chunk::NONE; 2]); self.most];
        self.met = vec![0; self.most];
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
            self.make_room();
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
        let room = Self::MAX + (self.before + offset) / Self::BYTES_FOR_ONE;
        let room = self.made < room && self.all < Self::MAX_IN_ALL;
        room && times >= self.enough
    }

    pub fn insert(&mut self, chunk: Chunk<WINDOW>) {
        self.made += 1;
        self.all += 1;
        self.put(chunk);
    }

    /// Puts a chunk into its pair. Gives its hash.
    fn put(&mut self, chunk: Chunk<WINDOW>) -> Option<u64> {
        let hash = Start::hash(&chunk.start.window, chunk.start.place);
        let at = self.pair_at(hash);
        // The newer of the two stays the longer.
        let Pair([first, second]) = self.pairs.get_mut(at)?;
        *second = std::mem::replace(first, chunk);
        Some(hash)
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
        assert_eq!(table.pairs.len(), 1 << 13);
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
