//! What some bytes of a trace make of a place in the code: steps in a row that came before, as one.
//!
//! Loops make the same packets again and again. Where the same bytes come at the same block, with the
//! same last IP and the same calls to return from, the way is the same, and needs no look at packets.

mod recording;
mod table;

use super::code::CodeCache;
use super::raw::Raw;
use super::returns::{Call, Returns};
use recording::Recording;
use table::{Slot, Table};

/// A way that was gone before. What is asked of it each time lies together: a pair of them is in two cache lines, or in one.
#[derive(Clone, Copy, Debug)]
struct Chunk<const WINDOW: usize> {
    start: Start<WINDOW>,
    way: Way,
    /// The number of what it does beside; [`Chunk::NO_EFFECT`].
    effect: u32,
    /// How many bytes of the window are those of its packets.
    len: u8,
    /// How many calls more than at the beginning were open at most.
    deepest: u8,
}

/// Where a chunk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start<const WINDOW: usize> {
    /// The bytes that are next.
    window: [u8; WINDOW],
    /// The block that is next.
    block: u32,
    /// How often the code had changed.
    epoch: u32,
}

/// What a chunk does to the last IP and to the calls to return from.
#[derive(Clone, Copy, Debug)]
struct Effect {
    /// The last IP before and after it; `ip_matters`: packets were told against the one before.
    ip_before: u64,
    ip_after: u64,
    ip_matters: bool,
    /// The calls that it returns from, the innermost first, and those that it leaves open, innermost last.
    first_call: u32,
    returned: u8,
    opened: u8,
}

/// What a chunk makes of its beginning.
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
}

/// The effects of chunks, by number.
#[derive(Default)]
struct Effects {
    all: Vec<Effect>,
    /// Calls that chunks return from and leave open.
    calls: Vec<Call>,
}

/// The chunks that are found by so many bytes.
struct Level<const WINDOW: usize> {
    table: Table<WINDOW>,
    recording: Recording,
}

impl Chunks {
    /// For a trace of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            long: Level {
                table: Table::new(bytes / 256, 2, 4),
                recording: Recording::default(),
            },
            middle: Level {
                table: Table::new(bytes / 64, 2, 1),
                recording: Recording::default(),
            },
            short: Level {
                table: Table::new(bytes / 64, 2, 1),
                recording: Recording::default(),
            },
            effects: Effects::default(),
            epoch: 0,
        }
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
        } = self;
        if let Some(slot) = long.find(block, *epoch, raw, returns, effects) {
            middle.recording.abandon();
            short.recording.abandon();
            let chunk = long.table.get(slot)?;
            chunk.apply(raw, returns, effects);
            return Some(chunk.way);
        }
        if let Some(slot) = middle.find(block, *epoch, raw, returns, effects) {
            short.recording.abandon();
            let chunk = middle.table.get(slot)?;
            long.recording.chunk(chunk, effects);
            chunk.apply(raw, returns, effects);
            return Some(chunk.way);
        }
        let slot = short.find(block, *epoch, raw, returns, effects)?;
        let chunk = short.table.get(slot)?;
        long.recording.chunk(chunk, effects);
        middle.recording.chunk(chunk, effects);
        chunk.apply(raw, returns, effects);
        Some(chunk.way)
    }

    /// What is gone is not to become a chunk.
    pub fn abandon(&mut self) {
        self.long.recording.abandon();
        self.middle.recording.abandon();
        self.short.recording.abandon();
    }

    /// A step was gone, which left these calls open; `deepest` of them at most were open at once.
    #[inline]
    pub fn step(&mut self, run: u32, opened: impl Iterator<Item = Call> + Clone, deepest: u8) {
        self.long.recording.step(run, opened.clone(), deepest);
        self.middle.recording.step(run, opened.clone(), deepest);
        self.short.recording.step(run, opened, deepest);
    }

    /// It was returned from a call.
    #[inline]
    pub fn returned_from(&mut self, call: Call) {
        self.long.recording.returned_from(call);
        self.middle.recording.returned_from(call);
        self.short.recording.returned_from(call);
    }

    /// A target was read.
    #[inline]
    pub fn target(&mut self) {
        self.long.recording.target();
        self.middle.recording.target();
        self.short.recording.target();
    }

    /// All outcomes of the packets read are used, and `next` is the block that is next. Where the next
    /// packet would go beyond the bytes that a chunk is found by, it is made.
    #[inline]
    pub fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache) {
        self.long.boundary(raw, next, code, &mut self.effects);
        self.middle.boundary(raw, next, code, &mut self.effects);
        self.short.boundary(raw, next, code, &mut self.effects);
    }
}

