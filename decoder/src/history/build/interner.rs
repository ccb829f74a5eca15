//! Finds the blocks in a stream of instructions and gives equal ones the same id.

use super::starts::Starts;
use crate::block::{Code, MAX_INSTRUCTIONS};
use crate::history::Flow;
use crate::{Instruction, Runs, Version};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

/// Instructions come in one by one; a flow of blocks goes out.
///
/// While the instructions are those of a block seen before, nothing is copied: only how far along
/// that block they are is kept.
#[derive(Debug, Default)]
pub(super) struct Interner {
    flow: Flow,
    starts: Starts,
    open: Option<Open>,
    /// The last instruction, when it came in by itself.
    alone: Option<Instruction>,
    /// Those of the path that came in last for the first time.
    parts: Vec<u32>,
    /// Paths of several blocks, by a hash of these, when there are several engines: they have equal ones.
    paths: FxHashMap<u64, u32>,
    /// Ours for what the engine tells now, and by engine for what the others told.
    names: Names,
    engine: usize,
    of_others: Vec<Names>,
    /// So many runs, the first of each, are the same of all engines.
    shared: usize,
}

/// Our numbers for those of an engine.
#[derive(Debug, Default)]
struct Names {
    /// The path that is a run, and how many instructions it has.
    runs: Vec<(u32, u32)>,
    blocks: Vec<u32>,
}

/// The entry of [`Names`] for what has not come in yet.
const UNSEEN: u32 = u32::MAX;

/// The block that is not complete yet.
#[derive(Debug)]
struct Open {
    start: Avma,
    /// Where the next instruction must be to belong to it.
    next: Avma,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// The first `done` instructions of a known block.
    Known { block: u32, done: usize },
    /// Instructions of no known block.
    New(Vec<Code>),
}

impl Interner {
    /// What is complete of it.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// How many instructions came in.
    pub fn len(&self) -> u64 {
        self.flow.len() + self.open.as_ref().map_or(0, |open| open.len() as u64)
    }

    /// See [`Flow::reserve`].
    pub fn reserve(&mut self, executions: usize) {
        self.flow.reserve(executions);
    }

    /// The last instruction that came in.
    pub fn last(&self) -> Option<Instruction> {
        self.alone.or_else(|| {
            let &path = self.flow.executions().last()?;
            self.flow.runs().last(path)
        })
    }

