//! The code of a process as basic blocks, each decoded once.

use super::error::Error;
use crate::block::{Blocks, Code};
use crate::path::Paths;
use crate::{BlockId, Memory, PathIdx, PathTable};
use backtrail_pt::instruction::{self, Mode, Role};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The longest instruction in bytes.
const MAX_LEN: usize = 15;

/// The most instructions of a block. This bounds the cost of a jump into a long run of one-byte
/// instructions.
const MAX_INSTRUCTIONS: usize = 64;

/// The index of a basic block in a [`CodeCache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BlockIdx(pub u32);

impl BlockIdx {
    /// The index of no block.
    pub const NONE: Self = Self(u32::MAX);

    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of instructions up to one that may change the flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct BasicBlock {
    pub start: u64,
    /// The address after the block.
    pub end: u64,
    /// The number of instructions; 0 only for [`Exit::Invalidated`].
    pub count: u32,
    /// Its index in the block table, and the path of this block alone.
    code: BlockId,
    pub path: PathIdx,
    pub exit: Exit,
    /// The block after it and the block its branch goes to, once known; else [`BlockIdx::NONE`].
    pub next: BlockIdx,
    pub taken: BlockIdx,
}

/// How a block ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The next instruction follows in memory.
    FallThrough,
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
    /// The bytes have changed since: the block must be decoded again.
    Invalidated,
}

