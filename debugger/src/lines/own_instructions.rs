//! Instructions that one call executed itself, its callees left out: walked to where they are near,
//! searched for where they are not.

use super::{LineStarts, runs};
use crate::error::Result;
use backtrail_decoder::{CallId, PcSet};
use backtrail_pt::Avma;

/// The call's instructions to walk over before a search: they take about as long as one.
const NEAR: u32 = 256;

/// A way through the own instructions of a call that stops at those whose address is wanted.
pub(crate) struct OwnInstructions<'a, F> {
    lines: &'a LineStarts<'a>,
    call: CallId,
    wanted: F,
    from: u64,
    /// Instructions from here on, or before here, come next.
    at: u64,
    /// Walked over since the last search.
    walked: u32,
    /// The wanted addresses in the code that the call can have executed itself; set by the first
    /// search.
    pcs: Option<PcSet>,
}

impl<'a, F: Fn(Avma) -> bool> OwnInstructions<'a, F> {
    /// Returns a scan that starts before instruction `at`.
    pub fn new(lines: &'a LineStarts<'a>, call: CallId, at: u64, wanted: F) -> Self {
        Self {
            lines,
            call,
            wanted,
            from: at,
            at,
            walked: 0,
            pcs: None,
        }
    }

    /// Goes on before instruction `at`.
    pub fn seek(&mut self, at: u64) {
        (self.from, self.at, self.walked) = (at, at, 0);
    }

    /// The next one before `end`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next(&mut self, end: u64) -> Result<Option<u64>> {
        let lines = self.lines;
        let end = end.min(lines.forest.call(self.call).end);
        self.at = self.at.max(lines.forest.call(self.call).first);
        while self.at < end {
            if self.is_far() {
                lines.before_search(self.from, self.at)?;
                let found = lines.history.next_at(self.at, self.pcs());
                let Some(found) = found.filter(|&found| found < end) else {
                    self.at = end;
                    return Ok(None);
                };
                self.at = found;
            }
            let Some(here) = lines.forest.call_at(self.at) else {
                return Ok(None);
            };
            let at = self.at;
            if here != self.call {
                self.at = lines
                    .child_around(self.call, here)
                    .map_or(at + 1, |child| child.end.max(at + 1));
            } else {
                self.at += 1;
                if lines.history.pc(at).is_some_and(&self.wanted) {
                    return Ok(Some(at));
                }
            }
            self.walked += 1;
        }
        Ok(None)
    }

    /// The last one at `low` or after.
    ///
    /// # Errors
    /// When canceled.
    pub fn previous(&mut self, low: u64) -> Result<Option<u64>> {
        let lines = self.lines;
        let low = low.max(lines.forest.call(self.call).first);
        while self.at > low {
            if self.is_far() {
                lines.before_search(self.from, self.at)?;
                let found = lines.history.prev_at(self.at, self.pcs());
                let Some(found) = found.filter(|&found| found >= low) else {
                    self.at = low;
                    return Ok(None);
                };
                self.at = found + 1;
            }
            let at = self.at - 1;
            let Some(here) = lines.forest.call_at(at) else {
                return Ok(None);
            };
            if here != self.call {
                // Instructions outside of callees, which should not exist, are passed one by one.
                self.at = lines
                    .child_around(self.call, here)
                    .map_or(at, |child| child.first.min(at));
            } else {
                self.at = at;
                if lines.history.pc(at).is_some_and(&self.wanted) {
                    return Ok(Some(at));
                }
            }
            self.walked += 1;
        }
        Ok(None)
    }

    fn is_far(&mut self) -> bool {
        let far = self.walked >= NEAR;
        if far {
            self.walked = 0;
        }
        far
    }

    /// Returns the set of addresses to search for.
    fn pcs(&mut self) -> &PcSet {
        let (lines, call, wanted) = (self.lines, self.call, &self.wanted);
        self.pcs
            .get_or_insert_with(|| runs(&lines.history.executed_in(&lines.code_of(call)), wanted))
    }
}
