//! What eight bytes of a trace make of a place in the code: steps in a row that came before, as one.
//!
//! Loops make the same packets again and again. Where the same bytes come at the same block, with the
//! same last IP and the same calls to return from, the way is the same, and needs no look at packets.

use super::code::CodeCache;
use super::raw::Raw;
use super::returns::{Call, Returns};

/// The bytes that a chunk is found by.
pub(super) const WINDOW: usize = 8;

/// Where a chunk begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// The block that is next.
    block: u32,
    /// How often the code had changed.
    epoch: u32,
    window: u64,
}

/// A way that was gone before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    start: Start,
    /// The run of all blocks on it.
    pub run: u32,
    /// The block that is next.
    pub next: u32,
    /// The last IP before and after it; `ip_matters`: packets were told against the one before.
    ip_before: u64,
    ip_after: u64,
    ip_matters: bool,
    /// Bytes of packets.
    len: u8,
    /// How many calls more than at the beginning were open at most.
    deepest: u8,
    /// The calls that it returns from, the innermost first, and those that it leaves open, innermost last.
    first_call: u32,
    returned: u8,
    opened: u8,
}

/// Chunks by their starts.
pub(super) struct Chunks {
    /// Pairs, of a power of two: a chunk is in one of two slots.
    slots: Vec<Chunk>,
    pairs: usize,
    /// Of starts that were met once: what says so.
    met: Vec<u16>,
    calls: Vec<Call>,
    /// How many chunks were made.
    made: usize,
    /// Chunks found less those not found, of late.
    luck: i32,
    /// How often none is looked for, because hardly any was found.
    idle: u32,
    epoch: u32,
    recording: Option<Recording>,
    /// Of the recording.
    runs: Vec<u32>,
    opened: Vec<Call>,
    returned: Vec<Call>,
    parts: Vec<u32>,
}

/// A chunk in the making.
struct Recording {
    start: Start,
    offset: usize,
    ip_before: u64,
    ip_matters: bool,
    deepest: usize,
}

const NO_START: Start = Start {
    block: u32::MAX,
    epoch: 0,
    window: 0,
};

const NO_CHUNK: Chunk = Chunk {
    start: NO_START,
    run: 0,
    next: 0,
    ip_before: 0,
    ip_after: 0,
    ip_matters: false,
    len: 0,
    deepest: 0,
    first_call: 0,
    returned: 0,
    opened: 0,
};

impl Chunks {
    /// Pairs of slots at most, a power of two; fewer for a short trace.
    const MAX_PAIRS: usize = 1 << 16;
    /// Chunks made at most: bounds memory where hardly any comes again.
    const MAX: usize = 1 << 18;
    /// So much bad luck is enough, and then for so long none is looked for.
    const BAD_LUCK: i32 = -(1 << 14);
    const IDLE: u32 = 1 << 20;

