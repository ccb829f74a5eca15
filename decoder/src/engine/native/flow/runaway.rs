//! Bounds on code that runs without packets.

use crate::engine::native::code::{BasicBlock, Exit};
use crate::engine::native::straight_line::StraightLinePath;

/// Limits the code that runs between two packets.
///
/// A program cannot repeat its state between two packets, except in `jmp .`, which it leaves only
/// with a packet. Code far beyond what real programs run without a packet is not the code that ran.
///
/// Below that limit, a megabyte of trace could still stand for hundreds of billions of
/// instructions. So blocks beyond [`Self::FREE_BLOCKS`] between two packets are charged to an
/// allowance, which grows with the trace bytes since the last PSB. Each PSB resets it, so that a
/// decode that starts there counts the same.
#[derive(Default)]
pub(super) struct RunawayGuard {
    instructions: u32,
    direct: u32,
    /// Blocks that ended without a packet.
    blocks: u32,
    /// Blocks beyond the free ones since the last PSB.
    spent: u64,
    /// The offset of that PSB.
    psb: usize,
}

impl RunawayGuard {
    /// The most instructions without a branch that produces a packet (a quarter of a megabyte).
    const MAX_INSTRUCTIONS: u32 = 1 << 16;
    /// The most direct jumps and calls in a row without a packet.
    const MAX_DIRECT: u32 = 1 << 12;
    /// Free blocks before a packet: as many as the fast ways follow at once, which do not count
    /// (`BranchCache::MAX_BLOCKS`). A block has up to 64 instructions.
    pub const FREE_BLOCKS: u32 = 32;
    /// The allowance of each trace byte: 131 072 straight-line instructions, or about 20 000 for
    /// each branch in a full TNT packet. The longest branch-free loops of compilers and code
    /// generators have some thousands (unrolled ciphers, Fourier transforms), with other packets
    /// between.
    const BLOCKS_PER_BYTE: u64 = 1 << 11;
    /// The allowance at a PSB: 64 of the longest possible stretches.
    const BLOCKS_AT_PSB: u64 = 1 << 16;
    /// Blocks followed one by one before a [`StraightLinePath`] is tried.
    const SHORT: u32 = 3;

    pub fn reset(&mut self) {
        (self.instructions, self.direct, self.blocks) = (0, 0, 0);
    }

    /// Resets all counts at the PSB at this offset.
    pub fn pass_psb(&mut self, psb: usize) {
        self.reset();
        (self.spent, self.psb) = (0, psb);
    }

    /// Resets the counts: the last instruction produced a packet.
    pub fn branched(&mut self) {
        (self.instructions, self.direct, self.blocks) = (1, 0, 0);
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
        let instructions = self.instructions + path.instructions;
        let direct = self.direct + path.direct;
        let blocks = self.blocks + path.blocks;
        let free = Self::FREE_BLOCKS.max(self.blocks);
        let spent = self.spent + u64::from(blocks.saturating_sub(free));
        let admitted = instructions <= Self::MAX_INSTRUCTIONS
            && direct <= Self::MAX_DIRECT
            && spent <= self.allowance(offset);
        if admitted {
            (self.instructions, self.direct) = (instructions, direct);
            (self.blocks, self.spent) = (blocks, spent);
        }
        admitted
    }

    /// Counts `count` instructions, of which the last leaves by `exit`. Returns the number of
    /// instructions up to the bound, if it is exceeded.
    #[inline]
    pub fn runs_away(&mut self, count: u32, exit: Exit) -> Option<u32> {
        let room = Self::MAX_INSTRUCTIONS - self.instructions;
        match exit {
            Exit::FallThrough | Exit::Invalidated => {
                if count > room {
                    return Some(room + 1);
                }
                self.instructions += count;
            }
            Exit::Jump { .. } | Exit::Call { .. } => {
                if count > room {
                    return Some(room + 1);
                }
                self.instructions += count;
                self.direct += 1;
                if self.direct > Self::MAX_DIRECT {
                    return Some(count);
                }
            }
            _ => {
                if count - 1 > room {
                    return Some(room + 1);
                }
                self.branched();
            }
        }
        None
    }
}

/// Returns whether a block with this exit needs no packet.
#[inline]
fn is_silent(exit: Exit) -> bool {
    matches!(exit, Exit::FallThrough | Exit::Jump { .. } | Exit::Call { .. })
}
