//! Paths that come one after the other again and again, gone over as one.
//!
//! Loops execute not only the same paths but the same rows of them. What a row of a few does to the open calls is found out
//! once, as it is for a path, and done at once when the row comes again: its calls are one batch instead of several, and those that
//! begin and end in it are known beforehand.

use super::script::Line;
use crate::hash::folded;
use crate::luck::Luck;

/// So many paths are a row.
pub(super) const LEN: usize = 4;

/// A row with more transfers becomes no phrase: bounds memory.
pub(super) const MOST_TURNS: usize = 1 << 8;

/// A row of paths.
pub(super) type Row = [u32; LEN];

/// A row that came often enough.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Phrase {
    row: Row,
    /// See [`Line`].
    next: u32,
    count: u32,
    scene: u32,
}

const _: () = assert!(size_of::<Phrase>() == 32);

/// What is known of the row that is next.
pub(super) enum Found {
    /// It is a phrase.
    Phrase(Line),
    /// It is none, or was not looked at.
    None,
    /// The same, and for a while it is not worth it to look at rows.
    Rest,
    /// It is none, and came often enough to become one.
    Often,
}

/// The phrases there are.
pub(super) struct Phrases {
    all: Vec<Phrase>,
    /// How many rows came often enough, phrases or not.
    tried: usize,
    /// What is known of rows, by their hashes; none before so many rows were looked at that some may be worth it.
    buckets: Vec<Bucket>,
    /// How many rows are looked at until then.
    few: u32,
    /// A row becomes a phrase when it comes for this time.
    enough: u32,
    /// The last row was no phrase, so that the next begins with a path of those that begin some: then the same rows come again.
    lost: bool,
    luck: Luck,
}

/// Two rows of which the hashes are alike.
#[derive(Clone, Copy, Default)]
struct Bucket([Slot; 2]);

/// What is known of a row: in the upper bits some of its hash, in the lower the number of its phrase, from [`Slot::MADE`] on, or
/// how often it was met; 0: nothing.
#[derive(Clone, Copy, Default)]
struct Slot(u32);

impl Slot {
    /// The bits that are not of the hash.
    const KNOWN: u32 = (1 << 16) - 1;
    /// The most often that is counted, and the first number of a phrase.
    const MADE: u32 = 64;

    #[inline]
    fn new(hash: u64, known: u32) -> Self {
        Self((hash >> 32) as u32 & !Self::KNOWN | known)
    }

    #[inline]
    fn known(self) -> u32 {
        self.0 & Self::KNOWN
    }

    #[inline]
    fn is_of(self, hash: u64) -> bool {
        Self::new(hash, self.known()).0 == self.0
    }

    fn is_made(self) -> bool {
        self.known() >= Self::MADE
    }
}

impl Default for Phrases {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            tried: 0,
            buckets: Vec::new(),
            few: Self::FEW,
            enough: Self::ENOUGH,
            lost: false,
            luck: Luck::new(Self::WORTH),
        }
    }
}

impl Phrases {
    /// A power of two.
    const BUCKETS: usize = 1 << 14;
    /// The most that are tried: bounds memory, and slots have no higher numbers.
    const MOST: usize = 1 << 15;
    /// In shorter histories none is worth it.
    const FEW: u32 = 1 << 12;
    /// What each costs in memory that does not fit into the processor's caches is worth it for the few that come all the time.
    const ENOUGH: u32 = 24;
    /// A phrase saves about as much as so many rows cost that are looked for in vain.
    const WORTH: i32 = 1;

    /// What the row that is next is.
    #[inline]
    pub fn find(&mut self, row: &Row) -> Found {
        if self.lost && !begins(row) {
            return Found::None;
        }
        let hash = hash(row);
        if let Some(phrase) = self.known(row, hash) {
            let Phrase {
                next, count, scene, ..
            } = *phrase;
            self.lost = false;
            self.luck.found();
            // Its first place is not asked for.
            return Found::Phrase(Line {
                next,
                count,
                scene,
                ..Line::UNKNOWN
            });
        }
        self.lost = true;
        self.luck.missed();
        match self.meet(hash) {
            true => Found::Often,
            false if self.luck.rest() > 0 => Found::Rest,
            false => Found::None,
        }
    }

    /// For how many paths it is not worth it to look at rows.
    pub fn rest(&self) -> usize {
        self.luck.rest()
    }

    /// So many of them were gone over.
    pub fn rested(&mut self, paths: usize) {
        self.luck.rested(paths);
    }

    #[inline]
    fn known(&self, row: &Row, hash: u64) -> Option<&Phrase> {
        let &Bucket([first, second]) = self.buckets.get(bucket_of(hash))?;
        let slot = if first.is_of(hash) { first } else { second };
        let phrase = self.all.get(slot.known().checked_sub(Slot::MADE)? as usize)?;
        (phrase.row == *row).then_some(phrase)
    }

