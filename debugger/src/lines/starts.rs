//! The nearest line starts of any frame: what `step` and `reverse-step` choose from.

use super::{LineStarts, runs};
use crate::code::Statement;
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
        let mut before = self.history.instruction(from).map(|found| found.pc);
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
                let Some(found) = self.history.next_at(index, self.statements()) else {
                    return Ok(None);
                };
                walker = self.history.walk(found);
                continue;
            }
            let Some(instruction) = walker.next() else {
                return Ok(None);
            };
            let statement = self.lines.statement(instruction.pc);
            if let Some(statement) = statement {
                outside = 0;
                let call = self.forest.call_at(index);
                let goes_on =
                    before_call == call && before.and_then(|pc| self.lines.statement(pc)) == Some(statement);
                before_call = call;
                if !goes_on && self.is_start(index)? {
                    return Ok(Some(index));
                }
            } else {
                outside += 1;
                before_call = None;
            }
            before = Some(instruction.pc);
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
        let mut outside = 0;
        while walker.index() > limit {
            if outside >= NEAR {
                self.before_search(from, walker.index())?;
                outside = 0;
                let Some(found) = self.history.prev_at(walker.index(), self.statements()) else {
                    return Ok(None);
                };
                walker = self.history.walk(found + 1);
                continue;
            }
            let Some(instruction) = walker.prev() else { break };
            let index = walker.index();
            let statement = self.lines.statement(instruction.pc);
            if let Some((later, of_later)) = ahead {
                let goes_on =
                    statement == Some(of_later) && self.forest.call_at(index) == self.forest.call_at(later);
                if !goes_on && self.is_start(later)? {
                    return Ok(Some(later));
                }
            }
            outside = if statement.is_some() { 0 } else { outside + 1 };
            ahead = statement.map(|statement| (index, statement));
            self.passed(from, index)?;
        }
        match ahead {
            Some((index, _)) if self.is_start(index)? => Ok(Some(index)),
            _ => Ok(None),
        }
    }

    fn statements(&self) -> &PcSet {
        let is_statement = |pc: Avma| self.lines.statement(pc).is_some();
        let find = || runs(&self.history.executed_pcs(), is_statement);
        self.statements.all.get_or_init(find)
    }

    /// The executed instructions that belong to a statement and that no symbol covers.
    pub(super) fn nameless(&self) -> &PcSet {
        let is_nameless = |pc: Avma| self.lines.statement(pc).is_some() && self.lines.function(pc).is_empty();
        let find = || {
            let executed = self.history.executed_in(self.statements());
            runs(&executed, is_nameless)
        };
        self.statements.nameless.get_or_init(find)
    }
}
