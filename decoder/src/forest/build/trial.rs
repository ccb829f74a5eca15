//! Calls that begin within a path, found by trying the rules on nothing but them.

use super::rules::{Rules, Way};
use super::script::Turn;
use crate::forest::nodes::Nodes;
use crate::forest::stack::{Frame, Stack};

/// Open calls to try the rules on: one that stands for any, and above it those of the path.
#[derive(Default)]
pub(super) struct Trial {
    stack: Stack,
}

impl Trial {
    /// The most transfers that are tried at once.
    const LONGEST: usize = 1 << 12;

    /// Tries a call, the first of these transfers, and what follows, until it has ended. Gives how many of them
    /// there are, at least one and few enough, while what they do is the same whatever else is open; to `unexpected` come
    /// the places that no open call may return to.
    pub fn run(&mut self, turns: &[Turn], rules: &mut Rules<'_>, unexpected: &mut Vec<u32>) -> usize {
        self.stack.begin();
        rules.exchange(&mut self.stack);
        let turns = turns.get(..Self::LONGEST).unwrap_or(turns);
        let done = run(turns, rules, unexpected);
        rules.exchange(&mut self.stack);
        done
    }

    /// The calls of the last trial, below one that stands for any.
    pub fn calls(&self) -> &Nodes {
        self.stack.nodes()
    }

    /// Those of them that have not ended, outermost first.
    pub fn open(&self) -> &[Frame] {
        self.stack.frames().get(1..).unwrap_or(&[])
    }
}

fn run(turns: &[Turn], rules: &mut Rules<'_>, unexpected: &mut Vec<u32>) -> usize {
    for (at, turn) in turns.iter().enumerate() {
        if !rules.is_settled(&turn.from, turn.to) {
            return at;
        }
        if turn.from.way == Way::IndirectJump && !rules.expects(turn.to.id) {
            unexpected.push(turn.to.id);
        }
        rules.transfer(&turn.from, turn.to, u64::from(turn.offset));
        if rules.depth() <= 1 {
            return at + 1;
        }
    }
    turns.len()
}
