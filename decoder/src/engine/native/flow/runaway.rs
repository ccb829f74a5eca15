//! Bounds on code that runs without packets.

use crate::engine::native::code::{BasicBlock, Exit};
use crate::engine::native::straight_line::StraightLinePath;

/// Limits the code that runs between two packets.
///
/// A program cannot leave a circle of code without a packet. So code that runs in circles between
/// two packets is not the code that ran. Straight code has no other bound than the code's size.
///
/// A megabyte of trace could still stand for hundreds of billions of instructions. So blocks beyond
/// [`Self::FREE_BLOCKS`] between two packets are charged to an allowance, which grows with the
/// trace bytes since the last PSB. Each PSB resets it, so that a decode that starts there counts
/// the same.
#[derive(Default)]
pub(super) struct RunawayGuard {
    circle: CircleDetector,
    /// Blocks that ended without a packet.
    blocks: u32,
    /// Blocks beyond the free ones since the last PSB.
    spent: u64,
    /// The offset of that PSB.
    psb: usize,
}

/// Finds circles in the targets of direct jumps and calls (Brent's algorithm).
#[derive(Clone, Copy, Default)]
struct CircleDetector {
    /// An earlier target.
    anchor: Option<u64>,
    /// The targets since the anchor, and their number at which the anchor moves on.
    steps: u32,
    limit: u32,
}

impl CircleDetector {
    /// Adds the next target. Returns whether the code runs in circles.
    #[inline]
    fn closes_at(&mut self, target: u64) -> bool {
        if self.anchor == Some(target) {
            return true;
        }
        if self.steps == self.limit {
            (self.anchor, self.steps) = (Some(target), 0);
            self.limit = self.limit.saturating_mul(2).max(1);
        }
        self.steps += 1;
        false
    }
}

impl RunawayGuard {
    /// Free blocks before a packet: as many as the fast ways follow at once, which do not count
    /// (`BranchCache::MAX_BLOCKS`). A block has up to 64 instructions.
    pub const FREE_BLOCKS: u32 = 32;
    /// The allowance of each trace byte: 131 072 straight-line instructions, or about 20 000 for
    /// each branch in a full TNT packet. The longest branch-free loops of compilers and code
    /// generators have some thousands (unrolled ciphers, Fourier transforms), with other packets
    /// between.
    const BLOCKS_PER_BYTE: u64 = 1 << 11;
    /// The allowance at a PSB: 16 million instructions, more than any program has in a row.
    const BLOCKS_AT_PSB: u64 = 1 << 18;
    /// Blocks followed one by one before a [`StraightLinePath`] is tried.
    const SHORT: u32 = 3;

    /// Resets the counts: the code that follows is known to be reached.
    pub fn reset(&mut self) {
        (self.circle, self.blocks) = (CircleDetector::default(), 0);
    }

    /// Resets all counts at the PSB at this offset.
    pub fn pass_psb(&mut self, psb: usize) {
        self.reset();
        (self.spent, self.psb) = (0, psb);
    }

    /// Counts the next block, at this offset of the trace. Returns whether the trace is too short
    /// for it.
    #[inline]
    pub fn is_overlong(&mut self, block: &BasicBlock, offset: impl FnOnce() -> usize) -> bool {
        if !is_silent(block.exit) {
            return false;
        }
        self.blocks += 1;
        if self.blocks <= Self::FREE_BLOCKS {
            return false;
        }
        self.spent += 1;
        self.spent > self.allowance(offset())
    }

    fn allowance(&self, offset: usize) -> u64 {
        let bytes = offset.saturating_sub(self.psb) as u64;
        Self::BLOCKS_AT_PSB.saturating_add(bytes.saturating_mul(Self::BLOCKS_PER_BYTE))
    }

    /// Returns whether enough blocks ran without a packet to try a straight-line path.
    #[inline]
    pub fn is_long(&self, exit: Exit) -> bool {
        self.blocks >= Self::SHORT && is_silent(exit)
    }

    /// Counts a straight-line path, unless it would exceed a bound. Returns whether it was counted.
    pub fn admits(&mut self, path: &StraightLinePath, offset: usize) -> bool {
        let blocks = self.blocks.saturating_add(path.blocks);
        let free = Self::FREE_BLOCKS.max(self.blocks);
        let spent = self.spent + u64::from(blocks.saturating_sub(free));
        let mut circle = self.circle;
        let closes = path.targets.iter().any(|&target| circle.closes_at(target));
        let admitted = !closes && spent <= self.allowance(offset);
        if admitted {
            (self.circle, self.blocks, self.spent) = (circle, blocks, spent);
        }
        admitted
    }

    /// Counts code that leaves by `exit`. Returns whether it runs in circles.
    #[inline]
    pub fn runs_away(&mut self, exit: Exit) -> bool {
        match exit {
            Exit::FallThrough | Exit::Invalidated => false,
            Exit::Jump { target } | Exit::Call { target } => self.circle.closes_at(target),
            _ => {
                self.reset();
                false
            }
        }
    }
}

/// Returns whether a block with this exit needs no packet.
#[inline]
pub(in crate::engine::native::flow) fn is_silent(exit: Exit) -> bool {
    matches!(exit, Exit::FallThrough | Exit::Jump { .. } | Exit::Call { .. })
}
