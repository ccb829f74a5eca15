//! Caches the path that a few branch outcomes, or a branch target, select from a block.

use super::code::{BlockIdx, CodeCache, Exit};
use super::return_stack::ReturnStack;
use crate::{Memory, PathIdx, UncompressedReturns};

/// The most outcomes looked up at once: those of a short TNT.
pub(super) const OUTCOMES: u32 = 6;

/// The input of a lookup: up to [`OUTCOMES`] outcomes, the oldest highest, with a 1 bit above them;
/// or a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BranchInput(u8);

impl BranchInput {
    /// A branch target.
    pub const TARGET: Self = Self(0);

    /// Returns the input of the `len` (1 to [`OUTCOMES`]) outcomes in the low bits of `bits`.
    #[inline]
    pub fn outcomes(bits: u64, len: u32) -> Self {
        Self(1 << len | bits as u8)
    }

    fn len(self) -> u32 {
        7 - (self.0 | 1).leading_zeros()
    }
}

/// The path from a block for an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct BranchStep {
    key: u32,
    /// The path of all blocks passed.
    pub path: PathIdx,
    /// The next block, if the end is [`StepEnd::Block`].
    pub next: BlockIdx,
    /// The number of outcomes used in the low four bits, [`StepEnd`] in two, then the effect's
    /// index.
    packed: u32,
}

impl BranchStep {
    fn new(key: u32, path: PathIdx, followed: &FollowedPath, effect: u32) -> Option<Self> {
        let packed = u32::from(followed.used) | u32::from(followed.end as u8) << 4 | effect << 6;
        (effect >> 26 == 0).then_some(Self {
            key,
            path,
            next: followed.next,
            packed,
        })
    }

    /// Returns how many outcomes the step used.
    #[inline]
    pub fn used(&self) -> u32 {
        self.packed & 0xf
    }

    #[inline]
    pub fn end(&self) -> StepEnd {
        match self.packed >> 4 & 3 {
            0 => StepEnd::Block,
            1 => StepEnd::Return,
            _ => StepEnd::Target,
        }
    }

    /// Returns the index of the step's effect on the return stack.
    #[inline]
    pub fn effect(&self) -> u32 {
        self.packed >> 6
    }
}

/// The effect of a step on the return stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BranchEffect {
    /// The calls left open, as a slice of [`BranchCache::calls`].
    first: u32,
    len: u8,
    /// The largest number of calls open at once on the path.
    pub max_depth: u8,
    /// The step ends with an uncompressed return that pops a call made before the step.
    pub returns: bool,
}

/// A path that was followed, without its blocks and calls.
struct FollowedPath {
    next: BlockIdx,
    used: u8,
    end: StepEnd,
    max_depth: u8,
    returns: bool,
}

/// The source of the next address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum StepEnd {
    /// The code.
    Block = 0,
    /// The return stack: a compressed return.
    Return,
    /// The target in the trace.
    Target,
}

/// A hash table of steps by block and input.
pub(super) struct BranchCache {
    /// Open addressing, a power of two; at most half full.
    slots: Vec<BranchStep>,
    len: usize,
    /// The first has no effect; the second only pops a call.
    effects: Vec<BranchEffect>,
    /// The blocks of the calls that steps leave open, by block that ends in the call.
    calls: Vec<BlockIdx>,
    /// The blocks of the step that is being computed.
    path: Vec<BlockIdx>,
    open: Vec<BlockIdx>,
    uncompressed_returns: UncompressedReturns,
}

/// The key of an empty slot.
const EMPTY: u32 = 0;

const NO_STEP: BranchStep = BranchStep {
    key: EMPTY,
    path: PathIdx::NONE,
    next: BlockIdx::NONE,
    packed: 0,
};

impl BranchCache {
    /// The most blocks of a step, besides one for each outcome.
    const MAX_BLOCKS: usize = 32;
    /// The most steps. This bounds memory where few inputs repeat.
    const MAX_STEPS: usize = 1 << 20;
    /// Blocks with a higher index have no steps.
    const MAX_BLOCK: u32 = (1 << 25) - 2;

    pub fn new() -> Self {
        Self {
            slots: vec![NO_STEP; 1 << 12],
            len: 0,
            effects: vec![
                BranchEffect::default(),
                BranchEffect {
                    returns: true,
                    ..BranchEffect::default()
                },
            ],
            calls: Vec::new(),
            path: Vec::new(),
            open: Vec::new(),
            uncompressed_returns: UncompressedReturns::default(),
        }
    }

    /// Starts a trace. All traces with the same cache use the same rule for returns.
    pub fn begin_trace(&mut self, uncompressed_returns: UncompressedReturns) {
        self.uncompressed_returns = uncompressed_returns;
    }