    pub fn push(&mut self, pc: Avma, len: u8, cofi: Cofi) {
        self.alone = Some(Instruction { pc, len, cofi });
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.next != pc || open.len() >= MAX_INSTRUCTIONS)
        {
            self.cut();
        }
        let open = self.open.get_or_insert_with(|| Open {
            start: pc,
            next: pc,
            body: match self.starts.latest(pc) {
                Some(block) => Body::Known { block, done: 0 },
                None => Body::New(Vec::new()),
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

    /// The engine numbers its runs anew.
    pub fn begin(&mut self) {
        self.names = Names::default();
    }

    /// So many runs, the first of each, are the same of all engines by the same numbers.
    pub fn share(&mut self, runs: usize) {
        self.shared = runs;
    }

    /// The runs that come in are another engine's.
    pub fn of_engine(&mut self, engine: usize) {
        let most = engine.max(self.engine) + 1;
        if self.of_others.len() < most {
            self.of_others.resize_with(most, Names::default);
        }
        for at in [self.engine, engine] {
            if let Some(other) = self.of_others.get_mut(at) {
                std::mem::swap(&mut self.names, other);
            }
        }
        self.engine = engine;
    }

    /// Whole runs of instructions come in.
    pub fn runs(&mut self, runs: Runs<'_>, executed: &[u32]) {
        self.cut();
        if !executed.is_empty() {
            self.alone = None;
        }
        let mut rest = executed;
        while let Some((&run, behind)) = rest.split_first() {
            // Those that are known go in one after the other, until one is not.
            let Self { flow, names, .. } = &mut *self;
            let done = flow.execute_all(rest.iter().map_while(|&run| {
                let known = names.runs.get(run as usize).copied();
                known.filter(|&(path, _)| path != UNSEEN)
            }));
            if done > 0 {
                rest = rest.get(done..).unwrap_or(&[]);
                continue;
            }
            if let Some(path) = self.meet(runs, run) {
                self.flow.execute(path);
            }
            rest = behind;
        }
    }

    /// A run comes in for the first time: the path that we have for it.
    #[cold]
    fn meet(&mut self, runs: Runs<'_>, run: u32) -> Option<u32> {
        let shared = (run as usize) < self.shared;
        if shared && let Some(known) = self.known_of_another(run) {
            self.name(run, known)?;
            return Some(known.0);
        }
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        for &part in runs.paths.parts(run) {
            let known = self.names.blocks.get(part as usize).copied().unwrap_or(UNSEEN);
            parts.push(match known {
                UNSEEN => self.meet_block(runs, part)?,
                known => known,
            });
        }
        // A block that is met has the instructions of that which it is met as.
        let count = u32::try_from(runs.paths.count(run)).ok()?;
        let path = match *parts {
            [block] => self.flow.alone(block)?,
            // Another engine has it by this number, or there is no other.
            _ if shared || self.of_others.is_empty() => self.flow.paths.push_counted(&parts, count)?,
            _ => self.path(&parts, count)?,
        };
        self.parts = parts;
        self.name(run, (path, count))?;
        Some(path)
    }

    /// What another engine's run of this number came in as.
    fn known_of_another(&self, run: u32) -> Option<(u32, u32)> {
        let known = |names: &Names| names.runs.get(run as usize).copied();
        let mut others = self.of_others.iter().filter_map(known);
        others.find(|&(path, _)| path != UNSEEN)
    }

    fn name(&mut self, run: u32, path: (u32, u32)) -> Option<()> {
        let at = run as usize;
        if self.names.runs.len() <= at {
            self.names.runs.resize(at + 1, (UNSEEN, 0));
        }
        *self.names.runs.get_mut(at)? = path;
        Some(())
    }

    /// The path of several blocks with so many instructions, which another engine may have told.
    fn path(&mut self, parts: &[u32], count: u32) -> Option<u32> {
        let paths = &mut self.flow.paths;
        let hash = FxBuildHasher.hash_one(parts);
        if let Some(&path) = self.paths.get(&hash)
            && paths.parts(path) == parts
        {
            return Some(path);
        }
        let new = paths.push_counted(parts, count)?;
        self.paths.insert(hash, new);
        Some(new)
    }

    /// A block comes in for the first time: the one that we have for it.
    fn meet_block(&mut self, runs: Runs<'_>, part: u32) -> Option<u32> {
        let start = runs.blocks.get(part)?.start;
        let block = self.intern(start, runs.blocks.code(part))?;
        let at = part as usize;
        if self.names.blocks.len() <= at {
            self.names.blocks.resize(at + 1, UNSEEN);
        }
        *self.names.blocks.get_mut(at)? = block;
        Some(block)
    }

    /// Ends the open block: something comes between it and the next instruction.
    pub fn cut(&mut self) {
        let Some(open) = self.open.take() else { return };
        let block = match open.body {
            Body::Known { block, done } if self.flow.blocks.code(block).len() == done => Some(block),
            Body::Known { block, done } => {
                let code = self.flow.blocks.code(block).get(..done).unwrap_or(&[]).to_vec();
                self.intern(open.start, &code)
            }
            Body::New(code) => self.intern(open.start, &code),
        };
        if let Some(path) = block.and_then(|block| self.flow.alone(block)) {
            self.flow.execute(path);
        }
    }

    /// The bytes at these addresses, (first, last) inclusive, are others from now on: what is executed
    /// there is another block than before, even if it looks alike.
    pub fn change(&mut self, version: Version, changed: &[(Avma, Avma)]) {
        self.cut();
        self.names.blocks.clear();
        self.flow.blocks.begin_version(version);
        for &(first, last) in changed {
            self.starts.forget(first, last, &self.flow.blocks);
        }
    }

    fn intern(&mut self, start: Avma, code: &[Code]) -> Option<u32> {
        if code.is_empty() {
            return None;
        }
        self.starts.find(start, code, &mut self.flow.blocks)
    }

    pub fn finish(mut self) -> Flow {
        self.cut();
        self.flow.shrink();
        self.flow
    }
}

impl Open {
    fn len(&self) -> usize {
        match &self.body {
            Body::Known { done, .. } => *done,
            Body::New(code) => code.len(),
        }
    }

    fn push(&mut self, code: Code, flow: &Flow) {
        match &mut self.body {
            Body::Known { block, done } => {
                let known = flow.blocks.code(*block);
                if known.get(*done) == Some(&code) {
                    *done += 1;
                    return;
                }
                let mut own = known.get(..*done).unwrap_or(&[]).to_vec();
                own.push(code);
                self.body = Body::New(own);
            }
            Body::New(own) => own.push(code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::Blocks;
    use crate::path::Paths;

    /// Blocks of one instruction each at these addresses, and the path of all of them.
    fn engine(starts: &[u64]) -> (Blocks, Paths) {
        let (mut blocks, mut paths) = (Blocks::default(), Paths::default());
        let code = Code {
            offset: 0,
            len: 2,
            cofi: Cofi::Sequential,
        };
        let block = |&start| blocks.push(Avma(start), &[code]).unwrap();
        let parts: Vec<u32> = starts.iter().map(block).collect();
        paths.push(&parts, &blocks).unwrap();
        (blocks, paths)
    }

    #[test]
    fn equal_paths_of_several_engines_are_one() {
        let engines = [[16, 32, 64], [16, 32, 64], [16, 64, 32]].map(|starts| engine(&starts));
        let mut interner = Interner::default();
        for (number, (blocks, paths)) in engines.iter().enumerate() {
            interner.of_engine(number);
            interner.runs(Runs { blocks, paths }, &[0, 0]);
        }
        let flow = interner.finish();
        assert_eq!(flow.executions(), [0, 0, 0, 0, 1, 1]);
        assert_eq!((flow.paths.len(), flow.blocks.len(), flow.len()), (2, 3, 18));
        assert_eq!(flow.paths.parts(1), [0, 2, 1]);
    }

    #[test]
    fn runs_that_engines_share_are_met_once() {
        let engines = [[16, 32, 64], [16, 64, 32]].map(|starts| engine(&starts));
        let mut interner = Interner::default();
        interner.share(1);
        for (number, (blocks, paths)) in engines.iter().enumerate() {
            interner.of_engine(number);
            interner.runs(Runs { blocks, paths }, &[0, 0]);
        }
        // What the other tells by the same number is not looked at.
        let flow = interner.finish();
        assert_eq!(flow.executions(), [0; 4]);
        assert_eq!((flow.paths.len(), flow.blocks.len(), flow.len()), (1, 3, 12));
    }
}
