//! The table of paths of a history: blocks that were executed one after the other.

use crate::block::Blocks;
use crate::table::{News, Seen, Table};

/// Paths, each a sequence of blocks of a [`Blocks`], by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths(Table<Path, u32>);

/// A path's row; its parts are its blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    /// Where its blocks begin among the table's parts, and how many there are.
    first: u32,
    len: u32,
    /// Instructions.
    count: u32,
}

impl Paths {
    /// Appends a path and gives its number; `None` when numbers have run out.
    pub fn push(&mut self, parts: &[u32], blocks: &Blocks) -> Option<u32> {
        let count = parts.iter().map(|&part| blocks.count(part)).sum::<u64>();
        self.push_counted(parts, u32::try_from(count).ok()?)
    }

    /// The same of a path whose instructions were counted.
    pub fn push_counted(&mut self, parts: &[u32], count: u32) -> Option<u32> {
        let len = u32::try_from(parts.len()).ok()?;
        let first = self.0.parts.push_all(parts)?;
        self.0.rows.push(Path { first, len, count })
    }

    /// What another that has `seen` so much lacks; then it has seen that, too.
    pub fn news(&self, seen: &mut Seen) -> News<Path, u32> {
        self.0.news(seen)
    }

    /// What came to the table that this one is like.
    pub fn learn(&mut self, news: News<Path, u32>) {
        self.0.learn(news);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.rows.len()
    }

    /// How many instructions a path has; 0 for one that is none.
    pub fn count(&self, id: u32) -> u64 {
        self.0.rows.get(id).map_or(0, |path| u64::from(path.count))
    }

    /// The blocks of a path; empty for one that is none.
    pub fn parts(&self, id: u32) -> &[u32] {
        let path = self.0.rows.get(id);
        path.map_or(&[], |path| self.0.parts.slice(path.first, path.len as usize))
    }

    /// The block of a path that instruction `within` of it is in, and which of the block's it is.
    pub fn part_at(&self, id: u32, within: usize, blocks: &Blocks) -> Option<(u32, usize)> {
        let mut rest = within;
        for &part in self.parts(id) {
            let count = blocks.count(part) as usize;
            if rest < count {
                return Some((part, rest));
            }
            rest -= count;
        }
        None
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.0.memory()
    }
}
