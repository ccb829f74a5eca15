//! Interns the blocks in a stream of instructions: equal blocks get the same id.

use super::blocks_by_start::BlocksByStart;
use crate::block::{Code, MAX_INSTRUCTIONS};
use crate::history::Flow;
use crate::{BlockId, Instruction, PathIdx, PathTable, Version};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

/// Converts instructions to a flow of blocks.
///
/// While the instructions match a known block, nothing is copied: only the position in that block
/// is kept.
#[derive(Debug, Default)]
pub(super) struct Interner {
    flow: Flow,
    by_start: BlocksByStart,
    open: Option<OpenBlock>,
    /// The last instruction, if it was pushed individually.
    pushed: Option<Instruction>,
    /// A buffer for the blocks of a new path.
    parts: Vec<BlockId>,
    /// Paths of several blocks by hash, if there are several engines: they have equal ones.
    paths: FxHashMap<u64, PathIdx>,
    /// The ids of the current engine, and of the others by engine.
    ids: IdMap,
    engine: usize,
    other_ids: Vec<IdMap>,
}

/// Our ids for the ids of an engine.
#[derive(Debug, Default)]
struct IdMap {
    /// The path, and its number of instructions.
    paths: Vec<(PathIdx, u32)>,
    blocks: Vec<BlockId>,
}

/// The block that is not complete yet.
#[derive(Debug)]
struct OpenBlock {
    start: Avma,
    /// The address that continues the block.
    next: Avma,
    body: OpenBody,
}

#[derive(Debug)]
enum OpenBody {
    /// The first `done` instructions of a known block.
    Known { block: BlockId, done: usize },
    /// Instructions of a new block.
    New(Vec<Code>),
}

impl Interner {
    /// Returns the completed flow.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns the number of instructions so far.
    pub fn len(&self) -> u64 {
        self.flow.len() + self.open.as_ref().map_or(0, |open| open.len() as u64)
    }

    /// See [`Flow::reserve`].
    pub fn reserve(&mut self, executions: usize) {
        self.flow.reserve(executions);
    }

    /// Returns the last instruction.
    pub fn last(&self) -> Option<Instruction> {
        self.pushed.or_else(|| {
            let &path = self.flow.executions().last()?;
            self.flow.table().last(path)
        })
    }

