//! Blocks that follow one another without a packet, as one run: a trace of a few bytes may lead through them millions of
//! times.

use super::code::{CodeCache, Exit};
use crate::Memory;
use rustc_hash::FxHashMap;

/// The longest way that is one run, in blocks.
const MAX_BLOCKS: usize = 64;
/// The most blocks of all of them together: more are followed one by one.
const MAX_PARTS: usize = 1 << 22;

/// A way that no packet decides.
#[derive(Clone, Debug)]
pub(super) struct Straight {
    /// The run of all its blocks.
    pub run: u32,
    pub blocks: u32,
    pub instructions: u32,
    /// Direct jumps and calls on it.
    pub direct: u32,
    /// The blocks that end in a call, outermost first.
    pub calls: Box<[u32]>,
    /// The address that is next.
    pub end: u64,
}

/// Such ways by the blocks that they begin with.
#[derive(Clone, Default)]
pub(super) struct StraightRuns {
    /// `None`: fewer than two blocks follow one another.
    found: FxHashMap<u32, Option<Straight>>,
    parts: usize,
}

impl StraightRuns {
    /// Forgets all: code has changed.
    pub fn clear(&mut self) {
        self.found.clear();
        self.parts = 0;
    }

    /// Returns the way from a block.
    pub fn from(&mut self, block: u32, code: &mut CodeCache, memory: &dyn Memory) -> Option<&Straight> {
        if !self.found.contains_key(&block) {
            if self.parts >= MAX_PARTS {
                return None;
            }
            let way = follow(block, code, memory);
            self.parts += way.as_ref().map_or(1, |way| way.blocks as usize);
            self.found.insert(block, way);
        }
        self.found.get(&block)?.as_ref()
    }
}

fn follow(block: u32, code: &mut CodeCache, memory: &dyn Memory) -> Option<Straight> {
    let (mut at, mut parts, mut calls) = (block, Vec::new(), Vec::new());
    let (mut instructions, mut direct, mut end) = (0, 0, 0);
    while parts.len() < MAX_BLOCKS {
        let here = *code.blocks.get(at as usize)?;
        let next = match here.exit {
            Exit::Through => here.end,
            Exit::Jump { target } => target,
            Exit::Call { target } => {
                // A call of the next instruction reads its own address.
                if target != here.end {
                    calls.push(at);
                }
                target
            }
            _ => break,
        };
        direct += u32::from(here.exit != Exit::Through);
        instructions += here.count;
        parts.push(at);
        end = next;
        // Whoever comes to an address without code says so.
        let Ok(block) = code.at(next, memory) else { break };
        at = block;
    }
    if parts.len() < 2 {
        return None;
    }
    Some(Straight {
        run: code.path(&parts)?,
        blocks: parts.len() as u32,
        instructions,
        direct,
        calls: calls.into(),
        end,
    })
}