impl<const WINDOW: usize> Level<WINDOW> {
    /// Bytes of a shorter chunk, which may be next.
    const NEXT: usize = match WINDOW {
        0..=4 => 0,
        5..=8 => 4,
        _ => 8,
    };

    /// The slot of the chunk that begins here, when the last IP and the calls are those of before.
    #[inline]
    fn find(
        &mut self,
        block: u32,
        epoch: u32,
        raw: &Raw<'_>,
        returns: &Returns,
        effects: &Effects,
    ) -> Option<Slot> {
        if self.recording.is_on() || !self.table.is_wanted() {
            return None;
        }
        let start = Start {
            window: *raw.window::<WINDOW>()?,
            block,
            epoch,
        };
        let hash = start.hash();
        let fits = |chunk: &Chunk<WINDOW>| {
            effects
                .of(chunk)
                .is_none_or(|effect| effect.fits(chunk.deepest, raw, returns, effects))
        };
        let found = self.table.find(&start, hash, fits);
        // A packet of another kind is not to be passed over.
        if found.is_none() && raw.next_len() <= WINDOW && self.table.meet(hash, raw.offset) {
            self.recording.begin(block, epoch, raw);
        }
        found
    }

    #[inline]
    fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache, effects: &mut Effects) {
        let len = self.recording.len(raw);
        if !self.recording.is_on() || len + raw.next_len().max(Self::NEXT) <= WINDOW {
            return;
        }
        let chunk = self.recording.end(raw, next, code, effects);
        // Behind padding, a packet may have ended beyond.
        if let Some(chunk) = chunk.filter(|_| len <= WINDOW) {
            self.table.insert(chunk);
        }
    }
}

impl<const WINDOW: usize> Start<WINDOW> {
    /// A number that is seldom the same for others.
    #[inline]
    fn hash(&self) -> u64 {
        const SECRETS: [u64; 4] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
            0xd6e8_feb8_6659_fd93,
        ];
        let place = u64::from(self.block) << 32 | u64::from(self.epoch);
        // Windows are of whole words, or of half of one.
        let (words, half) = self.window.as_chunks();
        let half = half
            .first_chunk()
            .map(|&half| u64::from(u32::from_le_bytes(half)));
        let words = words.iter().map(|&word| u64::from_le_bytes(word)).chain(half);
        // Each word is multiplied apart: none waits for another.
        let products = words
            .zip(SECRETS)
            .map(|(word, secret)| folded(word ^ secret, place.wrapping_add(secret) | 1));
        let mixed = products.fold(0u64, |mixed, product| mixed.rotate_left(17) ^ product);
        folded(mixed, SECRETS[0])
    }
}

/// Both halves of a product, one over the other.
#[inline]
fn folded(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

impl<const WINDOW: usize> Chunk<WINDOW> {
    /// It needs no last IP, and does nothing to calls.
    const NO_EFFECT: u32 = u32::MAX;

    #[inline]
    fn apply(&self, raw: &mut Raw<'_>, returns: &mut Returns, effects: &Effects) {
        returns.make_room(self.deepest);
        let Some(effect) = effects.of(self) else {
            return raw.skip(self.len, None);
        };
        raw.skip(self.len, effect.ip_matters.then_some(effect.ip_after));
        returns.replace(usize::from(effect.returned), effects.opened(effect));
    }
}

impl Effect {
    /// The last IP and the calls are those of before.
    #[inline]
    fn fits(&self, deepest: u8, raw: &Raw<'_>, returns: &Returns, effects: &Effects) -> bool {
        (!self.ip_matters || self.ip_before == raw.ip()) && returns.fits(effects.returned(self), deepest)
    }

    /// There is nothing to it.
    fn is_none(&self) -> bool {
        !self.ip_matters && self.returned == 0 && self.opened == 0
    }
}

impl Effects {
    #[inline]
    fn of<const WINDOW: usize>(&self, chunk: &Chunk<WINDOW>) -> Option<&Effect> {
        self.all.get(chunk.effect as usize)
    }

    #[inline]
    fn returned(&self, effect: &Effect) -> &[Call] {
        let first = effect.first_call as usize;
        let calls = self.calls.get(first..first + usize::from(effect.returned));
        calls.unwrap_or(&[])
    }

    #[inline]
    fn opened(&self, effect: &Effect) -> &[Call] {
        let first = effect.first_call as usize + usize::from(effect.returned);
        let calls = self.calls.get(first..first + usize::from(effect.opened));
        calls.unwrap_or(&[])
    }
}
