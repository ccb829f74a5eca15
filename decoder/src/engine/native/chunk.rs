//! What some bytes of a trace make of a place in the code: steps in a row that came before, as one.
//!
//! Loops make the same packets again and again. Where the same bytes come at the same block, with the
//! same last IP and the same calls to return from, the way is the same, and needs no look at packets.

mod recording;
mod table;

use super::code::CodeCache;
use super::did::Did;
use super::raw::{LowBits, Raw};
use super::returns::{ANY, COMPARED, Returns, WRITTEN};
use crate::hash::folded;
use recording::Recording;
use rustc_hash::FxHashMap;
use table::Table;

/// A way that was gone before. What is asked of it each time lies together, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Chunk<const WINDOW: usize> {
    start: Start<WINDOW>,
    gone: Gone,
}

/// Where a chunk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start<const WINDOW: usize> {
    /// The bytes that are next.
    window: [u8; WINDOW],
    place: Place,
}

/// A block, and how often the code had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u64);

/// What a chunk makes of its beginning.
#[derive(Clone, Copy, Debug)]
struct Gone {
    way: Way,
    /// What it does beside.
    did: Did,
    /// How many bytes of the window are those of its packets.
    len: u8,
}

/// What a chunk does to the last IP and to the calls to return from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
struct Effect {
    /// The last IP before it, above those low bits of it that the first target replaces (`told`), and the last IP after it.
    ip_above: u64,
    ip_after: u64,
    /// The calls that it returns from are the last of the one, those that it leaves open the first of the other, by number and the
    /// innermost last; where they are `many`, they are in the list from number `before[0]` on, those that it returns from first.
    before: [u32; COMPARED],
    after: [u32; WRITTEN],
    returned: u8,
    opened: u8,
    /// Of those that it returns from, so many innermost are asked for: before these, any are as good, and none.
    asked: u8,
    told: LowBits,
    ip_changes: bool,
    many: bool,
}

/// What targets make of the last IP.
#[derive(Clone, Copy, Debug)]
struct Ip {
    /// The one before, above the low bits that the first of them replaces.
    above: u64,
    told: LowBits,
    after: u64,
}

const _: () = assert!(size_of::<Effect>() == 64);

/// The way of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The run of all blocks on it.
    pub run: u32,
    /// The block that is next.
    pub next: u32,
}

/// A chunk that begins here, and may be gone.
struct Found<'e> {
    gone: Gone,
    /// `None`: it does nothing.
    effect: Option<&'e Effect>,
    /// Of where it begins.
    hash: u64,
}

/// A chunk that was found and gone.
pub(super) struct Taken {
    pub way: Way,
    pub did: Did,
    /// The hash of where it begins, of those found by the most bytes.
    pub hash: Option<u64>,
}

/// Chunks found by the next 32 bytes, where there is none by the next 8, and then by the next 4.
#[derive(Clone)]
pub(super) struct Chunks {
    long: Level<32>,
    middle: Level<8>,
    short: Level<4>,
    effects: Effects,
    /// How often the code has changed.
    epoch: u32,
    /// A chunk is in the making.
    making: bool,
}

/// The effects of chunks, by number.
#[derive(Clone)]
struct Effects {
    /// The first does nothing.
    all: Vec<Effect>,
    /// Their numbers, but of those with many calls: many chunks do the same, and what they do is looked at each time.
    known: FxHashMap<Effect, u32>,
    /// Calls that are too many to be with their effect.
    calls: Vec<u32>,
}

/// The chunks that are found by so many bytes.
#[derive(Clone)]
struct Level<const WINDOW: usize> {
    table: Table<WINDOW>,
    recording: Recording,
}

impl Chunks {
    pub fn new() -> Self {
        Self {
            long: Level {
                table: Table::new(1 << 10, 4, 4),
                recording: Recording::default(),
            },
            middle: Level {
                table: Table::new(1 << 8, 7, 1),
                recording: Recording::default(),
            },
            short: Level {
                table: Table::new(1 << 8, 7, 1),
                recording: Recording::default(),
            },
            effects: Effects::new(),
            epoch: 0,
            making: false,
        }
    }

