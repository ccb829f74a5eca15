//! Caches the block path that a packet byte sequence produces from a given block, so that repeated
//! sequences cost one lookup.
//!
//! Loops produce the same packets again and again. The same bytes at the same block, with the same
//! last IP and return stack, produce the same path. The packets need not be parsed again.

mod recording;
mod table;

use super::code::{BlockIdx, CodeCache};
use super::packets::{BranchPackets, IpBytes};
use super::return_stack::{ANY, COMPARED, ReturnStack, WRITTEN};
use crate::PathIdx;
use crate::hash::folded;
use recording::Recording;
use rustc_hash::FxHashMap;
use table::CacheTable;

/// A cached path with its key. The fields of a lookup share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct CacheEntry<const WINDOW: usize> {
    start: CacheKey<WINDOW>,
    path: CachedPath,
}

/// The key of a cached path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CacheKey<const WINDOW: usize> {
    /// The next bytes of the trace.
    window: [u8; WINDOW],
    block_epoch: BlockEpoch,
}

/// A block index, and the number of code changes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockEpoch(u64);

/// The path of a cache entry.
#[derive(Clone, Copy, Debug)]
struct CachedPath {
    target: PathTarget,
    /// The index of its effect.
    effect: u32,
    /// The largest number of calls that it has open at once.
    max_depth: u8,
    /// The number of bytes of the window that its packets have.
    len: u8,
}

/// The effect of a path on the last IP and the return stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
struct PacketEffect {
    /// The last IP before the path, above the bits that the first target replaces (`replaced`); and
    /// the last IP after the path.
    ip_above: u64,
    ip_after: u64,
    /// The last entries of `before` are the calls that the path returns from; the first entries of
    /// `after` are those it leaves open. Both have the innermost last. If `spilled`, both are in
    /// [`PacketEffects::calls`] from index `before[0]` on, returned calls first.
    before: [BlockIdx; COMPARED],
    after: [BlockIdx; WRITTEN],
    returned: u8,
    opened: u8,
    /// The number of innermost returned calls to compare. The calls before them are [`ANY`].
    compared: u8,
    replaced: IpBytes,
    ip_changes: bool,
    spilled: bool,
}

/// The change of the last IP by targets.
#[derive(Clone, Copy, Debug)]
struct IpChange {
    /// The last IP before, above the bits that the first target replaces.
    above: u64,
    replaced: IpBytes,
    after: u64,
}

const _: () = assert!(size_of::<PacketEffect>() == 64);

/// The blocks of a cached path and its successor.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathTarget {
    /// The path of all blocks.
    pub path: PathIdx,
    /// The next block.
    pub next: BlockIdx,
}

/// A cached path that applies here.
struct CacheHit<'e> {
    path: CachedPath,
    /// `None`: the path has no effect.
    effect: Option<&'e PacketEffect>,
}

/// Cached paths by the next 32 bytes; where there is none, by the next 8, then by the next 4.
pub(super) struct PacketCache {
    long: WindowLevel<32>,
    middle: WindowLevel<8>,
    short: WindowLevel<4>,
    effects: PacketEffects,
    /// The number of code changes so far.
    epoch: u32,
    /// A path is being recorded.
    recording: bool,
}

/// The effects of cached paths, by index.
struct PacketEffects {
    /// The first has no effect.
    all: Vec<PacketEffect>,
    /// The indexes of the effects that are not spilled, to store equal ones once.
    ids: FxHashMap<PacketEffect, u32>,
    /// The calls of spilled effects.
    calls: Vec<BlockIdx>,
}

/// The cached paths of one window size.
struct WindowLevel<const WINDOW: usize> {
    table: CacheTable<WINDOW>,
    recording: Recording,
}

impl PacketCache {
    pub fn new() -> Self {
        Self {
            long: WindowLevel {
                table: CacheTable::new(1 << 10, 4, 4),
                recording: Recording::default(),
            },
            middle: WindowLevel {
                table: CacheTable::new(1 << 8, 7, 1),
                recording: Recording::default(),
            },
            short: WindowLevel {
                table: CacheTable::new(1 << 8, 7, 1),
                recording: Recording::default(),
            },
            effects: PacketEffects::new(),
            epoch: 0,
            recording: false,
        }
    }