    /// No phrase was found of this hash. Says whether one is to be made.
    #[inline(never)]
    fn meet(&mut self, hash: u64) -> bool {
        if self.few > 0 {
            self.few -= 1;
            return false;
        }
        if self.buckets.is_empty() {
            self.buckets = vec![Bucket::default(); Self::BUCKETS];
        }
        let slots = self.buckets.get_mut(bucket_of(hash));
        let Some(slot) = slots.and_then(|bucket| bucket.met(hash)) else {
            return false;
        };
        let times = match slot.is_of(hash) {
            true => (slot.known() + 1).min(Slot::MADE - 1),
            false => 1,
        };
        *slot = Slot::new(hash, times);
        let often = times == self.enough && self.tried < Self::MOST;
        self.tried += usize::from(often);
        often
    }

    /// The phrase that was found does not fit what is open.
    pub fn fails(&mut self) {
        self.lost = true;
    }

    /// A row that came often enough is a phrase from now on, with what it does as if it were one path.
    pub fn insert(&mut self, row: Row, line: Line) {
        let hash = hash(&row);
        let bucket = self.buckets.get_mut(bucket_of(hash));
        let Some(slot) = bucket.and_then(|bucket| bucket.met(hash)) else {
            return;
        };
        *slot = Slot::new(hash, self.all.len() as u32 + Slot::MADE);
        let Line {
            next, count, scene, ..
        } = line;
        self.all.push(Phrase {
            row,
            next,
            count,
            scene,
        });
    }

    /// Makes phrases of what comes for the second time, from the first row on.
    #[cfg(test)]
    pub fn make_at_once(&mut self) {
        (self.few, self.enough) = (0, 2);
    }
}

impl Bucket {
    /// The slot of a row that is no phrase, or one that it may have, by chance; `None`: all are of phrases.
    fn met(&mut self, hash: u64) -> Option<&mut Slot> {
        let Self(slots) = self;
        let first = (hash >> 20) as usize % 2;
        let own = |slot: &Slot| slot.is_of(hash) && !slot.is_made();
        let free = || [first, 1 - first].into_iter().find(|&at| !slots[at].is_made());
        let at = slots.iter().position(own).or_else(free)?;
        slots.get_mut(at)
    }
}

/// Where nothing was found, rows are looked at that begin with such a path: one of two.
#[inline]
fn begins(row: &Row) -> bool {
    row[0].wrapping_mul(0x9e37_79b1) >> 31 == 0
}

#[inline]
fn bucket_of(hash: u64) -> usize {
    hash as usize % Phrases::BUCKETS
}

/// A number that is seldom the same for others.
#[inline]
fn hash(row: &Row) -> u64 {
    let [a, b, c, d] = row.map(u64::from);
    folded(a << 32 | b, 0x9e37_79b9_7f4a_7c15).wrapping_add(folded(c << 32 | d, 0xbf58_476d_1ce4_e5b9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Line = Line {
        first: 0,
        next: 5,
        count: 6,
        scene: 7,
    };

    /// Looks for a row, and makes a phrase of it, if it came often enough.
    fn come(phrases: &mut Phrases, row: Row) -> bool {
        // Also behind a row that was none.
        phrases.lost = false;
        match phrases.find(&row) {
            Found::Phrase(line) => {
                assert_eq!((line.next, line.count, line.scene), (5, 6, 7));
                true
            }
            Found::None | Found::Rest => false,
            Found::Often => {
                phrases.insert(row, LINE);
                false
            }
        }
    }

    #[test]
    fn what_comes_often_becomes_a_phrase_and_nothing_else() {
        let mut phrases = Phrases::default();
        let came: Vec<bool> = (0..Phrases::FEW + Phrases::ENOUGH + 1)
            .map(|_| come(&mut phrases, [1, 2, 3, 4]))
            .collect();
        assert_eq!(came.iter().filter(|&&came| came).count(), 1);
        assert_eq!(came.last(), Some(&true));
        assert!(!come(&mut phrases, [1, 2, 3, 5]));
        assert!(come(&mut phrases, [1, 2, 3, 4]));
    }

    #[test]
    fn no_more_are_made_than_there_are_numbers_for() {
        let mut phrases = Phrases::default();
        phrases.make_at_once();
        for path in 0..3 * Phrases::MOST as u32 {
            let row = [path, 1, 2, 3];
            (0..3).for_each(|_| {
                come(&mut phrases, row);
            });
        }
        assert!(phrases.all.len() > Phrases::MOST / 4 && phrases.all.len() <= Phrases::MOST);
    }

    #[test]
    fn behind_what_is_none_rows_begin_with_some_paths_only() {
        let mut phrases = Phrases::default();
        phrases.make_at_once();
        let [looked, passed] = [true, false].map(|begins| {
            let row = (0..)
                .map(|path| [path, 1, 2, 3])
                .find(|row| super::begins(row) == begins);
            row.unwrap()
        });
        for row in [looked, passed] {
            (0..3).for_each(|_| {
                come(&mut phrases, row);
            });
        }
        phrases.fails();
        assert!(matches!(phrases.find(&passed), Found::None));
        assert!(matches!(phrases.find(&looked), Found::Phrase(_)));
        assert!(matches!(phrases.find(&passed), Found::Phrase(_)));
    }
}
