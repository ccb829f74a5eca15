//! What some bytes of a trace make of a place in the code: steps in a row that came before, as one.
//!
//! Loops make the same packets again and again. Where the same bytes come at the same block, with the
//! same last IP and the same calls to return from, the way is the same, and needs no look at packets.

mod recording;
mod table;

use super::code::CodeCache;
use super::raw::Raw;
use super::returns::{COMPARED, Returns, WRITTEN};
use recording::Recording;
use table::Table;

/// A way that was gone before. What is asked of it each time lies together: a pair of them is in two cache lines, or in one.
#[derive(Clone, Copy, Debug)]
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
    /// The number of what it does beside.
    effect: u32,
    /// How many bytes of the window are those of its packets.
    len: u8,
    /// How many calls more than at the beginning were open at most.
    deepest: u8,
}

/// What a chunk does to the last IP and to the calls to return from.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Effect {
    /// The last IP before and after it; `ip_matters`: packets were told against the one before.
    ip_before: u64,
    ip_after: u64,
    ip_matters: bool,
    /// How many calls it returns from, and how many it leaves open; by number, the innermost last.
    returned: u8,
    opened: u8,
    calls: Calls,
}

/// The calls of an effect.
#[derive(Clone, Copy, Debug)]
enum Calls {
    /// Those that it returns from are the last, those that it leaves open the first of these.
    Few([u32; COMPARED], [u32; WRITTEN]),
    /// First those that it returns from, then those that it leaves open, in the list from there on.
    Many(u32),
}

/// The way of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The run of all blocks on it.
    pub run: u32,
    /// The block that is next.
    pub next: u32,
}

/// Chunks found by the next 32 bytes, where there is none by the next 8, and then by the next 4.
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
struct Effects {
    /// The first does nothing.
    all: Vec<Effect>,
    /// Calls that are too many to be with their effect.
    calls: Vec<u32>,
}

/// The chunks that are found by so many bytes.
struct Level<const WINDOW: usize> {
    table: Table<WINDOW>,
    recording: Recording,
}

