//! Tables of blocks and paths that another thread follows: what is new in them is handed on.

use crate::Runs;
use crate::block::{Blocks, Code};
use crate::path::Paths;
use backtrail_pt::Avma;

/// The blocks and the paths that are new.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Where each block starts, and how many instructions it has.
    blocks: Vec<(Avma, usize)>,
    code: Vec<Code>,
    /// How many blocks each path has.
    paths: Vec<usize>,
    parts: Vec<u32>,
}

/// How many blocks and paths are no news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    blocks: usize,
    paths: usize,
}

impl News {
    /// What is in the tables beyond what is known; then it is.
    pub fn extend(&mut self, runs: &Runs<'_>, known: &mut Known) {
        let now = Known {
            blocks: runs.blocks.len(),
            paths: runs.paths.len(),
        };
        if now == *known {
            return;
        }
        for id in (known.blocks..now.blocks).map(|id| id as u32) {
            let Some(block) = runs.blocks.get(id) else {
                continue;
            };
            let code = runs.blocks.code(id);
            self.blocks.push((block.start, code.len()));
            self.code.extend_from_slice(code);
        }
        for id in (known.paths..now.paths).map(|id| id as u32) {
            let parts = runs.paths.parts(id);
            self.paths.push(parts.len());
            self.parts.extend_from_slice(parts);
        }
        *known = now;
    }
}

/// The blocks and the paths, as far as the news of them came.
#[derive(Debug, Default)]
pub(super) struct Tables {
    blocks: Blocks,
    paths: Paths,
}

impl Tables {
    /// All of them.
    pub fn runs(&self) -> Runs<'_> {
        Runs {
            blocks: &self.blocks,
            paths: &self.paths,
        }
    }

    /// The news come.
    pub fn learn(&mut self, news: &News) {
        let mut code = &*news.code;
        for &(start, count) in &news.blocks {
            let (own, rest) = code.split_at_checked(count).unwrap_or((code, &[]));
            self.blocks.push(start, own);
            code = rest;
        }
        let mut parts = &*news.parts;
        for &count in &news.paths {
            let (own, rest) = parts.split_at_checked(count).unwrap_or((parts, &[]));
            self.paths.push(own, &self.blocks);
            parts = rest;
        }
    }
}
