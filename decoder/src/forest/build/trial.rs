//! Calls that begin and end within a path, found by trying the rules on nothing but them.

use super::rules::{Rules, Way};
use super::script::Turn;
use crate::forest::nodes::Nodes;
use crate::forest::stack::Stack;

/// Open calls to try the rules on: one that stands for any, and above it those of the path.
#[derive(Default)]
pub(super) struct Trial {
    stack: Stack,
}

impl Trial {
    /// The most transfers that a call may take from its beginning to its end.
    const LONGEST: usize = 512;

    /// Tries a call, the first of these transfers, and what follows. Gives how many of them there are until
    /// it has ended, when what they do is the same whatever else is open; `unexpected` are then the places
    /// that no open call may return to.
    pub fn whole(
        &mut self,
        turns: &[Turn],
        rules: &mut Rules<'_>,
        unexpected: &mut Vec<u32>,
    ) -> Option<usize> {
        let before = unexpected.len();
        self.stack.begin();
        rules.exchange(&mut self.stack);
        let len = run(turns, rules, unexpected);
        rules.exchange(&mut self.stack);
        if len.is_none() {
            unexpected.truncate(before);
        }
        len
    }

    /// The calls of the last trial, below one that stands for any.
    pub fn calls(&self) -> &Nodes {
        self.stack.nodes()
    }
}

fn run(turns: &[Turn], rules: &mut Rules<'_>, unexpected: &mut Vec<u32>) -> Option<usize> {
    for (at, turn) in turns.iter().take(Trial::LONGEST).enumerate() {
        if !rules.is_settled(&turn.from, turn.to) {
            return None;
        }
        if turn.from.way == Way::IndirectJump && !rules.expects(turn.to.id) {
            unexpected.push(turn.to.id);
        }
        rules.transfer(&turn.from, turn.to, u64::from(turn.offset));
        if rules.depth() <= 1 {
            return Some(at + 1);
        }
    }
    None
}

/// By the number of a transfer that is a call: how many transfers until it is returned from, where the path
/// has that.
pub(super) fn lengths(turns: &[Turn]) -> Vec<Option<usize>> {
    let mut lengths = vec![None; turns.len()];
    let mut open = Vec::new();
    for (at, turn) in turns.iter().enumerate() {
        if matches!(turn.from.way, Way::Call | Way::IndirectCall) && !turn.falls() {
            open.push(at);
        } else if turn.from.way == Way::Return
            && let Some(call) = open.pop()
            && let Some(len) = lengths.get_mut(call)
        {
            *len = Some(at + 1 - call);
        }
    }
    lengths
}
