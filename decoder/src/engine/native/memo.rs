//! What a few outcomes, or the next target, make of a place in the code: found out once, then looked up.

use super::code::{Block, CodeCache, Exit};
use super::returns::Returns;
use crate::{Memory, ToldReturns};

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
    key: u32,
    /// The run of all blocks on the way.
    pub run: u32,
    /// The block that is next, when [`End::Block`].
    pub next: u32,
    /// How many outcomes it used in the low four bits, [`End`] in two, then the number of its effect.
    rest: u32,
}

impl Step {
    fn new(key: u32, run: u32, way: &Way, effect: u32) -> Option<Self> {
        let rest = u32::from(way.used) | u32::from(way.end as u8) << 4 | effect << 6;
        (effect >> 26 == 0).then_some(Self {
            key,
            run,
            next: way.next,
            rest,
        })
    }

    /// How many outcomes it used.
    #[inline]
    pub fn used(&self) -> u32 {
        self.rest & 0xf
    }

    #[inline]
    pub fn end(&self) -> End {
        match self.rest >> 4 & 3 {
            0 => End::Block,
            1 => End::Return,
            _ => End::Target,
        }
    }

    /// The number of what it does to the return stack.
    #[inline]
    pub fn effect(&self) -> u32 {
        self.rest >> 6
    }
}

/// What a step does to the return stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// The calls on the way that have not returned, in the memo's list.
    first: u32,
    len: u8,
    /// How many calls were open on the way at most.
    pub deepest: u8,
    /// It ends with a return of which the target is told, and which takes a call away that was there before.
    pub returns: bool,
}

/// What was found of a way, beside its blocks and calls.
struct Way {
    next: u32,
    used: u8,
    end: End,
    deepest: u8,
    returns: bool,
}

/// What tells where the way goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum End {
    /// The code.
    Block = 0,
    /// The return stack: a compressed return.
    Return,
    /// The target in the trace.
    Target,
}

/// Steps by block and symbol.
#[derive(Clone)]
pub(super) struct Memo {
    /// Open addressing, a power of two; at most half full.
    slots: Vec<Step>,
    len: usize,
    /// The first does nothing, the second returns and does nothing else.
    effects: Vec<Effect>,
    /// The blocks that end in a call that a step leaves open.
    calls: Vec<u32>,
    /// Blocks on the way of the step in the making.
    way: Vec<u32>,
    open: Vec<u32>,
    told_returns: ToldReturns,
}

/// The key of no step.
const EMPTY: u32 = 0;

const NO_STEP: Step = Step {
    key: EMPTY,
    run: 0,
    next: Block::NONE,
    rest: 0,
};

impl Memo {
    /// Blocks on the way of a step at most, beside one for each outcome.
    const MAX_BLOCKS: usize = 32;
    /// Steps at most: bounds memory where hardly any comes twice.
    const MAX_STEPS: usize = 1 << 20;
    /// Blocks with a higher number have no steps.
    const MAX_BLOCK: u32 = (1 << 25) - 2;

    pub fn new() -> Self {
        Self {
            slots: vec![NO_STEP; 1 << 12],
            len: 0,
            effects: vec![
                Effect::default(),
                Effect {
                    returns: true,
                    ..Effect::default()
                },
            ],
            calls: Vec::new(),
            way: Vec::new(),
            open: Vec::new(),
            told_returns: ToldReturns::default(),
        }
    }

    /// A decode begins. All with the same memo are by the same rule.
    pub fn begin(&mut self, told_returns: ToldReturns) {
        self.told_returns = told_returns;
    }

    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.slots.fill(NO_STEP);
            self.effects.truncate(2);
            self.calls.clear();
            self.len = 0;
        }
    }

    /// What steps do to the return stack, by its number; `None`: nothing.
    #[inline]
    pub fn effect(&self, number: u32) -> Option<&Effect> {
        match number {
            0 => None,
            number => self.effects.get(number as usize),
        }
    }

    /// The blocks of the calls that are left open, the innermost last.
    #[inline]
    pub fn calls(&self, effect: &Effect) -> &[u32] {
        let first = effect.first as usize;
        self.calls
            .get(first..first + usize::from(effect.len))
            .unwrap_or(&[])
    }

    /// Has calls made and returned from as a step does.
    #[inline]
    pub fn apply(&self, effect: &Effect, returns: &mut Returns) {
        returns.make_room(effect.deepest);
        self.calls(effect).iter().for_each(|&call| returns.push(call));
        if effect.returns {
            returns.pop();
        }
    }

    #[inline]
    fn key(block: u32, symbol: Symbol) -> u32 {
        (block + 1) << 7 | u32::from(symbol.0)
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

    /// The step from a block by a symbol; `None`: it cannot be told beforehand.
    #[inline]
    pub fn step(
        &mut self,
        block: u32,
        symbol: Symbol,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<Step> {
        if block > Self::MAX_BLOCK {
            return None;
        }
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
        let way = self.follow(block, symbol, code, memory)?;
        let run = code.path(&self.way)?;
        let effect = self.effect_of(&way)?;
        let step = Step::new(Self::key(block, symbol), run, &way, effect)?;
        self.insert(step);
        Some(step)
    }

    /// The number of what the way does to the return stack.
    fn effect_of(&mut self, way: &Way) -> Option<u32> {
        if way.deepest == 0 {
            return Some(u32::from(way.returns));
        }
        let number = u32::try_from(self.effects.len()).ok()?;
        self.effects.push(Effect {
            first: u32::try_from(self.calls.len()).ok()?,
            len: u8::try_from(self.open.len()).ok()?,
            deepest: way.deepest,
            returns: way.returns,
        });
        self.calls.extend_from_slice(&self.open);
        Some(number)
    }

    /// Follows the code from a block; the way and the open calls are left in their lists.
    fn follow(
        &mut self,
        block: u32,
        symbol: Symbol,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<Way> {
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
            let done = |end: End, used: u32| Way {
                next: Block::NONE,
                end,
                used: used as u8,
                deepest: deepest as u8,
                returns: false,
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
                // The target comes behind outcomes of later branches.
                Exit::IndirectCall | Exit::IndirectJump | Exit::Far if symbol != Symbol::TARGET => {
                    return None;
                }
                Exit::IndirectCall => {
                    self.open.push(at);
                    let deepest = deepest.max(self.open.len()) as u8;
                    return Some(Way {
                        deepest,
                        ..done(End::Target, 0)
                    });
                }
                Exit::Return if symbol == Symbol::TARGET => {
                    let pops = self.told_returns == ToldReturns::Pop;
                    return Some(Way {
                        returns: pops && self.open.pop().is_none(),
                        ..done(End::Target, 0)
                    });
                }
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
                return Some(Way {
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
