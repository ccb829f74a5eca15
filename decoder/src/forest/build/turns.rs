//! The transfers in a path, where one block does not simply follow the other.

use super::ends::Ends;
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
    let mut offset = 0;
    let mut last = None;
    for &block in runs.paths.parts(path) {
        let Some((first, end)) = ends.of(block, runs, rules) else {
            continue;
        };
        if let Some(from) = last.replace(end)
            && !from.falls(first)
        {
            turns.push(Turn {
                from,
                to: first,
                offset,
            });
        }
        offset += runs.blocks.count(block) as u32;
    }
}