    /// For a trace of so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self {
            slots: Vec::new(),
            pairs: (bytes / 64).clamp(1, Self::MAX_PAIRS).next_power_of_two(),
            met: Vec::new(),
            calls: Vec::new(),
            made: 0,
            luck: 0,
            idle: 0,
            epoch: 0,
            recording: None,
            runs: Vec::new(),
            opened: Vec::new(),
            returned: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.recording = None;
    }

    /// From this block on, with these bytes ahead.
    #[inline]
    pub fn start(&self, block: u32, window: u64) -> Start {
        Start {
            block,
            epoch: self.epoch,
            window,
        }
    }

    #[inline]
    fn hash(start: Start) -> u64 {
        let place = u64::from(start.block) << 32 | u64::from(start.epoch);
        let mixed = start.window ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 32
    }

    /// The chunk that begins here, when the last IP and the calls are those of before.
    #[inline]
    pub fn find(&mut self, start: Start, ip: u64, returns: &Returns) -> Option<Chunk> {
        let pair = self.pair(start);
        let found = self.slots.get(pair..pair + 2).and_then(|pair| {
            let of_start = |chunk: &&Chunk| chunk.start == start;
            let chunk = pair.iter().find(of_start)?;
            let same = !chunk.ip_matters || chunk.ip_before == ip;
            (same && returns.fits(self.returned(chunk), chunk.deepest)).then_some(*chunk)
        });
        match found {
            Some(_) => self.luck = (self.luck + 1).min(0),
            None => self.luck -= 1,
        }
        found
    }

    /// The first slot of a start's pair.
    #[inline]
    fn pair(&self, start: Start) -> usize {
        (Self::hash(start) as usize & (self.pairs - 1)) * 2
    }

    /// A chunk may be looked for, or made.
    #[inline]
    pub fn are_wanted(&mut self) -> bool {
        if self.idle > 0 {
            self.idle -= 1;
            return false;
        }
        if self.luck < Self::BAD_LUCK {
            (self.luck, self.idle) = (0, Self::IDLE);
        }
        self.recording.is_none()
    }

    #[inline]
    fn returned(&self, chunk: &Chunk) -> &[Call] {
        let first = chunk.first_call as usize;
        self.calls
            .get(first..first + usize::from(chunk.returned))
            .unwrap_or(&[])
    }

    /// The chunk's packets are read, its calls and returns happen.
    #[inline]
    pub fn apply(&self, chunk: &Chunk, raw: &mut Raw<'_>, returns: &mut Returns) {
        raw.skip(chunk.len, chunk.ip_matters.then_some(chunk.ip_after));
        let first = chunk.first_call as usize + usize::from(chunk.returned);
        let opened = self.calls.get(first..first + usize::from(chunk.opened));
        returns.replace(usize::from(chunk.returned), opened.unwrap_or(&[]));
    }

    /// What is gone from here on may become a chunk: it is, when it was met before.
    #[inline]
    pub fn begin(&mut self, start: Start, raw: &Raw<'_>) {
        if self.slots.is_empty() {
            self.slots.resize(self.pairs * 2, NO_CHUNK);
            self.met.resize(self.pairs, 0);
        }
        let hash = Self::hash(start);
        let tag = (hash >> 48) as u16 | 1;
        let Some(met) = self.met.get_mut(hash as usize >> 8 & (self.pairs - 1)) else {
            return;
        };
        if std::mem::replace(met, tag) != tag || self.made >= Self::MAX {
            return;
        }
        self.recording = Some(Recording {
            start,
            offset: raw.offset,
            ip_before: raw.ip(),
            ip_matters: false,
            deepest: 0,
        });
        self.runs.clear();
        self.opened.clear();
        self.returned.clear();
    }

    /// It is not to be one.
    pub fn abandon(&mut self) {
        self.recording = None;
    }

    /// A step was gone, which left these calls open; `deepest` of them at most were open at once.
    pub fn step(&mut self, run: u32, opened: impl Iterator<Item = Call>, deepest: u8) {
        if let Some(recording) = &mut self.recording {
            self.runs.push(run);
            recording.deepest = recording.deepest.max(self.opened.len() + usize::from(deepest));
            self.opened.extend(opened);
        }
    }

    /// It was returned from a call.
    pub fn returned_from(&mut self, call: Call) {
        if self.recording.is_some() && self.opened.pop().is_none() {
            self.returned.push(call);
        }
    }

    /// A target was read.
    pub fn target(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.ip_matters = true;
        }
    }

    /// All outcomes of the packets read are used, and `next` is the block that is next. Where the next
    /// packet would go beyond the window, the chunk is made.
    pub fn boundary(&mut self, raw: &Raw<'_>, next: u32, code: &mut CodeCache) {
        let Some(recording) = &self.recording else {
            return;
        };
        let len = raw.offset - recording.offset;
        if len + raw.next_len() <= WINDOW {
            return;
        }
        self.make(raw, next, len, code);
        self.recording = None;
    }

    fn make(&mut self, raw: &Raw<'_>, next: u32, len: usize, code: &mut CodeCache) -> Option<()> {
        let recording = self.recording.as_ref()?;
        if len > WINDOW || self.runs.len() < 2 {
            return None;
        }
        self.parts.clear();
        let runs = code.runs();
        for &run in &self.runs {
            self.parts.extend_from_slice(runs.paths.parts(run));
        }
        let run = code.run_of(&self.parts)?;
        let first_call = u32::try_from(self.calls.len()).ok()?;
        let chunk = Chunk {
            start: recording.start,
            run,
            next,
            ip_before: recording.ip_before,
            ip_after: raw.ip(),
            ip_matters: recording.ip_matters,
            len: len as u8,
            deepest: u8::try_from(recording.deepest).ok()?,
            first_call,
            returned: u8::try_from(self.returned.len()).ok()?,
            opened: u8::try_from(self.opened.len()).ok()?,
        };
        self.calls.extend_from_slice(&self.returned);
        self.calls.extend_from_slice(&self.opened);
        self.made += 1;
        // The newer of the two stays the longer.
        let pair = self.pair(recording.start);
        let [first, second] = self.slots.get_mut(pair..pair + 2)?.first_chunk_mut()?;
        *second = std::mem::replace(first, chunk);
        Some(())
    }
}
