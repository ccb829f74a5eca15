//! The transfers in a path, where one block does not simply follow the other.

use super::ends::{End, Ends};
use super::rules::{Rules, Source};
use crate::Runs;
use crate::forest::places::Place;

/// From one block of a path to the next, or from its last.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub from: Source,
    pub to: Place,
    /// Instructions of the path before it.
    pub offset: u32,
}

impl Turn {
    /// Happens, in a path that begins with instruction `index`.
    pub fn happen(&self, index: u64, rules: &mut Rules<'_>) {
        rules.transfer(&self.from, self.to, index + u64::from(self.offset));
    }
}

/// Lists those of a path.
pub(super) fn list(path: u32, runs: Runs<'_>, rules: &mut Rules<'_>, ends: &mut Ends, turns: &mut Vec<Turn>) {
    let blocks = runs.paths.parts(path);
    ends.meet(blocks, runs, rules);
    let (mut offset, mut before) = (0, None::<&End>);
    for &block in blocks {
        let Some(end) = ends.known(block) else {
            continue;
        };
        if let Some(before) = before.replace(end)
            && before.falls_to != end.first.id
        {
            turns.push(Turn {
                from: before.last,
                to: end.first,
                offset,
            });
        }
        offset += end.count;
    }
}
