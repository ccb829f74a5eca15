//! Tables of blocks and paths that another thread follows: what is new in them is handed on.

use crate::Runs;
use crate::block::{Blocks, KnownBlocks, NewBlocks};
use crate::path::{KnownPaths, NewPaths, Paths};

/// The blocks and the paths that are new.
#[derive(Debug)]
pub(super) struct News {
    blocks: NewBlocks,
    paths: NewPaths,
}

/// How many blocks and paths are no news.
#[derive(Debug, Default)]
pub(super) struct Known {
    blocks: KnownBlocks,
    paths: KnownPaths,
}

impl Known {
    /// What is in the tables beyond what is known; then it is known.
    pub fn take_news(&mut self, runs: &Runs<'_>) -> News {
        News {
            blocks: runs.blocks.news(&mut self.blocks),
            paths: runs.paths.news(&mut self.paths),
        }
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
    pub fn learn(&mut self, news: News) {
        self.blocks.learn(news.blocks);
        self.paths.learn(news.paths);
    }
}