    /// Drops all steps: code has changed.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.slots.fill(NO_STEP);
            self.effects.truncate(2);
            self.calls.clear();
            self.len = 0;
        }
    }

    /// Returns the effect of this index; `None` if it does nothing.
    #[inline]
    pub fn effect(&self, number: u32) -> Option<&BranchEffect> {
        match number {
            0 => None,
            number => self.effects.get(number as usize),
        }
    }

    /// Returns the blocks of the calls left open, the innermost last.
    #[inline]
    pub fn calls(&self, effect: &BranchEffect) -> &[BlockIdx] {
        let first = effect.first as usize;
        self.calls
            .get(first..first + usize::from(effect.len))
            .unwrap_or(&[])
    }

    /// Pushes and pops the return stack as the step did.
    #[inline]
    pub fn apply(&self, effect: &BranchEffect, returns: &mut ReturnStack) {
        returns.make_room(effect.max_depth);
        self.calls(effect).iter().for_each(|&call| returns.push(call));
        if effect.returns {
            returns.pop();
        }
    }

    #[inline]
    fn key(block: BlockIdx, input: BranchInput) -> u32 {
        (block.0 + 1) << 7 | u32::from(input.0)
    }

    #[inline]
    fn slot(&self, key: u32) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (u64::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let found = self.slots[at].key;
            if found == key || found == EMPTY {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// Returns the step from a block for an input. `None`: the path depends on more than the input.
    #[inline]
    pub fn step(
        &mut self,
        block: BlockIdx,
        input: BranchInput,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<BranchStep> {
        if block.0 > Self::MAX_BLOCK {
            return None;
        }
        let key = Self::key(block, input);
        let found = self.slots[self.slot(key)];
        if found.key == key {
            return Some(found);
        }
        self.compute(block, input, code, memory)
    }

    #[cold]
    fn compute(
        &mut self,
        block: BlockIdx,
        input: BranchInput,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<BranchStep> {
        if self.len >= Self::MAX_STEPS {
            return None;
        }
        let followed = self.follow(block, input, code, memory)?;
        let path = code.path_of(&self.path)?;
        let effect = self.effect_of(&followed)?;
        let step = BranchStep::new(Self::key(block, input), path, &followed, effect)?;
        self.insert(step);
        Some(step)
    }

    /// Returns the index of the effect of a followed path.
    fn effect_of(&mut self, followed: &FollowedPath) -> Option<u32> {
        if followed.max_depth == 0 {
            return Some(u32::from(followed.returns));
        }
        let number = u32::try_from(self.effects.len()).ok()?;
        self.effects.push(BranchEffect {
            first: u32::try_from(self.calls.len()).ok()?,
            len: u8::try_from(self.open.len()).ok()?,
            max_depth: followed.max_depth,
            returns: followed.returns,
        });
        self.calls.extend_from_slice(&self.open);
        Some(number)
    }

    /// Follows the code from a block. The blocks and the open calls are left in their buffers.
    fn follow(
        &mut self,
        block: BlockIdx,
        input: BranchInput,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<FollowedPath> {
        let (bits, len) = (input.0, input.len());
        self.path.clear();
        self.open.clear();
        let (mut at, mut used, mut max_depth) = (block, 0, 0);
        loop {
            max_depth = max_depth.max(self.open.len());
            if self.path.len() >= Self::MAX_BLOCKS {
                return None;
            }
            let here = *code.blocks.get(at.index())?;
            self.path.push(at);
            let done = |end: StepEnd, used: u32| FollowedPath {
                next: BlockIdx::NONE,
                end,
                used: used as u8,
                max_depth: max_depth as u8,
                returns: false,
            };
            let next = match here.exit {
                Exit::Invalidated => return None,
                Exit::FallThrough => here.end,
                Exit::Jump { target } => target,
                Exit::Call { target } => {
                    if target != here.end {
                        self.open.push(at);
                    }
                    target
                }
                // The target comes after the outcomes of later branches.
                Exit::IndirectCall | Exit::IndirectJump | Exit::Far if input != BranchInput::TARGET => {
                    return None;
                }
                Exit::IndirectCall => {
                    self.open.push(at);
                    let max_depth = max_depth.max(self.open.len()) as u8;
                    return Some(FollowedPath {
                        max_depth,
                        ..done(StepEnd::Target, 0)
                    });
                }
                Exit::Return if input == BranchInput::TARGET => {
                    let pops = self.uncompressed_returns == UncompressedReturns::Pop;
                    return Some(FollowedPath {
                        returns: pops && self.open.pop().is_none(),
                        ..done(StepEnd::Target, 0)
                    });
                }
                Exit::IndirectJump | Exit::Far => return Some(done(StepEnd::Target, 0)),
                Exit::Conditional { .. } if input == BranchInput::TARGET => return None,
                Exit::Conditional { target } => {
                    used += 1;
                    if bits >> (len - used) & 1 != 0 {
                        target
                    } else {
                        here.end
                    }
                }
                Exit::Return => {
                    used += 1;
                    if bits >> (len - used) & 1 == 0 {
                        return None;
                    }
                    match self.open.pop() {
                        Some(call) => code.blocks.get(call.index())?.end,
                        None => return Some(done(StepEnd::Return, used)),
                    }
                }
            };
            at = code.at(next, memory).ok()?;
            if used == len && input != BranchInput::TARGET {
                return Some(FollowedPath {
                    next: at,
                    ..done(StepEnd::Block, used)
                });
            }
        }
    }

    fn insert(&mut self, step: BranchStep) {
        if self.len * 2 >= self.slots.len() {
            let larger = vec![NO_STEP; self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, larger);
            for step in old.into_iter().filter(|step| step.key != EMPTY) {
                let at = self.slot(step.key);
                self.slots[at] = step;
            }
        }
        let at = self.slot(step.key);
        self.slots[at] = step;
        self.len += 1;
    }
}