    /// Starts a trace of `bytes` bytes.
    pub fn begin_trace(&mut self, bytes: usize) {
        self.long.table.begin_trace(bytes);
        self.middle.table.begin_trace(bytes);
        self.short.table.begin_trace(bytes);
        self.abandon();
    }

    /// Drops all paths: code has changed.
    pub fn clear(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.long.table.code_changed();
        self.middle.table.code_changed();
        self.short.table.code_changed();
        self.abandon();
    }

    /// Follows the cached path from this block for the next packets, if there is one. Skips its
    /// packets, and applies its effect. If there is none, recording may start.
    #[inline]
    pub fn follow(
        &mut self,
        block: BlockIdx,
        packets: &mut BranchPackets<'_>,
        returns: &mut ReturnStack,
    ) -> Option<PathTarget> {
        let Self {
            long,
            middle,
            short,
            effects,
            epoch,
            recording,
        } = self;
        let block_epoch = BlockEpoch::new(block, *epoch);
        let found = if let Some(found) = long.find(block_epoch, packets, returns, effects, recording) {
            if *recording {
                middle.recording.abandon();
                short.recording.abandon();
                *recording = false;
            }
            found
        } else if let Some(found) = middle.find(block_epoch, packets, returns, effects, recording) {
            if *recording {
                short.recording.abandon();
                long.recording.record_path(&found.path, effects);
            }
            found
        } else {
            let found = short.find(block_epoch, packets, returns, effects, recording)?;
            if *recording {
                long.recording.record_path(&found.path, effects);
                middle.recording.record_path(&found.path, effects);
            }
            found
        };
        let CacheHit { path, effect } = found;
        match effect {
            None => packets.skip(path.len.into(), None),
            Some(effect) => {
                packets.skip(path.len.into(), effect.ip_after());
                effects.apply(path.max_depth, effect, returns);
            }
        }
        Some(path.target)
    }

    /// Stops recording.
    #[inline]
    pub fn abandon(&mut self) {
        if self.recording {
            self.long.recording.abandon();
            self.middle.recording.abandon();
            self.short.recording.abandon();
            self.recording = false;
        }
    }

    /// Records a step that left these calls open, of at most `max_depth` open at once.
    #[inline]
    pub fn record_step(&mut self, path: PathIdx, opened: &[BlockIdx], max_depth: u8) {
        if self.recording {
            self.long.recording.record_step(path, opened, max_depth);
            self.middle.recording.record_step(path, opened, max_depth);
            self.short.recording.record_step(path, opened, max_depth);
        }
    }

    /// Records a return from a call; from [`ANY`] if the packet carries the target.
    #[inline]
    pub fn record_return(&mut self, call: BlockIdx) {
        if self.recording {
            self.long.recording.record_return(call);
            self.middle.recording.record_return(call);
            self.short.recording.record_return(call);
        }
    }

    /// Records a target, of which the packet carried these bits.
    #[inline]
    pub fn record_target(&mut self, replaced: IpBytes) {
        if self.recording {
            self.long.recording.record_target(replaced);
            self.middle.recording.record_target(replaced);
            self.short.recording.record_target(replaced);
        }
    }

    /// Marks a point where all outcomes of the packets read are used; `next` is the next block. A
    /// recorded path ends here if the next packet would exceed the window.
    #[inline]
    pub fn at_packet_boundary(&mut self, packets: &BranchPackets<'_>, next: BlockIdx, code: &mut CodeCache) {
        if self.recording {
            self.complete(packets, next, code);
        }
    }

    fn complete(&mut self, packets: &BranchPackets<'_>, next: BlockIdx, code: &mut CodeCache) {
        let long = self
            .long
            .at_packet_boundary(packets, next, code, &mut self.effects);
        let middle = self
            .middle
            .at_packet_boundary(packets, next, code, &mut self.effects);
        let short = self
            .short
            .at_packet_boundary(packets, next, code, &mut self.effects);
        self.recording = long || middle || short;
    }
}

impl<const WINDOW: usize> WindowLevel<WINDOW> {
    /// The shortest packets of the next smaller window that may follow.
    const NEXT: usize = match WINDOW {
        0..=4 => 0,
        5..=8 => 4,
        _ => 8,
    };

