//! What is known of the code from one trace to the next.

use super::chunk::Chunks;
use super::code::CodeCache;
use super::memo::Memo;
use super::straight::StraightRuns;
use crate::Config;
use backtrail_pt::Avma;
use std::sync::atomic::{AtomicU64, Ordering};

/// The code as blocks, and what packets make of them. It is good for traces of the same code that were made in the same way.
#[derive(Clone)]
pub(crate) struct Learnt {
    pub(super) code: CodeCache,
    pub(super) memo: Memo,
    pub(super) chunks: Chunks,
    pub(super) straight: StraightRuns,
    common: Common,
}

/// What those have in common that were copied from one: so many paths, the first of each. Those have the same number; 0 is nobody's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Common {
    number: u64,
    paths: usize,
}

impl Learnt {
    /// Nothing.
    pub fn new() -> Self {
        Self {
            code: CodeCache::default(),
            memo: Memo::new(),
            chunks: Chunks::new(),
            straight: StraightRuns::default(),
            common: Common::default(),
        }
    }

    /// How much that is: paths through the code.
    pub fn paths(&self) -> usize {
        self.code.runs().paths.len()
    }

    /// What another engine begins with that decodes the same trace: `other`, if that was copied from this one, or this from it, not long ago,
    /// and else a copy.
    pub fn twin(&mut self, other: Self) -> Self {
        static COPIED: AtomicU64 = AtomicU64::new(0);
        let paths = self.paths();
        if paths == 0 {
            return other;
        }
        if self.common.paths < paths / 2 {
            self.common = Common {
                number: 1 + COPIED.fetch_add(1, Ordering::Relaxed),
                paths,
            };
        }
        match other.common == self.common {
            true => other,
            false => self.clone(),
        }
    }

    /// How many paths, the first of each, all of these have in common, by the same numbers.
    pub fn in_common(all: &[Self]) -> usize {
        match all {
            [first, rest @ ..] if rest.iter().all(|other| other.common == first.common) => first.common.paths,
            _ => 0,
        }
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
            self.straight.clear();
        }
        forgot
    }
}
