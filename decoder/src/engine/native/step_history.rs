//! A ring of recent steps, replayed as long as the packet bytes match (an LZ77-style match).
//!
//! A program in a loop repeats not only paths of the packet cache but sequences of them. When a
//! path repeats, the decoder replays the steps that followed it last time. It compares the bytes
//! with those of last time, and checks the last IP and the return stack of each step.

use super::packed_step::PackedStep;
use crate::PathIdx;
use crate::engine::native::code::BlockIdx;

/// A step between packets. It starts at a block and a trace offset, and ends where the next step
/// starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRecord {
    /// The low 32 bits of the offset.
    at: u32,
    pub block: BlockIdx,
    pub path: PathIdx,
    pub packed: PackedStep,
}

impl StepRecord {
    const NONE: Self = Self {
        at: 0,
        block: BlockIdx::NONE,
        path: PathIdx::NONE,
        packed: PackedStep::NOT_REPLAYABLE,
    };
}

/// The recent steps of one decode.
pub(super) struct StepHistory {
    /// A ring buffer.
    steps: Box<[StepRecord; Self::STEPS]>,
    /// The number of the next step.
    count: u32,
    /// The last step by a packet cache path, by the hash of its key and the path before it.
    last_by_hash: Box<[u32; Self::ENTRIES]>,
    /// The offset of the last step.
    offset: usize,
    /// Replayed steps, each worth [`Self::HIT_WEIGHT`], minus failed lookups; at most 0.
    balance: i32,
    /// The number of lookups to skip.
    pause: u32,
}

/// The next step to replay.
#[derive(Clone, Copy)]
pub(super) struct ReplayMatch {
    next: u32,
    /// The distance to it in trace bytes.
    pub distance: usize,
}

impl StepHistory {
    /// The number of steps kept; a power of two.
    const STEPS: usize = 1 << 14;
    /// The number of hash entries; a power of two.
    const ENTRIES: usize = 1 << 14;
    /// Longer steps are not replayed, because only the low halves of offsets are kept.
    const MAX_LEN: usize = 1 << 16;
    /// The number of the first step. Numbers before it count as too old.
    const FIRST: u32 = 2 * Self::STEPS as u32;
    const HIT_WEIGHT: i32 = 1;
    /// At this balance, lookups pause for a number of lookups.
    const MIN_BALANCE: i32 = -(1 << 10);
    const PAUSE: u32 = 1 << 14;

    pub fn new() -> Self {
        Self {
            steps: Box::new([StepRecord::NONE; Self::STEPS]),
            count: Self::FIRST,
            last_by_hash: Box::new([0; Self::ENTRIES]),
            offset: 0,
            balance: 0,
            pause: 0,
        }
    }

    /// Drops all steps: packets may select other paths from a block now.
    pub fn clear(&mut self) {
        self.steps.fill(StepRecord::NONE);
    }

    /// Adds a step that starts at an offset and a block.
    #[inline]
    pub fn push(&mut self, offset: usize, block: BlockIdx, path: PathIdx, packed: PackedStep) {
        if self.pause > 0 {
            return;
        }
        if offset.wrapping_sub(self.offset) > Self::MAX_LEN {
            self.clear();
        }
        self.offset = offset;
        self.put(StepRecord {
            at: offset as u32,
            block,
            path,
            packed,
        });
    }

    #[inline]
    fn put(&mut self, step: StepRecord) {
        self.steps[self.count as usize % Self::STEPS] = step;
        self.count = self.count.wrapping_add(1);
    }

