//! The line starts that a move with a filter chooses from: those of the user's own code.

use super::{FrameKey, LineStarts};
use crate::code::{CodePoint, Statement};
use crate::error::Result;
use backtrail_decoder::{Call, CallId, PcSet};
use std::sync::Arc;

impl LineStarts<'_> {
    /// Returns whether a move passes over the code at a point, wherever it was called.
    #[must_use]
    pub fn passes_over(&self, at: CodePoint) -> bool {
        self.filter.is_some_and(|filter| {
            filter.libraries && self.lines.is_library(at) || self.lines.is_skipped(at, &filter.rules)
        })
    }

    /// The statement at a point, unless a move passes over it.
    pub(super) fn stop_statement(&self, at: CodePoint) -> Option<Statement> {
        let statement = self.lines.statement(at)?;
        (!self.passes_over(at)).then_some(statement)
    }

    /// Returns the executed instructions at which a move can stop.
    pub(super) fn stops(&self) -> Arc<PcSet> {
        let find = || Arc::new(self.executed_where(|at| self.stop_statement(at).is_some()));
        let Some(filter) = self.filter.filter(|filter| !filter.is_empty()) else {
            return Arc::clone(self.statements.all.get_or_init(find));
        };
        let mut last = self.statements.filtered.borrow_mut();
        match &*last {
            Some((of, known)) if of == filter => Arc::clone(known),
            _ => {
                let found = find();
                *last = Some((filter.clone(), Arc::clone(&found)));
                found
            }
        }
    }

    /// Returns the outermost call around instruction `index` that was made by a skipped function.
    ///
    /// Calls around instruction `from` do not count, because the move begins inside of them.
    pub(super) fn skipped_call(&self, index: u64, from: u64) -> Result<Option<Call>> {
        let Some(filter) = self.filter.filter(|filter| !filter.rules.is_empty()) else {
            return Ok(None);
        };
        let Some(mut id) = self.forest.call_at(index) else {
            return Ok(None);
        };
        let mut outermost = None;
        loop {
            let call = self.forest.call(id);
            if (call.first..call.end).contains(&from) {
                return Ok(outermost);
            }
            let Some(parent) = call.parent else {
                self.needs_beginning(id)?;
                return Ok(outermost);
            };
            if self.lines.is_skipped(self.site(parent, &call), &filter.rules) {
                outermost = Some(call);
            }
            id = parent;
        }
    }

    /// Returns where `parent` called `call`; without the call in the history, its entry.
    #[must_use]
    pub fn site(&self, parent: CallId, call: &Call) -> CodePoint {
        let site = self.own_before(parent, call.first);
        let pc = site.and_then(|site| self.history.pc(site));
        self.point(call.first, pc.unwrap_or(self.forest.call(parent).function))
    }

    /// Returns whether a move passes over the code at an index.
    fn passes_over_index(&self, index: u64) -> bool {
        let pc = self.history.pc(index);
        pc.is_some_and(|pc| self.passes_over(self.point(index, pc)))
    }

    /// The first line start after `from` and before `limit` in `frame` or in callers without a
    /// passed-over one between. After such a caller is reached, the first of any frame.
    ///
    /// # Errors
    ///
    /// If it may depend on history that is not decoded yet; when canceled.
    pub fn next_stop_in_frame(&self, from: u64, frame: FrameKey, limit: u64) -> Result<Option<u64>> {
        let limit = limit.min(self.history.len());
        if self.passes_over_index(from) {
            return self.next_start(from, limit);
        }
        let mut now = frame;
        let mut at = from.saturating_add(1);
        while at < limit {
            if let Some(found) = self.next_of_call(at, now, limit)? {
                return match self.passes_over_index(found) {
                    true => self.next_start(found, limit),
                    false => Ok(Some(found)),
                };
            }
            let call = self.forest.call(now.call);
            at = at.max(call.end);
            match self.around(now)? {
                Some(caller) if !self.passes_over(self.site(caller.call, &call)) => now = caller,
                _ => return self.next_start(at.saturating_sub(1), limit),
            }
        }
        Ok(None)
    }

    /// The mirror of [`Self::next_stop_in_frame`]: the last one before `from`, at `limit` or after.
    /// `seen` is the instruction whose frame is `frame`.
    ///
    /// # Errors
    ///
    /// If it may depend on history that is not decoded yet; when canceled.
    pub fn previous_stop_in_frame(
        &self,
        from: u64,
        seen: u64,
        frame: FrameKey,
        limit: u64,
    ) -> Result<Option<u64>> {
        if self.passes_over_index(seen) {
            return self.previous_start(from, limit);
        }
        let mut now = frame;
        let mut at = from;
        while at > limit {
            if let Some(found) = self.previous_of_call(at, now, limit)? {
                return match self.passes_over_index(found) {
                    true => self.previous_start(found, limit),
                    false => Ok(Some(found)),
                };
            }
            let call = self.forest.call(now.call);
            if call.first < limit {
                break;
            }
            at = at.min(call.first);
            match self.around(now)? {
                Some(caller) if !self.passes_over(self.site(caller.call, &call)) => now = caller,
                _ => return self.previous_start(at, limit),
            }
        }
        Ok(None)
    }
}