impl Chunks {
    pub fn new() -> Self {
        Self {
            long: Level {
                table: Table::new(256, 2, 4),
                recording: Recording::default(),
            },
            middle: Level {
                table: Table::new(64, 2, 1),
                recording: Recording::default(),
            },
            short: Level {
                table: Table::new(64, 2, 1),
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
    pub fn take(&mut self, block: u32, raw: &mut Raw<'_>, returns: &mut Returns) -> Option<Way> {
        let Self {
            long,
            middle,
            short,
            effects,
            epoch,
            making,
        } = self;
        let place = Place::new(block, *epoch);
        let (gone, effect) = if let Some(found) = long.find(place, raw, returns, effects, making) {
            if *making {
                middle.recording.abandon();
                short.recording.abandon();
                *making = false;
            }
            found
        } else if let Some(found) = middle.find(place, raw, returns, effects, making) {
            if *making {
                short.recording.abandon();
                long.recording.chunk(found, effects);
            }
            found
        } else {
            let found = short.find(place, raw, returns, effects, making)?;
            if *making {
                long.recording.chunk(found, effects);
                middle.recording.chunk(found, effects);
            }
            found
        };
        raw.skip(gone.len, effect.ip_matters.then_some(effect.ip_after));
        effects.apply(&gone, effect, returns);
        Some(gone.way)
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

    /// It was returned from a call.
    #[inline]
    pub fn returned_from(&mut self, call: u32) {
        if self.making {
            self.long.recording.returned_from(call);
            self.middle.recording.returned_from(call);
            self.short.recording.returned_from(call);
        }
    }

    /// A target was read.
    #[inline]
    pub fn target(&mut self) {
        if self.making {
            self.long.recording.target();
            self.middle.recording.target();
            self.short.recording.target();
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
    ) -> Option<(Gone, &'e Effect)> {
        if self.recording.is_on() || !self.table.is_wanted() {
            return None;
        }
        let window = raw.window::<WINDOW>()?;
        let hash = Start::hash(window, place);
        let found = self.table.find(window, place, hash).and_then(|gone| {
            let effect = effects.all.get(gone.effect as usize)?;
            effects
                .allow(&gone, effect, raw, returns)
                .then_some((gone, effect))
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
    /// No place.
    const NONE: Self = Self(u64::MAX);

    #[inline]
    fn new(block: u32, epoch: u32) -> Self {
        Self(u64::from(block) << 32 | u64::from(epoch))
    }
}

/// Both halves of a product, one over the other.
#[inline]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl Effects {
    fn new() -> Self {
        let nothing = Effect {
            ip_before: 0,
            ip_after: 0,
            ip_matters: false,
            returned: 0,
            opened: 0,
            calls: Calls::Few([0; COMPARED], [0; WRITTEN]),
        };
        Self {
            all: vec![nothing],
            calls: Vec::new(),
        }
    }

    /// The last IP and the calls are those that the chunk had before.
    #[inline]
    fn allow(&self, gone: &Gone, effect: &Effect, raw: &Raw<'_>, returns: &Returns) -> bool {
        let calls = match &effect.calls {
            Calls::Few(returned, _) => returns.end_with_few(returned, effect.returned, gone.deepest),
            Calls::Many(_) => returns.end_with(self.returned(effect), gone.deepest),
        };
        calls && (!effect.ip_matters || effect.ip_before == raw.ip())
    }

    /// The calls that it returns from return, and those that it leaves open are made.
    #[inline]
    fn apply(&self, gone: &Gone, effect: &Effect, returns: &mut Returns) {
        match &effect.calls {
            Calls::Few(_, opened) => {
                returns.replace_few(gone.deepest, effect.returned, opened, effect.opened);
            }
            Calls::Many(_) => returns.replace(gone.deepest, effect.returned, self.opened(effect)),
        }
    }

    /// The calls that it returns from, the innermost last.
    fn returned<'a>(&'a self, effect: &'a Effect) -> &'a [u32] {
        let count = usize::from(effect.returned);
        let calls = match &effect.calls {
            Calls::Few(returned, _) => returned.get(COMPARED - count..),
            Calls::Many(first) => self.list(*first as usize, count),
        };
        calls.unwrap_or(&[])
    }

    /// The calls that it leaves open, the innermost last.
    fn opened<'a>(&'a self, effect: &'a Effect) -> &'a [u32] {
        let count = usize::from(effect.opened);
        let calls = match &effect.calls {
            Calls::Few(_, opened) => opened.get(..count),
            Calls::Many(first) => self.list(*first as usize + usize::from(effect.returned), count),
        };
        calls.unwrap_or(&[])
    }

    fn list(&self, first: usize, count: usize) -> Option<&[u32]> {
        self.calls.get(first..first + count)
    }

    /// The number of a new effect, with the calls that it returns from and those that it leaves open, the innermost last;
    /// `None`: there are too many.
    fn push(&mut self, ip: Option<(u64, u64)>, returned: &[u32], opened: &[u32]) -> Option<u32> {
        if ip.is_none() && returned.is_empty() && opened.is_empty() {
            return Some(0);
        }
        let few = returned.len() <= COMPARED && opened.len() <= WRITTEN;
        let calls = if few {
            let (mut before, mut after) = ([0; COMPARED], [0; WRITTEN]);
            before
                .iter_mut()
                .rev()
                .zip(returned.iter().rev())
                .for_each(|(to, &from)| *to = from);
            after.iter_mut().zip(opened).for_each(|(to, &from)| *to = from);
            Calls::Few(before, after)
        } else {
            Calls::Many(u32::try_from(self.calls.len()).ok()?)
        };
        let (ip_before, ip_after) = ip.unwrap_or_default();
        let effect = Effect {
            ip_before,
            ip_after,
            ip_matters: ip.is_some(),
            returned: u8::try_from(returned.len()).ok()?,
            opened: u8::try_from(opened.len()).ok()?,
            calls,
        };
        let number = u32::try_from(self.all.len()).ok()?;
        if !few {
            self.calls.extend_from_slice(returned);
            self.calls.extend_from_slice(opened);
        }
        self.all.push(effect);
        Some(number)
    }
}
