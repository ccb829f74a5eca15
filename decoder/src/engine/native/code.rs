//! The code of a process as blocks, each decoded once.

use super::error::Error;
use crate::block::{Blocks, Code};
use crate::path::Paths;
use crate::{Memory, Runs};
use backtrail_pt::instruction::{self, Mode, Role};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The most bytes of an instruction.
const MAX_LEN: usize = 15;

/// The most instructions of a block: what a target may cost that is jumped to once, in a run of code where
/// each byte is one.
const MAX_INSTRUCTIONS: usize = 64;

/// A straight run of instructions up to one that may go elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// How many instructions it has; 0 for [`Exit::Gone`] alone.
    pub count: u32,
    /// Its number in the table of blocks, and that of the run that it is alone.
    code: u32,
    pub run: u32,
    pub exit: Exit,
    /// The block behind it, and the one that its branch goes to, once known; else [`Block::NONE`].
    pub next: u32,
    pub taken: u32,
}

impl Block {
    /// The number of no block.
    pub const NONE: u32 = u32::MAX;
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The instruction behind it is next.
    Through,
    Conditional {
        target: u64,
    },
    Jump {
        target: u64,
    },
    Call {
        target: u64,
    },
    IndirectJump,
    IndirectCall,
    Return,
    Far,
    /// The bytes there have changed since: it is to be decoded anew.
    Gone,
}

impl Exit {
    fn of(cofi: Cofi) -> Self {
        match cofi {
            Cofi::Sequential => Self::Through,
            Cofi::Conditional { target } => Self::Conditional { target: target.0 },
            Cofi::Jump { target } => Self::Jump { target: target.0 },
            Cofi::Call { target } => Self::Call { target: target.0 },
            Cofi::IndirectJump => Self::IndirectJump,
            Cofi::IndirectCall => Self::IndirectCall,
            Cofi::Return => Self::Return,
            Cofi::FarTransfer => Self::Far,
        }
    }
}

/// The blocks found so far, of all processes and modes, and the runs that they execute.
#[derive(Clone, Default)]
pub(super) struct CodeCache {
    table: Blocks,
    paths: Paths,
    pub blocks: Vec<Block>,
    /// Of the process and mode that are current.
    found: FxHashMap<u64, u32>,
    current: (u32, Mode),
    /// Of the others.
    others: FxHashMap<(u32, Mode), FxHashMap<u64, u32>>,
    /// Parts of blocks, by first address and number of instructions.
    parts: FxHashMap<(u64, u32), u32>,
    scratch: Vec<Code>,
    /// The blocks of targets met lately, by their addresses' low bits.
    recent: Vec<(u64, u32)>,
}

/// Targets remembered; a power of two.
const RECENT: usize = 1 << 12;

impl CodeCache {
    /// Goes to the code of another process, or of another mode.
    pub fn select(&mut self, space: u32, mode: Mode) {
        let wanted = (space, mode);
        if self.current != wanted {
            let found = self.others.remove(&wanted).unwrap_or_default();
            let last = std::mem::replace(&mut self.found, found);
            self.others.insert(self.current, last);
            self.current = wanted;
            self.parts.clear();
            self.recent.clear();
        }
    }

    /// The block that begins at a target, as [`Self::at`] has it.
    #[inline]
    pub fn at_target(&mut self, address: u64, memory: &dyn Memory) -> Result<u32, Error> {
        let slot = (address ^ address >> 12) as usize % RECENT;
        if let Some(&(known, block)) = self.recent.get(slot)
            && known == address
            && block != Block::NONE
        {
            return Ok(block);
        }
        let block = self.at(address, memory)?;
        self.recent.resize(RECENT, (0, Block::NONE));
        if let Some(slot) = self.recent.get_mut(slot) {
            *slot = (address, block);
        }
        Ok(block)
    }

    /// The block that begins at an address.
    pub fn at(&mut self, address: u64, memory: &dyn Memory) -> Result<u32, Error> {
        match self.found.get(&address) {
            Some(&block) => Ok(block),
            None => self.decode(address, memory),
        }
    }

