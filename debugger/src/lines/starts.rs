//! The nearest line starts of any frame: what `step` and `reverse-step` choose from.

use super::{LineStarts, runs};
use crate::code::{CodePoint, Statement};
use crate::error::Result;
use backtrail_decoder::PcSet;
use backtrail_pt::Avma;

/// Instructions without a statement to walk over before a search: they take about as long as one.
const NEAR: u32 = 4096;

impl LineStarts<'_> {
    /// The first line start after `from` and before `limit`.
    ///
    /// # Errors
    /// When canceled.
    pub fn next_start(&self, from: u64, limit: u64) -> Result<Option<u64>> {
        let limit = limit.min(self.history.len());
        let mut walker = self.history.walk(from.saturating_add(1));
        let mut before = self.statement(from);
        let mut before_call = self.forest.call_at(from);
        let mut outside = 0;
        loop {
            let index = walker.index();
            if index >= limit {
                return Ok(None);
            }
            if outside >= NEAR {
                self.before_search(from, index)?;
                outside = 0;
                let Some(found) = self.history.next_at(index, &self.stops()) else {
                    return Ok(None);
                };
                walker = self.history.walk(found);
                continue;
            }
            let Some(instruction) = walker.next() else {
                return Ok(None);
            };
            let statement = self.stop_statement(self.point(index, instruction.pc));
            if let Some(statement) = statement {
                outside = 0;
                let call = self.forest.call_at(index);
                let goes_on = before_call == call && before == Some(statement);
                before_call = call;
                if !goes_on && self.is_start(index)? {
                    let Some(skipped) = self.skipped_call(index, from)? else {
                        return Ok(Some(index));
                    };
                    self.report(from, index)?;
                    walker = self.history.walk(skipped.end.max(index.saturating_add(1)));
                    (before, before_call) = (None, None);
                    continue;
                }
            } else {
                outside += 1;
                before_call = None;
            }
            before = statement;
            self.passed(from, index)?;
        }
    }

    /// The last line start before `from`, at `limit` or after.
    ///
    /// # Errors
    /// When canceled.
    pub fn previous_start(&self, from: u64, limit: u64) -> Result<Option<u64>> {
        let mut walker = self.history.walk(from);
        let mut ahead: Option<(u64, Statement)> = None;
        let (mut outside, mut repeated) = (0, 0);
        while walker.index() > limit {
            if outside >= NEAR {
                self.before_search(from, walker.index())?;
                outside = 0;
                let Some(found) = self.history.prev_at(walker.index(), &self.stops()) else {
                    return Ok(None);
                };
                walker = self.history.walk(found + 1);
                continue;
            }
            let Some(instruction) = walker.prev() else { break };
            let index = walker.index();
            let statement = self.stop_statement(self.point(index, instruction.pc));
            if let Some((later, of_later)) = ahead {
                let goes_on =
                    statement == Some(of_later) && self.forest.call_at(index) == self.forest.call_at(later);
                if !goes_on && self.is_start(later)? {
                    let Some(skipped) = self.skipped_call(later, from)? else {
                        return Ok(Some(later));
                    };
                    self.report(from, later)?;
                    walker = self.history.walk(skipped.first);
                    ahead = None;
                    continue;
                }
                repeated = if goes_on { repeated + 1 } else { 0 };
            }
            if repeated >= NEAR
                && let Some(statement) = statement
            {
                self.before_search(from, index)?;
                repeated = 0;
                if let Some(first) = self.first_of_repeated(index, limit, statement) {
                    walker = self.history.walk(first);
                    ahead = Some((first, statement));
                    continue;
                }
            }
            outside = if statement.is_some() { 0 } else { outside + 1 };
            ahead = statement.map(|statement| (index, statement));
            self.passed(from, index)?;
        }
        match ahead {
            Some((index, _)) if self.is_start(index)? && self.skipped_call(index, from)?.is_none() => {
                Ok(Some(index))
            }
            _ => Ok(None),
        }
    }

    /// Returns the first of the instructions from `limit` up to `index` that belong to one
    /// statement and one call without another between them. `None`: a search does not find it.
    fn first_of_repeated(&self, index: u64, limit: u64, statement: Statement) -> Option<u64> {
        let mut others = self.statements.others.borrow_mut();
        if others.as_ref().is_none_or(|(of, _)| *of != statement) {
            let found = self.executed_where(|at| self.lines.statement(at) != Some(statement));
            *others = Some((statement, found));
        }
        let (_, others) = others.as_ref()?;
        let other = self.history.prev_at(index, others);
        let mut first = other.map_or(0, |other| other + 1).max(limit);
        // A call on the same line begins another run.
        if let Some(begun) = self.forest.last_begun(index + 1) {
            first = first.max(self.forest.call(begun).first);
        }
        let is_one_call = self.forest.call_at(first) == self.forest.call_at(index);
        (first < index && is_one_call).then_some(first)
    }

    /// The executed instructions that belong to a statement and that no symbol covers.
    pub(super) fn nameless(&self) -> &PcSet {
        let is_nameless =
            |at: CodePoint| self.lines.statement(at).is_some() && self.lines.function(at).is_empty();
        self.statements
            .nameless
            .get_or_init(|| self.executed_where(is_nameless))
    }

    /// Returns the executed addresses of the wanted points. If modules were replaced, an address is
    /// wanted if one of its points is.
    pub(super) fn executed_where(&self, is_wanted: impl Fn(CodePoint) -> bool) -> PcSet {
        if self.lines.epochs() == 1 {
            return runs(&self.history.executed_pcs(), |pc| {
                is_wanted(CodePoint { pc, epoch: 0 })
            });
        }
        let mut pcs: Vec<Avma> = Vec::new();
        for (block, _) in self.history.blocks().filter(|&(_, count)| count > 0) {
            let epoch = self.lines.epoch_at(self.history.block_version(block));
            let block = self.history.block(block).map(|found| found.pc);
            pcs.extend(block.filter(|&pc| is_wanted(CodePoint { pc, epoch })));
        }
        PcSet::from_ranges(pcs.into_iter().map(|pc| pc..pc + 1))
    }
}
