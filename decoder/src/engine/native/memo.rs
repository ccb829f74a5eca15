//! What a few outcomes, or the next target, make of a place in the code: found out once, then looked up.

use super::code::{Block, CodeCache, Exit};
use crate::Memory;

/// The most outcomes looked up at once: those of a short TNT.
pub(super) const OUTCOMES: u32 = 6;

/// What comes next in the trace: up to [`OUTCOMES`] outcomes, the oldest highest, below a one; or a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol(u8);

impl Symbol {
    /// A target.
    pub const TARGET: Self = Self(0);

    /// The `len` (1 to [`OUTCOMES`]) outcomes in the low bits of `bits`.
    #[inline]
    pub fn outcomes(bits: u64, len: u32) -> Self {
        Self(1 << len | bits as u8)
    }

    fn len(self) -> u32 {
        7 - (self.0 | 1).leading_zeros()
    }
}

/// The way from a block by a symbol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    key: u64,
    /// The run of all blocks on the way.
    pub run: u32,
    /// The block that is next, when [`End::Block`].
    pub next: u32,
    /// The calls on the way that have not returned, in the memo's list.
    first_call: u32,
    calls: u8,
    /// How many calls were open on the way at most.
    pub deepest: u8,
    /// How many outcomes it used.
    pub used: u8,
    pub end: End,
}

/// What tells where the way goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The code.
    Block,
    /// The return stack: a compressed return.
    Return,
    /// The target in the trace.
    Target,
}

/// Steps by block and symbol.
pub(super) struct Memo {
    /// Open addressing, a power of two; at most half full.
    slots: Vec<Step>,
    len: usize,
    /// The blocks that end in a call that a step leaves open.
    calls: Vec<u32>,
    /// Blocks on the way of the step in the making.
    way: Vec<u32>,
    open: Vec<u32>,
}

/// The key of no step.
const EMPTY: u64 = 0;

const NO_STEP: Step = Step {
    key: EMPTY,
    run: 0,
    next: Block::NONE,
    first_call: 0,
    calls: 0,
    deepest: 0,
    used: 0,
    end: End::Block,
};

impl Memo {
    /// Blocks on the way of a step at most, beside one for each outcome.
    const MAX_BLOCKS: usize = 64;
    /// Steps at most: bounds memory where hardly any comes twice.
    const MAX_STEPS: usize = 1 << 22;

    pub fn new() -> Self {
        Self {
            slots: vec![NO_STEP; 1 << 12],
            len: 0,
            calls: Vec::new(),
            way: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.slots.fill(NO_STEP);
            self.calls.clear();
            self.len = 0;
        }
    }

    /// The blocks of the calls that a step leaves open, the innermost last.
    #[inline]
    pub fn calls(&self, step: &Step) -> &[u32] {
        let first = step.first_call as usize;
        self.calls
            .get(first..first + usize::from(step.calls))
            .unwrap_or(&[])
    }

    #[inline]
    fn key(block: u32, symbol: Symbol) -> u64 {
        (u64::from(block) + 1) << 8 | u64::from(symbol.0)
    }

    #[inline]
    fn slot(&self, key: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & mask;
        loop {
            let found = self.slots[at].key;
            if found == key || found == EMPTY {
                return at;
            }
            at = (at + 1) & mask;
        }
    }

    /// The step from a block by a symbol; `None`: it cannot be told beforehand.
    #[inline]
    pub fn step(
        &mut self,
        block: u32,
        symbol: Symbol,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<Step> {
        let key = Self::key(block, symbol);
        let found = self.slots[self.slot(key)];
        if found.key == key {
            return Some(found);
        }
        self.find_out(block, symbol, code, memory)
    }

    #[cold]
    fn find_out(
        &mut self,
        block: u32,
        symbol: Symbol,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<Step> {
        if self.len >= Self::MAX_STEPS {
            return None;
        }
        let mut step = self.follow(block, symbol, code, memory)?;
        step.key = Self::key(block, symbol);
        step.run = code.path(&self.way)?;
        step.first_call = u32::try_from(self.calls.len()).ok()?;
        step.calls = u8::try_from(self.open.len()).ok()?;
        self.calls.extend_from_slice(&self.open);
        self.insert(step);
        Some(step)
    }

    /// Follows the code from a block; the way and the open calls are left in their lists.
    fn follow(
        &mut self,
        block: u32,
        symbol: Symbol,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<Step> {
        let (bits, len) = (symbol.0, symbol.len());
        self.way.clear();
        self.open.clear();
        let (mut at, mut used, mut deepest) = (block, 0, 0);
        loop {
            deepest = deepest.max(self.open.len());
            if self.way.len() >= Self::MAX_BLOCKS {
                return None;
            }
            let here = *code.blocks.get(at as usize)?;
            self.way.push(at);
            let done = |end: End, used: u32| Step {
                end,
                used: used as u8,
                deepest: deepest as u8,
                ..NO_STEP
            };
            let next = match here.exit {
                Exit::Gone => return None,
                Exit::Through => here.end,
                Exit::Jump { target } => target,
                Exit::Call { target } => {
                    if target != here.end {
                        self.open.push(at);
                    }
                    target
                }
                Exit::IndirectCall | Exit::IndirectJump | Exit::Far if symbol != Symbol::TARGET => {
                    // The target comes behind outcomes of later branches.
                    return None;
                }
                Exit::IndirectCall => {
                    self.open.push(at);
                    let deepest = deepest.max(self.open.len()) as u8;
                    return Some(Step {
                        deepest,
                        ..done(End::Target, 0)
                    });
                }
                Exit::Return if symbol == Symbol::TARGET => return Some(done(End::Target, 0)),
                Exit::IndirectJump | Exit::Far => return Some(done(End::Target, 0)),
                Exit::Conditional { .. } if symbol == Symbol::TARGET => return None,
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
                        Some(call) => code.blocks.get(call as usize)?.end,
                        None => return Some(done(End::Return, used)),
                    }
                }
            };
            at = code.at(next, memory).ok()?;
            if used == len && symbol != Symbol::TARGET {
                return Some(Step {
                    next: at,
                    ..done(End::Block, used)
                });
            }
        }
    }

    fn insert(&mut self, step: Step) {
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