    /// A trace of so many bytes begins.
    pub fn begin(&mut self, bytes: usize) {
        self.long.table.begin(bytes);
        self.middle.table.begin(bytes);
        self.short.table.begin(bytes);
        self.abandon();
    }

    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.long.table.begin_anew();
        self.middle.table.begin_anew();
        self.short.table.begin_anew();
        self.abandon();
    }

    /// Goes the way that was gone before from this block on with these packets ahead, if there is one: its
    /// packets are read, its calls and returns happen. Where there is none, what is gone now may become one.
    #[inline]
    pub fn take(&mut self, block: u32, raw: &mut Raw<'_>, returns: &mut Returns) -> Option<Taken> {
        let Self {
            long,
            middle,
            short,
            effects,
            epoch,
            making,
        } = self;
        let place = Place::new(block, *epoch);
        let mut hash = None;
        let found = if let Some(found) = long.find(place, raw, returns, effects, making) {
            if *making {
                middle.recording.abandon();
                short.recording.abandon();
                *making = false;
            }
            hash = Some(found.hash);
            found
        } else if let Some(found) = middle.find(place, raw, returns, effects, making) {
            if *making {
                short.recording.abandon();
                long.recording.chunk(&found.gone, effects);
            }
            found
        } else {
            let found = short.find(place, raw, returns, effects, making)?;
            if *making {
                long.recording.chunk(&found.gone, effects);
                middle.recording.chunk(&found.gone, effects);
            }
            found
        };
        let Gone { way, did, len } = found.gone;
        match found.effect {
            None => raw.skip(len.into(), None),
            Some(effect) => {
                raw.skip(len.into(), effect.ip_after());
                effects.apply(did.deepest(), effect, returns);
            }
        }
        Some(Taken { way, did, hash })
    }

    /// Does what a chunk does that is `len` bytes long, as [`Chunks::take`]. Says whether it did: the last IP and the calls may
    /// be others.
    #[inline(always)]
    pub fn take_again(&self, did: Did, len: usize, raw: &mut Raw<'_>, returns: &mut Returns) -> bool {
        let Some(effect) = self.effects.of(did) else {
            return false;
        };
        let deepest = did.deepest();
        let allowed = self.effects.allow(deepest, effect, raw, returns);
        if allowed {
            raw.skip(len, effect.ip_after());
            self.effects.apply(deepest, effect, returns);
        }
        allowed
    }

    /// One is in the making.
    #[inline]
    pub fn is_making(&self) -> bool {
        self.making
    }

    /// What is gone is not to become a chunk.
    #[inline]
    pub fn abandon(&mut self) {
        if self.making {
            self.long.recording.abandon();
            self.middle.recording.abandon();
            self.short.recording.abandon();
            self.making = false;
        }
    }

    /// A step was gone, which left these calls open; `deepest` of them at most were open at once.
    #[inline]
    pub fn step(&mut self, run: u32, opened: &[u32], deepest: u8) {
        if self.making {
            self.long.recording.step(run, opened, deepest);
            self.middle.recording.step(run, opened, deepest);
            self.short.recording.step(run, opened, deepest);
        }
    }

    /// It was returned from a call; from [`ANY`] by a packet that tells where to.
    #[inline]
    pub fn returned_from(&mut self, call: u32) {
        if self.making {
            self.long.recording.returned_from(call);
            self.middle.recording.returned_from(call);
            self.short.recording.returned_from(call);
        }
    }

    /// A target was read, of which the packet had these bits.
    #[inline]
    pub fn target(&mut self, told: LowBits) {
        if self.making {
            self.long.recording.target(told);
            self.middle.recording.target(told);
            self.short.recording.target(told);
        }
    }

    /// All outcomes of the packets read are used, and `next` is the block that is next. Where the next
    /// packet would go beyond the bytes that a chunk is found by, it is made.
    #[inline]
    pub fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache) {
        if self.making {
            self.complete(raw, next, code);
        }
    }

    fn complete(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache) {
        let long = self.long.boundary(raw, next, code, &mut self.effects);
        let middle = self.middle.boundary(raw, next, code, &mut self.effects);
        let short = self.short.boundary(raw, next, code, &mut self.effects);
        self.making = long || middle || short;
    }
}