    /// Looks up the last step, which was by a packet cache path with this key hash. Returns the
    /// steps that followed the path last time, if they continue at `block`.
    #[inline]
    pub fn find_match(&mut self, hash: u64, offset: usize, block: BlockIdx) -> Option<ReplayMatch> {
        if self.pause > 0 {
            self.skip_lookup();
            return None;
        }
        let now = self.count.wrapping_sub(1);
        // The path before it predicts what follows.
        let context = self.step(now.wrapping_sub(1)).path;
        let hash = hash ^ u64::from(context.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let last_by_hash = &mut self.last_by_hash[hash as usize >> 3 & (Self::ENTRIES - 1)];
        let before = std::mem::replace(last_by_hash, now);
        let ago = self.count.wrapping_sub(before) as usize;
        let (was, is) = (self.step(before), self.step(now));
        let matched = ReplayMatch {
            next: before.wrapping_add(1),
            distance: 0,
        };
        let next = self.step(matched.next);
        let distance = (offset as u32).wrapping_sub(next.at) as usize;
        // At least one step is between, so the end of the match is known.
        let known = ago > 2 && ago < Self::STEPS && (was.path, was.block) == (is.path, is.block);
        (known && next.block == block).then_some(ReplayMatch { distance, ..matched })
    }

    /// Skips a lookup. Steps before the pause count as too old after it.
    fn skip_lookup(&mut self) {
        self.pause -= 1;
        if self.pause == 0 {
            self.count = self.count.wrapping_add(Self::STEPS as u32);
        }
    }

    #[inline]
    fn step(&self, number: u32) -> &StepRecord {
        &self.steps[number as usize % Self::STEPS]
    }

    /// Returns the next step to replay, and its length.
    #[inline]
    pub fn current(&self, matched: ReplayMatch) -> (StepRecord, usize) {
        let (step, next) = (self.step(matched.next), self.step(matched.next.wrapping_add(1)));
        (*step, next.at.wrapping_sub(step.at) as usize)
    }

    /// Returns the block after the next step to replay.
    pub fn block_after(&self, matched: ReplayMatch) -> BlockIdx {
        self.step(matched.next.wrapping_add(1)).block
    }

    /// Records that the next step was replayed at an offset. Returns the rest of the match.
    #[inline]
    pub fn advance(&mut self, step: StepRecord, matched: ReplayMatch, offset: usize) -> ReplayMatch {
        self.offset = offset;
        self.put(StepRecord {
            at: offset as u32,
            ..step
        });
        ReplayMatch {
            next: matched.next.wrapping_add(1),
            ..matched
        }
    }

    /// Ends a replay of this many steps. Returns the next block.
    #[inline]
    pub fn finish(&mut self, matched: ReplayMatch, steps: usize) -> BlockIdx {
        self.balance = (self.balance + Self::HIT_WEIGHT * steps as i32 - 1).min(0);
        if self.balance < Self::MIN_BALANCE {
            (self.balance, self.pause) = (0, Self::PAUSE);
        }
        self.step(matched.next).block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: PackedStep = PackedStep::NO_EFFECT;

    /// Adds steps of ten bytes from an offset on. Returns the offset after them.
    fn go(history: &mut StepHistory, offset: usize, blocks: &[u32]) -> usize {
        for (at, &block) in blocks.iter().enumerate() {
            history.push(offset + 10 * at, BlockIdx(block), PathIdx(block + 100), PACKETS);
        }
        offset + 10 * blocks.len()
    }

    #[test]
    fn steps_after_a_repeated_packet_path_are_matched() {
        let mut history = StepHistory::new();
        let offset = go(&mut history, 0, &[1, 2]);
        assert!(history.find_match(5, offset, BlockIdx(3)).is_none());
        let offset = go(&mut history, offset, &[3, 4, 1, 2]);
        let matched = history.find_match(5, offset, BlockIdx(3)).unwrap();
        assert_eq!(matched.distance, 40);
        let (step, len) = history.current(matched);
        assert_eq!(
            (step.block, step.path, step.packed, len),
            (BlockIdx(3), PathIdx(103), PACKETS, 10)
        );
        assert_eq!(history.block_after(matched), BlockIdx(4));
        let rest = history.advance(step, matched, offset);
        assert_eq!(history.current(rest).0.block, BlockIdx(4));
        assert_eq!(history.finish(rest, 1), BlockIdx(4));
    }

    #[test]
    fn differing_steps_are_not_matched() {
        let mut history = StepHistory::new();
        let begin = |history: &mut StepHistory| {
            let offset = go(history, 0, &[1, 2]);
            history.find_match(5, offset, BlockIdx(3));
            go(history, offset, &[3, 4, 1, 2])
        };
        let offset = begin(&mut history);
        assert!(
            history.find_match(5, offset, BlockIdx(4)).is_none(),
            "another block is next"
        );
        let mut history = StepHistory::new();
        let offset = begin(&mut history);
        history.clear();
        assert!(history.find_match(5, offset, BlockIdx(3)).is_none(), "forgotten");
        let mut history = StepHistory::new();
        begin(&mut history);
        let offset = go(&mut history, 1 << 20, &[1, 2]);
        assert!(
            history.find_match(5, offset, BlockIdx(3)).is_none(),
            "too far in the trace"
        );
        let mut history = StepHistory::new();
        let offset = begin(&mut history);
        let offset = go(&mut history, offset, &[9; StepHistory::STEPS]);
        let offset = go(&mut history, offset, &[1, 2]);
        assert!(
            history.find_match(5, offset, BlockIdx(3)).is_none(),
            "too long ago"
        );
    }

    #[test]
    fn lookups_pause_while_matches_do_not_pay() {
        let mut history = StepHistory::new();
        let mut offset = 0;
        let mut tries = 0;
        for _ in 0..3 * -StepHistory::MIN_BALANCE {
            offset = go(&mut history, offset, &[1, 2, 3]);
            if let Some(matched) = history.find_match(5, offset, BlockIdx(1)) {
                history.finish(matched, 0);
                tries += 1;
            }
        }
        assert_eq!(tries, 1 - StepHistory::MIN_BALANCE);
    }

    #[test]
    fn steps_before_a_pause_are_not_matched_after_it() {
        let mut history = StepHistory::new();
        let offset = go(&mut history, 0, &[1, 2]);
        history.find_match(5, offset, BlockIdx(3));
        let offset = go(&mut history, offset, &[3, 4]);
        history.pause = 1;
        // These are not recorded.
        let offset = go(&mut history, offset, &[7, 8]);
        assert!(history.find_match(6, offset, BlockIdx(9)).is_none());
        let offset = go(&mut history, offset, &[1, 2]);
        assert!(
            history.find_match(5, offset, BlockIdx(3)).is_none(),
            "from before the rest"
        );
        let offset = go(&mut history, offset, &[3, 4, 1, 2]);
        assert!(
            history.find_match(5, offset, BlockIdx(3)).is_some(),
            "from after it"
        );
    }
}
