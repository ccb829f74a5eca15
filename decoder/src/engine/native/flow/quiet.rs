//! How long nothing was taken out of the trace, and how often for long.

use crate::engine::native::code::{Block, Exit};
use crate::engine::native::straight::Straight;

/// Counts what runs between two packets.
///
/// A program that ran cannot repeat itself between two packets (but for `jmp .`, which nobody leaves
/// without one), so far beyond what real code does without one, the code is not what ran.
///
/// Below that, so much may run that a trace of a megabyte stands for hundreds of billions of instructions. So what runs
/// between two packets beyond [`Self::FREE_BLOCKS`] is taken out of an allowance, which grows with the bytes of the trace
/// since the last PSB. Each PSB begins anew: whoever decodes from there on counts the same.
#[derive(Default)]
pub(super) struct Quiet {
    instructions: u32,
    direct: u32,
    /// Blocks that ended without a packet.
    blocks: u32,
    /// Blocks beyond the free ones, between any two packets since the last PSB.
    spent: u64,
    /// Where that PSB stands.
    psb: usize,
}

impl Quiet {
    /// Straight code this long without any branch that gives a packet (a quarter of a megabyte).
    const MAX_INSTRUCTIONS: u32 = 1 << 16;
    /// Direct jumps and calls one after the other, with nothing between that gives a packet.
    const MAX_DIRECT: u32 = 1 << 12;
    /// Blocks without a packet that a branch costs nothing: as many as the fast ways go through at once, which do not count
    /// (`Memo::MAX_BLOCKS`). A block has up to 64 instructions.
    pub const FREE_BLOCKS: u32 = 32;
    /// The allowance for each byte of the trace: 131 072 instructions of straight code, or 20 thousand for each branch that
    /// a full TNT packet tells. The longest loops without a branch that compilers and code generators make have some
    /// thousands (unrolled ciphers, Fourier transforms), and other packets come between.
    const BLOCKS_PER_BYTE: u64 = 1 << 11;
    /// The allowance at a PSB: for the longest stretches there can be, sixty-four times.
    const BLOCKS_AT_PSB: u64 = 1 << 16;
    /// Blocks gone through one by one before [`Straight`] runs are looked for.
    const SHORT: u32 = 3;

    pub fn reset(&mut self) {
        (self.instructions, self.direct, self.blocks) = (0, 0, 0);
    }

    /// The flow passes the PSB at this offset, or begins there.
    pub fn pass_psb(&mut self, psb: usize) {
        self.reset();
        (self.spent, self.psb) = (0, psb);
    }

    /// The last instruction that ran gave a packet.
    pub fn branched(&mut self) {
        (self.instructions, self.direct, self.blocks) = (1, 0, 0);
    }

    /// A block is next, at this offset of the trace. `true`: the trace is too short for it.
    #[inline]
    pub fn is_overlong(&mut self, block: &Block, offset: impl FnOnce() -> usize) -> bool {
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

    /// So many blocks ran without a packet that more may be gone through at once.
    #[inline]
    pub fn is_long(&self, exit: Exit) -> bool {
        self.blocks >= Self::SHORT && is_silent(exit)
    }

    /// Counts a way without packets, unless somewhere on it one of the bounds is passed.
    pub fn admits(&mut self, way: &Straight, offset: usize) -> bool {
        let instructions = self.instructions + way.instructions;
        let direct = self.direct + way.direct;
        let blocks = self.blocks + way.blocks;
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

    /// `count` instructions run, of which the last leaves by `exit`. `Some`: how many of them until the
    /// bound is passed.
    #[inline]
    pub fn runs_away(&mut self, count: u32, exit: Exit) -> Option<u32> {
        let room = Self::MAX_INSTRUCTIONS - self.instructions;
        match exit {
            Exit::Through | Exit::Gone => {
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

/// A block that leaves so needs no packet.
#[inline]
fn is_silent(exit: Exit) -> bool {
    matches!(exit, Exit::Through | Exit::Jump { .. } | Exit::Call { .. })
}