impl<const WINDOW: usize> Level<WINDOW> {
    /// Bytes of a shorter chunk, which may be next.
    const NEXT: usize = match WINDOW {
        0..=4 => 0,
        5..=8 => 4,
        _ => 8,
    };

    /// What the chunk that begins here does, when the last IP and the calls are those of before. Where there is none, one may
    /// be in the making then.
    #[inline]
    fn find<'e>(
        &mut self,
        place: Place,
        raw: &Raw<'_>,
        returns: &Returns,
        effects: &'e Effects,
        making: &mut bool,
    ) -> Option<Found<'e>> {
        if self.recording.is_on() || !self.table.is_wanted() {
            return None;
        }
        let window = raw.window::<WINDOW>()?;
        let hash = Start::hash(window, place);
        let found = self.table.find(window, place, hash).and_then(|gone| {
            // So it is for most chunks of loops without calls.
            if gone.did == Did::NOTHING {
                return Some(Found {
                    gone,
                    effect: None,
                    hash,
                });
            }
            let effect = effects.of(gone.did)?;
            let found = Found {
                gone,
                effect: Some(effect),
                hash,
            };
            effects
                .allow(gone.did.deepest(), effect, raw, returns)
                .then_some(found)
        });
        self.table.count(found.is_some());
        // A packet of another kind is not to be passed over.
        if found.is_none() && raw.next_len() <= WINDOW && self.table.meet(hash, raw.offset) {
            self.recording.begin(place, raw);
            *making = true;
        }
        found
    }

    /// Says whether one is in the making still.
    fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache, effects: &mut Effects) -> bool {
        let len = self.recording.len(raw);
        if !self.recording.is_on() || len + raw.next_len().max(Self::NEXT) <= WINDOW {
            return self.recording.is_on();
        }
        let chunk = self.recording.end(raw, next, code, effects);
        // Behind padding, a packet may have ended beyond.
        if let Some(chunk) = chunk.filter(|_| len <= WINDOW) {
            self.table.insert(chunk);
        }
        false
    }
}

impl<const WINDOW: usize> Start<WINDOW> {
    /// A number that is seldom the same for others. It is waited for, so words are multiplied apart: where the packets go on is
    /// not known before the chunk is found.
    #[inline]
    fn hash(window: &[u8; WINDOW], place: Place) -> u64 {
        const SECRETS: [u64; 5] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
            0xd6e8_feb8_6659_fd93,
            0xa24b_aed4_963e_e407,
        ];
        // Windows are of whole words, or of half of one.
        let (words, half) = window.as_chunks();
        let half = half
            .first_chunk()
            .map(|&half| u64::from(u32::from_le_bytes(half)));
        let words = words.iter().map(|&word| u64::from_le_bytes(word)).chain(half);
        let products = words.zip(SECRETS).map(|(word, secret)| folded(word, secret));
        products.fold(folded(place.0, SECRETS[4]), u64::wrapping_add)
    }
}

impl Place {
    #[inline]
    fn new(block: u32, epoch: u32) -> Self {
        Self(u64::from(block) << 32 | u64::from(epoch))
    }
}

impl Ip {
    /// There are none.
    const NONE: Self = Self {
        above: 0,
        told: LowBits::ALL,
        after: 0,
    };
}

impl Effect {
    /// The last IP before is as it was, as far as it counts.
    #[inline]
    fn allows_ip(&self, ip: u64) -> bool {
        self.told.above(ip) == self.ip_above
    }

    /// The last IP behind it, where it is another.
    #[inline]
    fn ip_after(&self) -> Option<u64> {
        self.ip_changes.then_some(self.ip_after)
    }
}

impl Effects {
    fn new() -> Self {
        let nothing = Effect {
            ip_above: 0,
            ip_after: 0,
            told: LowBits::ALL,
            ip_changes: false,
            before: [0; COMPARED],
            after: [0; WRITTEN],
            returned: 0,
            opened: 0,
            asked: 0,
            many: false,
        };
        Self {
            all: vec![nothing],
            known: FxHashMap::default(),
            calls: Vec::new(),
        }
    }

