//! Caches paths of blocks that need no packet. A few trace bytes may lead through them millions of
//! times.

use super::code::{BlockIdx, CodeCache, Exit};
use crate::{Memory, PathIdx};
use rustc_hash::FxHashMap;

/// The longest path in blocks.
const MAX_BLOCKS: usize = 256;
/// The most blocks of all paths together. Beyond it, blocks are followed one by one.
const MAX_TOTAL_BLOCKS: usize = 1 << 22;

/// A path on which no packet is needed.
#[derive(Debug)]
pub(super) struct StraightLinePath {
    /// The path of all its blocks.
    pub path: PathIdx,
    pub blocks: u32,
    pub instructions: u32,
    /// The targets of the direct jumps and calls, in order.
    pub targets: Box<[u64]>,
    /// The blocks that end in a call, outermost first.
    pub calls: Box<[BlockIdx]>,
    /// The next address.
    pub end: u64,
}

/// Straight-line paths by first block.
#[derive(Default)]
pub(super) struct StraightLineCache {
    /// `None`: the path would have fewer than two blocks.
    paths: FxHashMap<BlockIdx, Option<StraightLinePath>>,
    blocks: usize,
}

impl StraightLineCache {
    /// Drops all paths: code has changed.
    pub fn clear(&mut self) {
        self.paths.clear();
        self.blocks = 0;
    }

    /// Returns the straight-line path from a block.
    pub fn from(
        &mut self,
        block: BlockIdx,
        code: &mut CodeCache,
        memory: &dyn Memory,
    ) -> Option<&StraightLinePath> {
        if !self.paths.contains_key(&block) {
            if self.blocks >= MAX_TOTAL_BLOCKS {
                return None;
            }
            let path = follow(block, code, memory);
            self.blocks += path.as_ref().map_or(1, |path| path.blocks as usize);
            self.paths.insert(block, path);
        }
        self.paths.get(&block)?.as_ref()
    }
}

fn follow(block: BlockIdx, code: &mut CodeCache, memory: &dyn Memory) -> Option<StraightLinePath> {
    let (mut at, mut blocks, mut calls) = (block, Vec::new(), Vec::new());
    let (mut instructions, mut targets, mut end) = (0, Vec::new(), 0);
    while blocks.len() < MAX_BLOCKS {
        let here = *code.blocks.get(at.index())?;
        let next = match here.exit {
            Exit::FallThrough => here.end,
            Exit::Jump { target } => target,
            Exit::Call { target } => {
                // A call of the next instruction only reads its own address.
                if target != here.end {
                    calls.push(at);
                }
                target
            }
            _ => break,
        };
        if here.exit != Exit::FallThrough {
            targets.push(next);
        }
        instructions += here.count;
        blocks.push(at);
        end = next;
        // The error is reported when the flow reaches the address.
        let Ok(block) = code.at(next, memory) else { break };
        at = block;
    }
    if blocks.len() < 2 {
        return None;
    }
    Some(StraightLinePath {
        path: code.path_of(&blocks)?,
        blocks: blocks.len() as u32,
        instructions,
        targets: targets.into(),
        calls: calls.into(),
        end,
    })
}