    /// Finds the cached path for the next bytes whose last IP and return stack match. If there is
    /// none, recording may start.
    #[inline]
    fn find<'e>(
        &mut self,
        block_epoch: BlockEpoch,
        packets: &BranchPackets<'_>,
        returns: &ReturnStack,
        effects: &'e PacketEffects,
        recording: &mut bool,
    ) -> Option<CacheHit<'e>> {
        if self.recording.is_on() || !self.table.admits_lookup() {
            return None;
        }
        let window = packets.window::<WINDOW>()?;
        let hash = CacheKey::hash(window, block_epoch);
        let found = self.table.find(window, block_epoch, hash).and_then(|path| {
            // The common case: loops without calls.
            if path.has_no_effect() {
                return Some(CacheHit { path, effect: None });
            }
            let effect = effects.get(path.effect)?;
            let found = CacheHit {
                path,
                effect: Some(effect),
            };
            effects
                .matches(path.max_depth, effect, packets, returns)
                .then_some(found)
        });
        self.table.count_lookup(found.is_some());
        // Only branch packets can be skipped.
        if found.is_none() && packets.next_len() <= WINDOW && self.table.note_miss(hash, packets.offset) {
            self.recording.start(block_epoch, packets);
            *recording = true;
        }
        found
    }

    /// Ends the recording if the window is full. Returns whether recording continues.
    fn at_packet_boundary(
        &mut self,
        packets: &BranchPackets<'_>,
        next: BlockIdx,
        code: &mut CodeCache,
        effects: &mut PacketEffects,
    ) -> bool {
        let len = self.recording.len(packets);
        if !self.recording.is_on() || len + packets.next_len().max(Self::NEXT) <= WINDOW {
            return self.recording.is_on();
        }
        let chunk = self.recording.end(packets, next, code, effects);
        // After padding, a packet may extend beyond the window.
        if let Some(chunk) = chunk.filter(|_| len <= WINDOW) {
            self.table.insert(chunk);
        }
        false
    }
}

impl<const WINDOW: usize> CacheKey<WINDOW> {
    /// Returns a hash of the key. Its latency delays the lookup, so words are multiplied
    /// independently.
    #[inline]
    fn hash(window: &[u8; WINDOW], block_epoch: BlockEpoch) -> u64 {
        const SECRETS: [u64; 5] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
            0xd6e8_feb8_6659_fd93,
            0xa24b_aed4_963e_e407,
        ];
        // A window consists of whole words, or of half a word.
        let (words, half) = window.as_chunks();
        let half = half
            .first_chunk()
            .map(|&half| u64::from(u32::from_le_bytes(half)));
        let words = words.iter().map(|&word| u64::from_le_bytes(word)).chain(half);
        let products = words.zip(SECRETS).map(|(word, secret)| folded(word, secret));
        products.fold(folded(block_epoch.0, SECRETS[4]), u64::wrapping_add)
    }
}

impl CachedPath {
    /// Returns whether the path neither compares nor changes the last IP or the return stack.
    #[inline]
    fn has_no_effect(&self) -> bool {
        self.effect == 0 && self.max_depth == 0
    }
}

impl BlockEpoch {
    #[inline]
    fn new(block: BlockIdx, epoch: u32) -> Self {
        Self(u64::from(block.0) << 32 | u64::from(epoch))
    }
}

impl IpChange {
    /// No target.
    const NONE: Self = Self {
        above: 0,
        replaced: IpBytes::ALL,
        after: 0,
    };
}

impl PacketEffect {
    /// Returns whether the last IP equals the recorded one in the bits that count.
    #[inline]
    fn matches_ip(&self, ip: u64) -> bool {
        self.replaced.above(ip) == self.ip_above
    }

    /// Returns the last IP after the path, if the path changes it.
    #[inline]
    fn ip_after(&self) -> Option<u64> {
        self.ip_changes.then_some(self.ip_after)
    }
}

impl PacketEffects {
    fn new() -> Self {
        let nothing = PacketEffect {
            ip_above: 0,
            ip_after: 0,
            replaced: IpBytes::ALL,
            ip_changes: false,
            before: [BlockIdx(0); COMPARED],
            after: [BlockIdx(0); WRITTEN],
            returned: 0,
            opened: 0,
            compared: 0,
            spilled: false,
        };
        Self {
            all: vec![nothing],
            ids: FxHashMap::default(),
            calls: Vec::new(),
        }
    }

    /// Returns the effect with an index.
    #[inline]
    fn get(&self, effect: u32) -> Option<&PacketEffect> {
        self.all.get(effect as usize)
    }

