//! The transfers in a path, where a block does not fall through to the next.

use super::block_ends::{BlockEndTable, BlockEnds};
use super::rules::{Rules, Source};
use crate::forest::code_sites::CodeSite;
use crate::{PathIdx, PathTable};

/// A transfer from one block of a path to the next.
#[derive(Clone, Copy)]
pub(super) struct Transfer {
    pub from: Source,
    pub to: CodeSite,
    /// The number of instructions of the path before it.
    pub offset: u32,
}

impl Transfer {
    /// Applies the rules to it, in a path that starts with instruction `index`.
    pub fn happen(&self, index: u64, rules: &mut Rules<'_>) {
        rules.transfer(&self.from, self.to, index + u64::from(self.offset));
    }
}

/// Lists the transfers of a path.
pub(super) fn list(
    path: PathIdx,
    table: PathTable<'_>,
    rules: &mut Rules<'_>,
    ends: &mut BlockEndTable,
    transfers: &mut Vec<Transfer>,
) {
    let blocks = table.paths.blocks(path);
    ends.look_up(blocks, table, rules);
    let (mut offset, mut before) = (0, None::<&BlockEnds>);
    for &block in blocks {
        let Some(end) = ends.known(block) else {
            continue;
        };
        if let Some(before) = before.replace(end)
            && before.falls_to != end.first.id
        {
            transfers.push(Transfer {
                from: before.last,
                to: end.first,
                offset,
            });
        }
        offset += end.count;
    }
}
