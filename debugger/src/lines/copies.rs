//! Where executions of an inlined copy begin.
//!
//! An optimizer moves the instructions of a copy among those of its caller, splits the copy into
//! parts, and makes copies of parts. So the history does not always determine the number of
//! executions. An entrance that may be the continuation of an execution is marked as such.

use super::LineStarts;
use super::own_instructions::OwnInstructions;
use crate::error::Result;
use backtrail_decoder::{CallId, PcSet};
use backtrail_pt::Avma;

/// An inlined copy of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyCode {
    /// The code.
    pub code: PcSet,
    /// The address at which it begins to run, if its instructions were not moved.
    pub begin: Avma,
}

/// An instruction that begins an execution of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entrance {
    /// An execution begins.
    Certain,
    /// An execution begins, or an earlier one continues.
    Possible,
}

impl CopyCode {
    /// Returns whether an execution begins at instruction `index`; `None`: it does not.
    ///
    /// # Errors
    ///
    /// If it depends on history that is not decoded yet; when canceled.
    pub fn entrance(&self, lines: &LineStarts<'_>, index: u64) -> Result<Option<Entrance>> {
        let Some(pc) = lines.history.pc(index).filter(|pc| self.code.contains(*pc)) else {
            return Ok(None);
        };
        let Some(call) = lines.forest.call_at(index) else {
            return Ok(Some(Entrance::Certain));
        };
        let before = lines.own_before(call, index);
        let before = before.and_then(|before| lines.history.pc(before));
        match (
            before.is_some_and(|before| self.code.contains(before)),
            pc == self.begin,
        ) {
            (true, false) => Ok(None),
            (false, true) => Ok(Some(Entrance::Certain)),
            // A loop of the function, or one around it that has no other code.
            (true, true) => Ok(Some(Entrance::Possible)),
            (false, false) => self.other_entrance(lines, call, index, pc),
        }
    }

    /// The same, for an instruction that is not the first of the copy and does not follow one of
    /// it.
    fn other_entrance(
        &self,
        lines: &LineStarts<'_>,
        call: CallId,
        index: u64,
        pc: Avma,
    ) -> Result<Option<Entrance>> {
        let last = |wanted: Avma| OwnInstructions::new(lines, call, index, |at| at == wanted).previous(0);
        let next =
            |wanted: Avma| OwnInstructions::new(lines, call, index + 1, |at| at == wanted).next(u64::MAX);
        let (last_begin, last_here) = (last(self.begin)?, last(pc)?);
        if let Some(begin) = last_begin.filter(|&begin| last_here.is_none_or(|here| here < begin)) {
            // The first entrance here after the copy began continues that execution. A part that
            // begins with the first line may be another copy of the whole.
            let repeats = self.repeats_first_line(lines, call, begin, index, pc)?;
            return Ok(repeats.then_some(Entrance::Possible));
        }
        let leads_in = match (next(self.begin)?, next(pc)?) {
            (Some(begin), Some(again)) => begin < again,
            (begin, _) => begin.is_some(),
        };
        if leads_in {
            // The instructions before the first one were moved there.
            return Ok(None);
        }
        let in_code = |at: Avma| self.code.contains(at);
        if OwnInstructions::new(lines, call, index, in_code)
            .previous(0)?
            .is_some()
        {
            return Ok(Some(Entrance::Possible));
        }
        lines.needs_beginning(call)?;
        Ok(Some(Entrance::Certain))
    }

    /// Returns whether the code at `pc` is of the copy's first line again, and other lines of it
    /// were executed since `begin`. If the copy has only one line, every entrance repeats it.
    fn repeats_first_line(
        &self,
        lines: &LineStarts<'_>,
        call: CallId,
        begin: u64,
        index: u64,
        pc: Avma,
    ) -> Result<bool> {
        let line = |pc: Avma| {
            let statement = lines.lines.statement(lines.point_in(call, pc));
            statement.map(|statement| statement.line)
        };
        let first = line(self.begin);
        if first.is_none() || line(pc) != first {
            return Ok(false);
        }
        let is_other = |at: Avma| self.code.contains(at) && line(at).is_some() && line(at) != first;
        let other = OwnInstructions::new(lines, call, index, is_other).previous(begin)?;
        let executed = lines.history.executed_in(&self.code);
        Ok(other.is_some() || !executed.into_iter().any(is_other))
    }

    /// Returns the end of the execution that begins at `first` in a call.
    ///
    /// The end is after its last instruction before `limit`, and after its own calls.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn end(&self, lines: &LineStarts<'_>, call: CallId, first: u64, limit: u64) -> Result<u64> {
        let in_code = |at: Avma| self.code.contains(at);
        let last = OwnInstructions::new(lines, call, limit, in_code).previous(first)?;
        lines.end_after(call, last.unwrap_or(first), limit)
    }
}
