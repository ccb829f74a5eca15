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
use table::Table;

/// A way that was gone before.
#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Chunk {
    start: Start,
    way: Way,
    /// The last IP before and after it; `ip_matters`: packets were told against the one before.
    ip_before: u64,
    ip_after: u64,
    ip_matters: bool,
    /// Where its bytes are in the trace, and how many are those of its packets.
    offset: usize,
    len: u8,
    /// How many calls more than at the beginning were open at most.
    deepest: u8,
    /// The calls that it returns from, the innermost first, and those that it leaves open, innermost last.
    first_call: u32,
    returned: u8,
    opened: u8,
}

/// Where a chunk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Start {
    /// The block that is next.
    block: u32,
    /// How often the code had changed.
    epoch: u32,
    /// The bytes that are next, or what is made of them where they are more than these.
    bytes: u64,
}

/// What a chunk makes of its beginning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    /// The run of all blocks on it.
    pub run: u32,
    /// The block that is next.
    pub next: u32,
}

/// Chunks found by the next 32 bytes, and by the next 8 where there is none.
pub(super) struct Chunks {
    long: Level<32>,
    short: Level<8>,
    /// Calls that chunks return from and leave open.
    calls: Vec<Call>,
    /// How often the code has changed.
    epoch: u32,
}

/// The chunks that are found by so many bytes.
struct Level<const WINDOW: usize> {
    table: Table,
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
            short: Level {
                table: Table::new(bytes / 64, 2, 1),
                recording: Recording::default(),
            },
            calls: Vec::new(),
            epoch: 0,
        }
    }

    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.abandon();
    }

    /// Goes the way that was gone before from this block on with these packets ahead, if there is one: its
    /// packets are read, its calls and returns happen. Where there is none, what is gone now may become one.
    #[inline]
    pub fn take(&mut self, block: u32, raw: &mut Raw<'_>, returns: &mut Returns) -> Option<Way> {
        let Self {
            long,
            short,
            calls,
            epoch,
        } = self;
        if let Some(slot) = long.find(block, *epoch, raw, returns, calls) {
            short.recording.abandon();
            let chunk = long.table.get(slot)?;
            chunk.apply(raw, returns, calls);
            return Some(chunk.way);
        }
        let slot = short.find(block, *epoch, raw, returns, calls)?;
        let chunk = short.table.get(slot)?;
        long.recording.chunk(chunk, calls);
        chunk.apply(raw, returns, calls);
        Some(chunk.way)
    }

    /// What is gone is not to become a chunk.
    pub fn abandon(&mut self) {
        self.long.recording.abandon();
        self.short.recording.abandon();
    }

    /// A step was gone, which left these calls open; `deepest` of them at most were open at once.
    #[inline]
    pub fn step(&mut self, run: u32, opened: impl Iterator<Item = Call> + Clone, deepest: u8) {
        self.long.recording.step(run, opened.clone(), deepest);
        self.short.recording.step(run, opened, deepest);
    }

    /// It was returned from a call.
    #[inline]
    pub fn returned_from(&mut self, call: Call) {
        self.long.recording.returned_from(call);
        self.short.recording.returned_from(call);
    }

    /// A target was read.
    #[inline]
    pub fn target(&mut self) {
        self.long.recording.target();
        self.short.recording.target();
    }

    /// All outcomes of the packets read are used, and `next` is the block that is next. Where the next
    /// packet would go beyond the bytes that a chunk is found by, it is made.
    #[inline]
    pub fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache) {
        self.long.boundary(raw, next, code, &mut self.calls);
        self.short.boundary(raw, next, code, &mut self.calls);
    }
}

impl<const WINDOW: usize> Level<WINDOW> {
    /// The slot of the chunk that begins here, when the last IP and the calls are those of before.
    #[inline]
    fn find(
        &mut self,
        block: u32,
        epoch: u32,
        raw: &Raw<'_>,
        returns: &Returns,
        calls: &[Call],
    ) -> Option<usize> {
        if self.recording.is_on() || !self.table.is_wanted() {
            return None;
        }
        let window = raw.window::<WINDOW>()?;
        let start = Start {
            block,
            epoch,
            bytes: mixed(window),
        };
        let fits = |chunk: &Chunk| {
            (WINDOW <= 8 || raw.window_at::<WINDOW>(chunk.offset) == Some(window))
                && (!chunk.ip_matters || chunk.ip_before == raw.ip())
                && returns.fits(chunk.returned(calls), chunk.deepest)
        };
        let found = self.table.find(start, fits);
        // A packet of another kind is not to be passed over.
        if found.is_none() && raw.next_len() <= WINDOW && self.table.meet(start) {
            self.recording.begin(start, raw);
        }
        found
    }

    #[inline]
    fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache, calls: &mut Vec<Call>) {
        // A chunk of eight bytes may be next.
        let room = if WINDOW > 8 { 8 } else { 0 };
        let len = self.recording.len(raw);
        if !self.recording.is_on() || len + raw.next_len().max(room) <= WINDOW {
            return;
        }
        let chunk = self.recording.end(raw, next, code, calls);
        // Behind padding, a packet may have ended beyond.
        if let Some(chunk) = chunk.filter(|_| len <= WINDOW) {
            self.table.insert(chunk);
        }
    }
}

impl Chunk {
    #[inline]
    fn returned<'a>(&self, calls: &'a [Call]) -> &'a [Call] {
        let first = self.first_call as usize;
        calls
            .get(first..first + usize::from(self.returned))
            .unwrap_or(&[])
    }

    #[inline]
    fn opened<'a>(&self, calls: &'a [Call]) -> &'a [Call] {
        let first = self.first_call as usize + usize::from(self.returned);
        calls.get(first..first + usize::from(self.opened)).unwrap_or(&[])
    }

    #[inline]
    fn apply(&self, raw: &mut Raw<'_>, returns: &mut Returns, calls: &[Call]) {
        raw.skip(self.len, self.ip_matters.then_some(self.ip_after));
        returns.make_room(self.deepest);
        returns.replace(usize::from(self.returned), self.opened(calls));
    }
}

/// The bytes, when they are eight, or a number that is seldom the same for others.
#[inline]
fn mixed<const WINDOW: usize>(window: &[u8; WINDOW]) -> u64 {
    let (words, _) = window.as_chunks();
    words
        .iter()
        .map(|&word| u64::from_le_bytes(word))
        .fold(0, |mixed: u64, word| {
            mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ word
        })
}
