//! `nexti` and `reverse-nexti`.

use super::{Direction, Steps};
use crate::error::Result;

impl Steps<'_> {
    /// The nearest instruction that the current call, or a call around it, executed itself.
    pub(super) fn next_instruction(&self, direction: Direction, from: u64) -> Result<Option<u64>> {
        let Some(mut call) = self.call(direction, from) else {
            return Ok(None);
        };
        let mut at = from;
        match direction {
            Direction::Forward => {
                at += 1;
                while at < self.limit(direction, from) {
                    let current = self.forest().call(call);
                    if at >= current.end {
                        match current.parent {
                            Some(parent) => call = parent,
                            None => {
                                self.lines.needs_beginning(call)?;
                                return Ok(Some(at));
                            }
                        }
                    } else {
                        let Some(inner) = self.forest().call_at(at) else {
                            return Ok(None);
                        };
                        if inner == call {
                            return Ok(Some(at));
                        }
                        at = self
                            .lines
                            .child_around(call, inner)
                            .map_or(at + 1, |child| child.end.max(at + 1));
                    }
                }
                Ok(None)
            }
            Direction::Backward => loop {
                if let Some(before) = self.lines.own_before(call, at) {
                    return Ok(Some(before));
                }
                let current = self.forest().call(call);
                at = at.min(current.first);
                match current.parent {
                    Some(parent) => call = parent,
                    None => {
                        self.lines.needs_beginning(call)?;
                        return Ok(at.checked_sub(1));
                    }
                }
            },
        }
    }
}
