//! Tables of blocks and paths that another thread follows: what is new in them is handed on.

use crate::Runs;
use crate::block::{Block, Blocks, Code};
use crate::path::{Path, Paths};
use crate::table::{self, Seen};

/// The blocks and the paths that are new.
#[derive(Debug)]
pub(super) struct News {
    blocks: table::News<Block, Code>,
    paths: table::News<Path, u32>,
}

/// Which blocks and paths were handed on.
#[derive(Debug, Default)]
pub(super) struct HandedOn {
    blocks: Seen,
    paths: Seen,
}

impl HandedOn {
    /// What is in the tables beyond that; then it is handed on, too.
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
