//! `nexti` and `reverse-nexti`.

use super::{Direction, Steps};

impl Steps<'_> {
    /// The nearest instruction that the current call, or a call around it, executed itself.
    pub(super) fn next_instruction(&self, direction: Direction, from: u64) -> Option<u64> {
        let mut call = self.call(direction, from)?;
        let mut at = from;
        match direction {
            Direction::Forward => {
                at += 1;
                while at < self.limit(direction, from) {
                    let current = self.forest().call(call);
                    if at >= current.end {
                        match current.parent {
                            Some(parent) => call = parent,
                            None => return Some(at),
                        }
                    } else if self.forest().call_at(at)? == call {
                        return Some(at);
                    } else {
                        let inner = self.forest().call_at(at)?;
                        at = self
                            .lines
                            .child_around(call, inner)
                            .map_or(at + 1, |child| child.end.max(at + 1));
                    }
                }
                None
            }
            Direction::Backward => loop {
                if let Some(before) = self.lines.own_before(call, at) {
                    return Some(before);
                }
                let current = self.forest().call(call);
                at = at.min(current.first);
                match current.parent {
                    Some(parent) => call = parent,
                    None => return at.checked_sub(1),
                }
            },
        }
    }
}