impl Exit {
    fn of(cofi: Cofi) -> Self {
        match cofi {
            Cofi::Sequential => Self::FallThrough,
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

/// The blocks decoded so far, of all processes and modes, and the paths over them.
#[derive(Default)]
pub(super) struct CodeCache {
    table: Blocks,
    paths: Paths,
    pub blocks: Vec<BasicBlock>,
    /// The blocks of the current process and mode, by address.
    found: FxHashMap<u64, BlockIdx>,
    current: (u32, Mode),
    /// The blocks of the other processes and modes.
    inactive: FxHashMap<(u32, Mode), FxHashMap<u64, BlockIdx>>,
    /// The paths of parts of blocks, by first address and number of instructions.
    partial_paths: FxHashMap<(u64, u32), PathIdx>,
    scratch: Vec<Code>,
    /// The blocks of recent branch targets, by low address bits.
    recent: Vec<(u64, BlockIdx)>,
}

/// The number of recent targets; a power of two.
const RECENT: usize = 1 << 12;

impl CodeCache {
    /// Selects the code of a process and mode.
    pub fn select(&mut self, space: u32, mode: Mode) {
        let wanted = (space, mode);
        if self.current != wanted {
            let found = self.inactive.remove(&wanted).unwrap_or_default();
            let last = std::mem::replace(&mut self.found, found);
            self.inactive.insert(self.current, last);
            self.current = wanted;
            self.partial_paths.clear();
            self.recent.clear();
        }
    }

    /// Returns the block at a branch target, like [`Self::at`].
    #[inline]
    pub fn at_target(&mut self, address: u64, memory: &dyn Memory) -> Result<BlockIdx, Error> {
        let slot = (address ^ address >> 12) as usize % RECENT;
        if let Some(&(known, block)) = self.recent.get(slot)
            && known == address
            && block != BlockIdx::NONE
        {
            return Ok(block);
        }
        let block = self.at(address, memory)?;
        self.recent.resize(RECENT, (0, BlockIdx::NONE));
        if let Some(slot) = self.recent.get_mut(slot) {
            *slot = (address, block);
        }
        Ok(block)
    }

    /// Returns the block at an address, and decodes it if needed.
    pub fn at(&mut self, address: u64, memory: &dyn Memory) -> Result<BlockIdx, Error> {
        match self.found.get(&address) {
            Some(&block) => Ok(block),
            None => self.decode(address, memory),
        }
    }

    #[cold]
    fn decode(&mut self, address: u64, memory: &dyn Memory) -> Result<BlockIdx, Error> {
        let mode = self.current.1;
        let mut bytes = [0; 256];
        let (mut begin, mut have) = (address, 0);
        let mut at = address;
        self.scratch.clear();
        let exit = loop {
            if self.scratch.len() == MAX_INSTRUCTIONS {
                break Exit::FallThrough;
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
                break Exit::FallThrough;
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
        let Some((code, path)) = Self::define(&mut self.table, &mut self.paths, address, &self.scratch)
        else {
            return Err(Error::BadInstruction);
        };
        let block = BlockIdx(self.blocks.len() as u32);
        self.blocks.push(BasicBlock {
            start: address,
            end: at,
            count: self.scratch.len() as u32,
            code,
            path,
            exit,
            next: BlockIdx::NONE,
            taken: BlockIdx::NONE,
        });
        self.found.insert(address, block);
        Ok(block)
    }

    /// Returns all paths.
    pub fn paths(&self) -> PathTable<'_> {
        PathTable {
            blocks: &self.table,
            paths: &self.paths,
        }
    }

    fn define(
        table: &mut Blocks,
        paths: &mut Paths,
        start: u64,
        code: &[Code],
    ) -> Option<(BlockId, PathIdx)> {
        let block = table.push(Avma(start), code)?;
        Some((block, paths.push(&[block], table)?))
    }

    /// Returns a path of these blocks in order.
    pub fn path_of(&mut self, blocks: &[BlockIdx]) -> Option<PathIdx> {
        let code = |&id: &BlockIdx| Some(self.blocks.get(id.index())?.code);
        let codes: Option<Vec<BlockId>> = blocks.iter().map(code).collect();
        match (blocks, codes?) {
            (&[block], _) => Some(self.blocks.get(block.index())?.path),
            (_, codes) => self.paths.push(&codes, &self.table),
        }
    }

    /// Returns a path of blocks given by their indexes in the block table.
    pub fn path_of_codes(&mut self, codes: &[BlockId]) -> Option<PathIdx> {
        self.paths.push(codes, &self.table)
    }

    /// Returns a path of the instructions `from..to` of a block.
    pub fn partial_path(&mut self, block: &BasicBlock, from: u32, to: u32) -> Option<PathIdx> {
        if (from, to) == (0, block.count) {
            return Some(block.path);
        }
        let code = self.table.code(block.code).get(from as usize..to as usize)?;
        let first = code.first()?.offset;
        let start = block.start + u64::from(first);
        let key = (start, to - from);
        if let Some(&path) = self.partial_paths.get(&key) {
            return Some(path);
        }
        let moved: Vec<Code> = code
            .iter()
            .map(|code| Code {
                offset: code.offset - first,
                ..*code
            })
            .collect();
        let (_, path) = Self::define(&mut self.table, &mut self.paths, start, &moved)?;
        self.partial_paths.insert(key, path);
        Some(path)
    }

    /// Returns the address of the last instruction of a path.
    pub fn last_address(&self, path: PathIdx) -> Option<u64> {
        self.paths().last(path).map(|last| last.pc.0)
    }

    /// Returns the address and length of instruction `within` of a block.
    pub fn instruction(&self, block: &BasicBlock, within: u32) -> Option<(u64, Code)> {
        let code = self.table.code(block.code).get(within as usize)?;
        Some((block.start + u64::from(code.offset), *code))
    }

    /// Returns which packets may bind to the instruction at an address.
    pub fn role(&self, address: u64, memory: &dyn Memory) -> Role {
        let mut bytes = [0; MAX_LEN];
        let have = memory.read(Avma(address), &mut bytes);
        let code = bytes.get(..have).unwrap_or(&[]);
        instruction::decode(code, Avma(address), self.current.1).map_or(Role::Plain, |found| found.role)
    }

    /// Invalidates the blocks with bytes in these (first, last) inclusive ranges. Returns whether
    /// there were any.
    pub fn forget(&mut self, changed: &[(Avma, Avma)]) -> bool {
        let mut ends: BTreeMap<u64, u64> = BTreeMap::new();
        for &(first, last) in changed {
            let end = ends.entry(first.0).or_insert(last.0);
            *end = (*end).max(last.0);
        }
        let longest = ends.iter().map(|(first, last)| last - first).max().unwrap_or(0);
        let hit = |block: &BasicBlock| {
            let last = block.end.wrapping_sub(1);
            let near = ends.range(block.start.saturating_sub(longest)..=last);
            near.into_iter().any(|(_, &end)| end >= block.start)
        };
        let blocks = &mut self.blocks;
        let mut forgotten = false;
        let maps = std::iter::once(&mut self.found).chain(self.inactive.values_mut());
        for map in maps {
            map.retain(|_, id| {
                let Some(block) = blocks.get_mut(id.index()) else {
                    return false;
                };
                if !hit(block) {
                    return true;
                }
                (block.exit, block.count) = (Exit::Invalidated, 0);
                forgotten = true;
                false
            });
        }
        self.partial_paths.clear();
        self.recent.clear();
        forgotten
    }
}