    /// That of a chunk.
    #[inline]
    fn of(&self, did: Did) -> Option<&Effect> {
        self.all.get(did.effect() as usize)
    }

    /// The last IP and the calls are those that the chunk had before.
    #[inline(always)]
    fn allow(&self, deepest: u8, effect: &Effect, raw: &Raw<'_>, returns: &Returns) -> bool {
        if effect.many {
            return self.allow_many(deepest, effect, raw, returns);
        }
        let ip = effect.allows_ip(raw.ip());
        ip && (effect.asked == 0 || returns.end_with_few(&effect.before, effect.asked, deepest))
    }

    #[cold]
    fn allow_many(&self, deepest: u8, effect: &Effect, raw: &Raw<'_>, returns: &Returns) -> bool {
        let returned = self.returned(effect);
        let asked = returned.get(returned.len() - usize::from(effect.asked)..);
        effect.allows_ip(raw.ip()) && returns.end_with(asked.unwrap_or(&[]), deepest)
    }

    /// The calls that it returns from return, and those that it leaves open are made.
    #[inline(always)]
    fn apply(&self, deepest: u8, effect: &Effect, returns: &mut Returns) {
        match effect.many {
            false => returns.replace_few(deepest, effect.returned, &effect.after, effect.opened),
            true => self.apply_many(deepest, effect, returns),
        }
    }

    #[cold]
    fn apply_many(&self, deepest: u8, effect: &Effect, returns: &mut Returns) {
        returns.replace(deepest, effect.returned, self.opened(effect));
    }

    /// The calls that it returns from, the innermost last.
    fn returned<'a>(&'a self, effect: &'a Effect) -> &'a [u32] {
        let count = usize::from(effect.returned);
        let calls = match effect.many {
            false => effect.before.get(COMPARED - count..),
            true => self.list(effect.before[0] as usize, count),
        };
        calls.unwrap_or(&[])
    }

    /// The calls that it leaves open, the innermost last.
    fn opened<'a>(&'a self, effect: &'a Effect) -> &'a [u32] {
        let count = usize::from(effect.opened);
        let calls = match effect.many {
            false => effect.after.get(..count),
            true => self.list(effect.before[0] as usize + usize::from(effect.returned), count),
        };
        calls.unwrap_or(&[])
    }

    fn list(&self, first: usize, count: usize) -> Option<&[u32]> {
        self.calls.get(first..first + count)
    }

    /// The number of a new effect, with the calls that it returns from and those that it leaves open, the innermost last;
    /// `None`: there are too many.
    fn push(&mut self, ip: Option<Ip>, returned: &[u32], opened: &[u32]) -> Option<u32> {
        if ip.is_none() && returned.is_empty() && opened.is_empty() {
            return Some(0);
        }
        let many = returned.len() > COMPARED || opened.len() > WRITTEN;
        let (mut before, mut after) = ([0; COMPARED], [0; WRITTEN]);
        if many {
            before[0] = u32::try_from(self.calls.len()).ok()?;
        } else {
            let last = COMPARED - returned.len();
            before.get_mut(last..)?.copy_from_slice(returned);
            after.get_mut(..opened.len())?.copy_from_slice(opened);
        }
        let any = returned.iter().take_while(|&&call| call == ANY).count();
        let of_ip = ip.unwrap_or(Ip::NONE);
        let effect = Effect {
            ip_above: of_ip.above,
            ip_after: of_ip.after,
            before,
            after,
            returned: u8::try_from(returned.len()).ok()?,
            opened: u8::try_from(opened.len()).ok()?,
            asked: u8::try_from(returned.len() - any).ok()?,
            told: of_ip.told,
            ip_changes: ip.is_some(),
            many,
        };
        if let Some(&known) = self.known.get(&effect) {
            return Some(known);
        }
        let number = u32::try_from(self.all.len()).ok()?;
        if many {
            self.calls.extend_from_slice(returned);
            self.calls.extend_from_slice(opened);
        } else {
            self.known.insert(effect, number);
        }
        self.all.push(effect);
        Some(number)
    }
}