    #[cold]
    fn decode(&mut self, address: u64, memory: &dyn Memory) -> Result<u32, Error> {
        let mode = self.current.1;
        let mut bytes = [0; 256];
        let (mut begin, mut have) = (address, 0);
        let mut at = address;
        self.scratch.clear();
        let exit = loop {
            if self.scratch.len() == MAX_INSTRUCTIONS {
                break Exit::Through;
            }
            let mut rest = bytes.get((at - begin) as usize..have).unwrap_or(&[]);
            if rest.len() < MAX_LEN {
                begin = at;
                have = memory.read(Avma(at), &mut bytes);
                rest = bytes.get(..have).unwrap_or(&[]);
            }
            if rest.is_empty() && self.scratch.is_empty() {
                return Err(Error::NoCode);
            }
            let Ok(found) = instruction::decode(rest, Avma(at), mode) else {
                if self.scratch.is_empty() {
                    return Err(Error::BadInstruction);
                }
                break Exit::Through;
            };
            self.scratch.push(Code {
                offset: (at - address) as u16,
                len: found.len,
                cofi: found.cofi,
            });
            let Some(next) = at.checked_add(u64::from(found.len)) else {
                break Exit::of(found.cofi);
            };
            at = next;
            if found.cofi.ends_block() {
                break Exit::of(found.cofi);
            }
        };
        let Some((code, run)) = Self::define(&mut self.table, &mut self.paths, address, &self.scratch) else {
            return Err(Error::BadInstruction);
        };
        let block = self.blocks.len() as u32;
        self.blocks.push(Block {
            start: address,
            end: at,
            count: self.scratch.len() as u32,
            code,
            run,
            exit,
            next: Block::NONE,
            taken: Block::NONE,
        });
        self.found.insert(address, block);
        Ok(block)
    }

    /// All runs.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            blocks: &self.table,
            paths: &self.paths,
        }
    }

    fn define(table: &mut Blocks, paths: &mut Paths, start: u64, code: &[Code]) -> Option<(u32, u32)> {
        let block = table.push(Avma(start), code)?;
        Some((block, paths.push(&[block], table)?))
    }

    /// The run of blocks one after the other.
    pub fn path(&mut self, blocks: &[u32]) -> Option<u32> {
        let code = |&id: &u32| Some(self.blocks.get(id as usize)?.code);
        let parts: Option<Vec<u32>> = blocks.iter().map(code).collect();
        match (blocks, parts?) {
            (&[block], _) => Some(self.blocks.get(block as usize)?.run),
            (_, parts) => self.paths.push(&parts, &self.table),
        }
    }

    /// The run of blocks by their numbers in the table, one after the other.
    pub fn run_of(&mut self, parts: &[u32]) -> Option<u32> {
        self.paths.push(parts, &self.table)
    }

    /// The run of the instructions `from..to` of a block.
    pub fn part(&mut self, block: &Block, from: u32, to: u32) -> Option<u32> {
        if (from, to) == (0, block.count) {
            return Some(block.run);
        }
        let code = self.table.code(block.code).get(from as usize..to as usize)?;
        let first = code.first()?.offset;
        let start = block.start + u64::from(first);
        let key = (start, to - from);
        if let Some(&run) = self.parts.get(&key) {
            return Some(run);
        }
        let moved: Vec<Code> = code
            .iter()
            .map(|code| Code {
                offset: code.offset - first,
                ..*code
            })
            .collect();
        let (_, run) = Self::define(&mut self.table, &mut self.paths, start, &moved)?;
        self.parts.insert(key, run);
        Some(run)
    }

    /// The address of the last instruction of a run.
    pub fn last_of(&self, run: u32) -> Option<u64> {
        self.runs().last(run).map(|last| last.pc.0)
    }

    /// Instruction `within` of a block: its address and length.
    pub fn instruction(&self, block: &Block, within: u32) -> Option<(u64, Code)> {
        let code = self.table.code(block.code).get(within as usize)?;
        Some((block.start + u64::from(code.offset), *code))
    }

    /// What packets may bind to at an address.
    pub fn role(&self, address: u64, memory: &dyn Memory) -> Role {
        let mut bytes = [0; MAX_LEN];
        let have = memory.read(Avma(address), &mut bytes);
        let code = bytes.get(..have).unwrap_or(&[]);
        instruction::decode(code, Avma(address), self.current.1).map_or(Role::Plain, |found| found.role)
    }

    /// The bytes at these addresses, (first, last) inclusive, are others from now on. Says whether blocks
    /// were there.
    pub fn forget(&mut self, changed: &[(Avma, Avma)]) -> bool {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for &(first, last) in changed {
            let end = ends.entry(first.0).or_insert(last.0);
            *end = (*end).max(last.0);
        }
        let longest = ends.iter().map(|(first, last)| last - first).max().unwrap_or(0);
        let hit = |block: &Block| {
            let last = block.end.wrapping_sub(1);
            let near = ends.range(block.start.saturating_sub(longest)..=last);
            near.into_iter().any(|(_, &end)| end >= block.start)
        };
        let blocks = &mut self.blocks;
        let mut gone = false;
        let maps = std::iter::once(&mut self.found).chain(self.others.values_mut());
        for map in maps {
            map.retain(|_, id| {
                let Some(block) = blocks.get_mut(*id as usize) else {
                    return false;
                };
                if !hit(block) {
                    return true;
                }
                (block.exit, block.count) = (Exit::Gone, 0);
                gone = true;
                false
            });
        }
        self.parts.clear();
        self.recent.clear();
        gone
    }
}
