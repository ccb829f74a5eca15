//! `advance` and `reverse-advance`.

use super::{Direction, Steps};
use crate::breakpoint::Hits;
use crate::error::Result;

impl Steps<'_> {
    /// The nearest hit of a location, or the way out of the current frame when that is nearer.
    pub(super) fn advance(&self, hits: &Hits, direction: Direction, from: u64) -> Result<Option<u64>> {
        let out = self.finish_innermost(direction, from)?;
        let limit = self.limit(direction, from);
        Ok(match direction {
            Direction::Forward => {
                let reach = out.unwrap_or(limit).min(limit);
                hits.next(&self.lines, from.saturating_add(1), reach)?.or(out)
            }
            Direction::Backward => {
                let reach = out.unwrap_or(limit).max(limit);
                hits.previous(&self.lines, from, reach)?.or(out)
            }
        })
    }
}