    /// Returns whether the last IP and the return stack match the effect.
    #[inline(always)]
    fn matches(
        &self,
        max_depth: u8,
        effect: &PacketEffect,
        packets: &BranchPackets<'_>,
        returns: &ReturnStack,
    ) -> bool {
        if effect.spilled {
            return self.matches_spilled(max_depth, effect, packets, returns);
        }
        let ip = effect.matches_ip(packets.ip());
        ip && (effect.compared == 0 || returns.ends_with_few(&effect.before, effect.compared, max_depth))
    }

    #[cold]
    fn matches_spilled(
        &self,
        max_depth: u8,
        effect: &PacketEffect,
        packets: &BranchPackets<'_>,
        returns: &ReturnStack,
    ) -> bool {
        let returned = self.returned(effect);
        let compared = returned.get(returned.len() - usize::from(effect.compared)..);
        effect.matches_ip(packets.ip()) && returns.ends_with(compared.unwrap_or(&[]), max_depth)
    }

    /// Pops the returned calls and pushes the open ones.
    #[inline(always)]
    fn apply(&self, max_depth: u8, effect: &PacketEffect, returns: &mut ReturnStack) {
        match effect.spilled {
            false => returns.replace_few(max_depth, effect.returned, &effect.after, effect.opened),
            true => self.apply_spilled(max_depth, effect, returns),
        }
    }

    #[cold]
    fn apply_spilled(&self, max_depth: u8, effect: &PacketEffect, returns: &mut ReturnStack) {
        returns.replace(max_depth, effect.returned, self.opened(effect));
    }

    /// Returns the calls that the path returns from, the innermost last.
    fn returned<'a>(&'a self, effect: &'a PacketEffect) -> &'a [BlockIdx] {
        let count = usize::from(effect.returned);
        let calls = match effect.spilled {
            false => effect.before.get(COMPARED - count..),
            true => self.list(effect.before[0].index(), count),
        };
        calls.unwrap_or(&[])
    }

    /// Returns the calls that the path leaves open, the innermost last.
    fn opened<'a>(&'a self, effect: &'a PacketEffect) -> &'a [BlockIdx] {
        let count = usize::from(effect.opened);
        let calls = match effect.spilled {
            false => effect.after.get(..count),
            true => self.list(effect.before[0].index() + usize::from(effect.returned), count),
        };
        calls.unwrap_or(&[])
    }

    fn list(&self, first: usize, count: usize) -> Option<&[BlockIdx]> {
        self.calls.get(first..first + count)
    }

    /// Returns the index of an effect with these returned and opened calls, the innermost last.
    /// `None`: there are too many.
    fn push(&mut self, ip: Option<IpChange>, returned: &[BlockIdx], opened: &[BlockIdx]) -> Option<u32> {
        if ip.is_none() && returned.is_empty() && opened.is_empty() {
            return Some(0);
        }
        let spilled = returned.len() > COMPARED || opened.len() > WRITTEN;
        let (mut before, mut after) = ([BlockIdx(0); COMPARED], [BlockIdx(0); WRITTEN]);
        if spilled {
            before[0] = BlockIdx(u32::try_from(self.calls.len()).ok()?);
        } else {
            let last = COMPARED - returned.len();
            before.get_mut(last..)?.copy_from_slice(returned);
            after.get_mut(..opened.len())?.copy_from_slice(opened);
        }
        let any = returned.iter().take_while(|&&call| call == ANY).count();
        let of_ip = ip.unwrap_or(IpChange::NONE);
        let effect = PacketEffect {
            ip_above: of_ip.above,
            ip_after: of_ip.after,
            before,
            after,
            returned: u8::try_from(returned.len()).ok()?,
            opened: u8::try_from(opened.len()).ok()?,
            compared: u8::try_from(returned.len() - any).ok()?,
            replaced: of_ip.replaced,
            ip_changes: ip.is_some(),
            spilled,
        };
        if let Some(&known) = self.ids.get(&effect) {
            return Some(known);
        }
        let number = u32::try_from(self.all.len()).ok()?;
        if spilled {
            self.calls.extend_from_slice(returned);
            self.calls.extend_from_slice(opened);
        } else {
            self.ids.insert(effect, number);
        }
        self.all.push(effect);
        Some(number)
    }
}
