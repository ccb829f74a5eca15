//! The effects of instructions by block, kept for the next executions of the block.

use super::ExecutedPath;
use backtrail_decoder::{BlockId, Walker};
use backtrail_semantics::Effect;
use rustc_hash::FxHashMap;

/// The most instructions whose effects are kept.
const MAX_EFFECTS: usize = 1 << 18;

/// An instruction of a block.
#[derive(Debug)]
pub struct BlockInstruction {
    /// Its effect. `None`: its code is not known.
    pub effect: Option<Effect>,
    /// The address after it.
    pub next: u64,
}

/// The effects of instructions by block.
#[derive(Debug, Default)]
pub struct Effects {
    blocks: Vec<Box<[BlockInstruction]>>,
    numbers: FxHashMap<BlockId, usize>,
    /// The number of instructions of all blocks.
    count: usize,
}

impl Effects {
    /// Returns the instructions of a block from the walker's next one on. `None`: the history ends
    /// there.
    pub fn of(&mut self, path: &dyn ExecutedPath, walker: &Walker<'_>) -> Option<&[BlockInstruction]> {
        let (block, within) = walker.block()?;
        let number = match self.numbers.get(&block) {
            Some(&known) => known,
            None => self.add(path, walker, block),
        };
        self.blocks.get(number)?.get(within..)
    }

    fn add(&mut self, path: &dyn ExecutedPath, walker: &Walker<'_>, block: BlockId) -> usize {
        if self.count >= MAX_EFFECTS {
            *self = Self::default();
        }
        // Changed code is another block.
        let version = path.history().version(walker.index());
        let effect_of = |instruction: backtrail_decoder::Instruction| BlockInstruction {
            effect: path
                .decode(version, instruction.pc, instruction.len)
                .map(|decoded| Effect::of(&decoded)),
            next: instruction.next().0,
        };
        let instructions: Box<[_]> = walker.instructions_of(block).map(effect_of).collect();
        self.count += instructions.len();
        self.blocks.push(instructions);
        let number = self.blocks.len() - 1;
        self.numbers.insert(block, number);
        number
    }
}
