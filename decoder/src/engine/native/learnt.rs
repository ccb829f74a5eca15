//! What is known of the code from one trace to the next.

use super::chunk::Chunks;
use super::code::CodeCache;
use super::memo::Memo;
use crate::Config;
use backtrail_pt::Avma;

/// The code as blocks, and what packets make of them. It is good for traces of the same code that were made in the same way.
pub(crate) struct Learnt {
    pub(super) code: CodeCache,
    pub(super) memo: Memo,
    pub(super) chunks: Chunks,
}

impl Learnt {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            code: CodeCache::default(),
            memo: Memo::new(),
            chunks: Chunks::new(),
        }
    }

    /// How much that is: paths through the code.
    pub fn paths(&self) -> usize {
        self.code.runs().paths.len()
    }

    /// A trace of so many bytes begins.
    pub(super) fn begin(&mut self, bytes: usize, config: &Config) {
        self.memo.begin(config.told_returns);
        self.chunks.begin(bytes);
    }

    /// The bytes at these addresses, (first, last) inclusive, are others from now on. Says whether code was there.
    pub(super) fn forget(&mut self, changed: &[(Avma, Avma)]) -> bool {
        let forgot = self.code.forget(changed);
        if forgot {
            self.memo.clear();
            self.chunks.clear();
        }
        forgot
    }
}