    pub fn push(&mut self, pc: Avma, len: u8, cofi: Cofi) {
        self.pushed = Some(Instruction { pc, len, cofi });
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.next != pc || open.len() >= MAX_INSTRUCTIONS)
        {
            self.cut();
        }
        let open = self.open.get_or_insert_with(|| OpenBlock {
            start: pc,
            next: pc,
            body: match self.by_start.latest(pc) {
                Some(block) => OpenBody::Known { block, done: 0 },
                None => OpenBody::New(Vec::new()),
            },
        });
        let code = Code {
            offset: (pc - open.start) as u16,
            len,
            cofi,
        };
        open.next = pc + u64::from(len);
        open.push(code, &self.flow);
        if cofi.ends_block() {
            self.cut();
        }
    }

    /// The engine numbers its paths from 0 again.
    pub fn begin(&mut self) {
        self.ids = IdMap::default();
    }

    /// Selects the engine of the next paths.
    pub fn select_engine(&mut self, engine: usize) {
        let most = engine.max(self.engine) + 1;
        if self.other_ids.len() < most {
            self.other_ids.resize_with(most, IdMap::default);
        }
        for at in [self.engine, engine] {
            if let Some(other) = self.other_ids.get_mut(at) {
                std::mem::swap(&mut self.ids, other);
            }
        }
        self.engine = engine;
    }

    /// Appends executed paths.
    pub fn paths(&mut self, table: PathTable<'_>, executed: &[PathIdx]) {
        self.cut();
        if !executed.is_empty() {
            self.pushed = None;
        }
        let mut rest = executed;
        while let Some((&path, after)) = rest.split_first() {
            // Append known paths up to the first unknown one.
            let Self { flow, ids, .. } = &mut *self;
            let done = flow.execute_all(rest.iter().map_while(|&path| {
                let known = ids.paths.get(path.index()).copied();
                known.filter(|&(path, _)| path != PathIdx::NONE)
            }));
            if done > 0 {
                rest = rest.get(done..).unwrap_or(&[]);
                continue;
            }
            if let Some(own) = self.define_path(table, path) {
                self.flow.execute(own);
            }
            rest = after;
        }
    }

    /// Returns our path for a path seen for the first time.
    #[cold]
    fn define_path(&mut self, table: PathTable<'_>, theirs: PathIdx) -> Option<PathIdx> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for &block in table.paths.blocks(theirs) {
            let known = self
                .ids
                .blocks
                .get(block.index())
                .copied()
                .unwrap_or(BlockId::NONE);
            parts.push(match known {
                BlockId::NONE => self.define_block(table, block)?,
                known => known,
            });
        }
        // Interned blocks have equal instructions, so the count is the same.
        let count = u32::try_from(table.paths.count(theirs)).ok()?;
        let path = match *parts {
            [block] => self.flow.single(block)?,
            // No other engine has defined it.
            _ if self.other_ids.is_empty() => self.flow.paths.push_counted(&parts, count)?,
            _ => self.path(&parts, count)?,
        };
        self.parts = parts;
        self.set_path(theirs, (path, count))?;
        Some(path)
    }

    fn set_path(&mut self, theirs: PathIdx, own: (PathIdx, u32)) -> Option<()> {
        let at = theirs.index();
        if self.ids.paths.len() <= at {
            self.ids.paths.resize(at + 1, (PathIdx::NONE, 0));
        }
        *self.ids.paths.get_mut(at)? = own;
        Some(())
    }

    /// Returns a path of these blocks, which another engine may have defined.
    fn path(&mut self, parts: &[BlockId], count: u32) -> Option<PathIdx> {
        let paths = &mut self.flow.paths;
        let hash = FxBuildHasher.hash_one(parts);
        if let Some(&path) = self.paths.get(&hash)
            && paths.blocks(path) == parts
        {
            return Some(path);
        }
        let new = paths.push_counted(parts, count)?;
        self.paths.insert(hash, new);
        Some(new)
    }

    /// Returns our block for a block seen for the first time.
    fn define_block(&mut self, table: PathTable<'_>, theirs: BlockId) -> Option<BlockId> {
        let start = table.blocks.get(theirs)?.start;
        let block = self.intern(start, table.blocks.code(theirs))?;
        let at = theirs.index();
        if self.ids.blocks.len() <= at {
            self.ids.blocks.resize(at + 1, BlockId::NONE);
        }
        *self.ids.blocks.get_mut(at)? = block;
        Some(block)
    }

    /// Ends the open block: an event is before the next instruction.
    pub fn cut(&mut self) {
        let Some(open) = self.open.take() else { return };
        let block = match open.body {
            OpenBody::Known { block, done } if self.flow.blocks.code(block).len() == done => Some(block),
            OpenBody::Known { block, done } => {
                let code = self.flow.blocks.code(block).get(..done).unwrap_or(&[]).to_vec();
                self.intern(open.start, &code)
            }
            OpenBody::New(code) => self.intern(open.start, &code),
        };
        if let Some(path) = block.and_then(|block| self.flow.single(block)) {
            self.flow.execute(path);
        }
    }

    /// Starts a version with changed bytes in these (first, last) inclusive ranges. Code there gets
    /// new blocks, even if the instructions are equal.
    pub fn change(&mut self, version: Version, changed: &[(Avma, Avma)]) {
        self.cut();
        self.ids.blocks.clear();
        self.flow.blocks.begin_version(version);
        for &(first, last) in changed {
            self.by_start.forget(first, last, &self.flow.blocks);
        }
    }

    fn intern(&mut self, start: Avma, code: &[Code]) -> Option<BlockId> {
        if code.is_empty() {
            return None;
        }
        self.by_start.find(start, code, &mut self.flow.blocks)
    }

    pub fn finish(mut self) -> Flow {
        self.cut();
        self.flow.shrink();
        self.flow
    }
}

impl OpenBlock {
    fn len(&self) -> usize {
        match &self.body {
            OpenBody::Known { done, .. } => *done,
            OpenBody::New(code) => code.len(),
        }
    }

    fn push(&mut self, code: Code, flow: &Flow) {
        match &mut self.body {
            OpenBody::Known { block, done } => {
                let known = flow.blocks.code(*block);
                if known.get(*done) == Some(&code) {
                    *done += 1;
                    return;
                }
                let mut own = known.get(..*done).unwrap_or(&[]).to_vec();
                own.push(code);
                self.body = OpenBody::New(own);
            }
            OpenBody::New(own) => own.push(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Blocks;
    use crate::path::Paths;

    /// Returns blocks of one instruction each, and the path of all of them.
    fn engine(starts: &[u64]) -> (Blocks, Paths) {
        let (mut blocks, mut paths) = (Blocks::default(), Paths::default());
        let code = Code {
            offset: 0,
            len: 2,
            cofi: Cofi::Sequential,
        };
        let block = |&start| blocks.push(Avma(start), &[code]).unwrap();
        let parts: Vec<BlockId> = starts.iter().map(block).collect();
        paths.push(&parts, &blocks).unwrap();
        (blocks, paths)
    }

    #[test]
    fn equal_paths_of_engines_are_merged() {
        let engines = [[16, 32, 64], [16, 32, 64], [16, 64, 32]].map(|starts| engine(&starts));
        let mut interner = Interner::default();
        for (number, (blocks, paths)) in engines.iter().enumerate() {
            interner.select_engine(number);
            interner.paths(PathTable { blocks, paths }, &[PathIdx(0); 2]);
        }
        let flow = interner.finish();
        assert_eq!(flow.executions(), [0, 0, 0, 0, 1, 1].map(PathIdx));
        assert_eq!((flow.paths.len(), flow.blocks.len(), flow.len()), (2, 3, 18));
        assert_eq!(flow.paths.blocks(PathIdx(1)), [0, 2, 1].map(BlockId));
    }
}
