//! The executions of functions that the compiler inlined.

use crate::error::{Error, Result};
use crate::functions::{InlinedFunction, regex};
use crate::lines::{
    Begin, BeginEvents, CopyCode, Entrance, LastInstruction, LineStarts, OwnInstructions, scan_begins,
};
use crate::session::{Process, Session, Thread};
use backtrail_decoder::{CallId, PcSet, Watch};
use backtrail_pt::Avma;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The fewest places of a copy that are examined in a call.
const EXAMINED: usize = 4096;

/// An execution of an inlined function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// The function.
    pub function: Arc<str>,
    /// The index of the executed copy.
    pub copy: usize,
    /// The call that executed it.
    pub call: CallId,
    /// Its first instruction.
    pub first: u64,
    /// After its last instruction. Instructions of its caller may be in between.
    pub end: u64,
    /// Whether it begins here, and does not continue an earlier execution.
    pub is_certain: bool,
}

/// Returns the executions of inlined functions in a thread, in order.
///
/// # Errors
///
/// If the beginning of the history is not decoded yet; when canceled.
pub fn executions(
    session: &Session,
    thread: &Thread,
    copies: &[InlinedFunction],
    watch: &Watch<'_>,
) -> Result<Vec<Execution>> {
    if copies.is_empty() || thread.history.is_empty() {
        return Ok(Vec::new());
    }
    thread.needs_beginning()?;
    let search = ExecutionSearch::new(session, thread, watch)?;
    let mut collected = Collected::default();
    search.each(copies, &mut collected)?;
    let Collected { mut begins, lasts } = collected;
    begins.sort_unstable_by_key(|begin| (begin.copy, begin.first));
    // An execution ends before the next one of the same copy in the same call.
    let mut next: HashMap<(usize, CallId), Begin> = HashMap::new();
    let mut found = Vec::with_capacity(begins.len());
    for begin in begins.into_iter().rev() {
        let Some(function) = copies.get(begin.copy) else {
            continue;
        };
        let place = (begin.copy, begin.call);
        let (last, limit) = match next.insert(place, begin) {
            Some(next) => (next.before, next.first),
            None => (
                lasts.get(&place).copied(),
                search.lines.forest.call(begin.call).end,
            ),
        };
        let last = last.unwrap_or(begin.first);
        found.push(Execution {
            function: Arc::clone(&function.name),
            copy: begin.copy,
            call: begin.call,
            first: begin.first,
            end: search.lines.end_after(begin.call, last, limit)?,
            is_certain: begin.entrance == Entrance::Certain,
        });
    }
    found.sort_by_key(in_order);
    Ok(found)
}

/// The begins of executions, and the last instruction of each copy in each call.
#[derive(Default)]
struct Collected {
    begins: Vec<Begin>,
    lasts: HashMap<(usize, CallId), u64>,
}

impl BeginEvents for Collected {
    fn begin(&mut self, begin: Begin) {
        self.begins.push(begin);
    }

    fn last(&mut self, last: LastInstruction) {
        self.lasts.insert((last.copy, last.call), last.index);
    }
}

/// A function that takes begins.
struct EachBegin<F>(F);

impl<F: FnMut(usize, u64)> BeginEvents for EachBegin<F> {
    fn begin(&mut self, begin: Begin) {
        (self.0)(begin.copy, begin.first);
    }

    fn last(&mut self, _: LastInstruction) {}
}

/// Passes on the begins of copies whose module is mapped there.
struct Meant<'a, E> {
    search: &'a ExecutionSearch<'a>,
    copies: &'a [InlinedFunction],
    events: &'a mut E,
}

impl<E: BeginEvents> BeginEvents for Meant<'_, E> {
    fn begin(&mut self, begin: Begin) {
        let function = self.copies.get(begin.copy);
        if function.is_some_and(|function| self.search.is_meant(function, begin.first)) {
            self.events.begin(begin);
        }
    }

    fn last(&mut self, last: LastInstruction) {
        self.events.last(last);
    }
}

/// Calls a function with the index of the copy and the first instruction of each execution of the
/// copies, in no order. Ends take longer, because the last instruction of each execution is
/// searched.
///
/// # Errors
///
/// As [`executions`].
pub fn each_begin(
    session: &Session,
    thread: &Thread,
    copies: &[InlinedFunction],
    watch: &Watch<'_>,
    each: impl FnMut(usize, u64),
) -> Result<()> {
    if copies.is_empty() || thread.history.is_empty() {
        return Ok(());
    }
    thread.needs_beginning()?;
    let search = ExecutionSearch::new(session, thread, watch)?;
    search.each(copies, &mut EachBegin(each))
}

/// Returns the key that sorts executions by time, outer ones before inner ones. A copy has a lower
/// number than those in it.
fn in_order(execution: &Execution) -> (u64, Reverse<u64>, usize) {
    (execution.first, Reverse(execution.end), execution.copy)
}

/// Returns the inlined copies that a thread executed.
///
/// # Errors
///
/// Never, because the expression that matches all names is valid.
pub fn executed_copies(process: &Process, thread: &Thread) -> Result<Vec<InlinedFunction>> {
    let all = regex("")?;
    let everything = PcSet::from_ranges([Avma(0)..Avma(u64::MAX)]);
    let executed = thread.history.executed_in(&everything);
    let was_executed = |range: &Range<Avma>| {
        let at = executed.partition_point(|pc| *pc < range.start);
        executed.get(at).is_some_and(|pc| *pc < range.end)
    };
    let mut copies = Vec::new();
    for (number, epoch) in process.epochs().iter().enumerate() {
        let found = epoch.symbols.inlined_copies_matching(&all).into_iter();
        let found = found.filter(|copy| copy.ranges.iter().any(was_executed));
        copies.extend(found.map(|copy| InlinedFunction::new(copy, number)));
    }
    Ok(copies)
}

/// The inlined copies that a thread executed, to ask for their executions in single calls.
pub struct InlinedCode<'a> {
    search: ExecutionSearch<'a>,
    copies: Vec<InlinedFunction>,
}

impl<'a> InlinedCode<'a> {
    /// Returns the inlined code of a thread.
    ///
    /// # Errors
    ///
    /// If the trace describes no process; when canceled.
    pub fn new(session: &'a Session, thread: &'a Thread, watch: &'a Watch<'a>) -> Result<Self> {
        let search = ExecutionSearch::new(session, thread, watch)?;
        let copies = executed_copies(search.process, thread)?;
        Ok(Self { search, copies })
    }

    /// Returns the copy of an execution.
    #[must_use]
    pub fn copy_of(&self, execution: &Execution) -> Option<&InlinedFunction> {
        self.copies.get(execution.copy)
    }

    /// Returns the executions in a call, in order, and no more than `limit` of each copy, and
    /// whether there may be more. A loop can enter and leave a copy millions of times in one
    /// execution, so that the number of examined places has a limit too.
    ///
    /// # Errors
    ///
    /// If the beginning of the call is not decoded yet; when canceled.
    pub fn executions_in(&self, call: CallId, limit: usize) -> Result<(Vec<Execution>, bool)> {
        let code = self.search.lines.code_of(call);
        let (mut found, mut more) = (Vec::new(), false);
        for (number, function) in self.copies.iter().enumerate() {
            if code.contains(function.copy.begin) {
                more |= self.search.find_in(number, function, call, limit, &mut found)?;
            }
        }
        found.sort_by_key(in_order);
        Ok((found, more))
    }
}

/// A search for executions in a thread.
struct ExecutionSearch<'a> {
    process: &'a Process,
    lines: LineStarts<'a>,
}

impl<'a> ExecutionSearch<'a> {
    fn new(session: &'a Session, thread: &'a Thread, watch: &'a Watch<'a>) -> Result<Self> {
        let process = session.process(thread);
        let none = || Error::Cannot("the trace describes no process".to_owned());
        let process = process.ok_or_else(none)?;
        Ok(Self {
            process,
            lines: LineStarts {
                history: &thread.history,
                is_partial: thread.is_partial(),
                forest: session.forest(thread, watch)?,
                lines: process.lines(),
                statements: &thread.statements,
                filter: None,
                watch,
            },
        })
    }

    /// Reports the begins of executions of the copies.
    fn each(&self, copies: &[InlinedFunction], events: &mut impl BeginEvents) -> Result<()> {
        let mut meant = Meant {
            search: self,
            copies,
            events,
        };
        let code: Vec<&CopyCode> = copies.iter().map(|function| &function.copy).collect();
        scan_begins(&self.lines, &code, &mut meant)
    }

    /// Returns whether the module of a copy is mapped at instruction `index`.
    fn is_meant(&self, function: &InlinedFunction, index: u64) -> bool {
        self.process.has_one_epoch()
            || self.process.epoch_at(self.lines.history.version(index)) == function.epoch
    }

    /// Returns the execution that begins at instruction `index`, without its end; `None`: none
    /// does.
    fn begun_at(&self, number: usize, function: &InlinedFunction, index: u64) -> Result<Option<Execution>> {
        let lines = &self.lines;
        let entrance = function
            .copy
            .entrance(lines, index)?
            .filter(|_| self.is_meant(function, index));
        let found = entrance.zip(lines.forest.call_at(index));
        Ok(found.map(|(entrance, call)| Execution {
            function: Arc::clone(&function.name),
            copy: number,
            call,
            first: index,
            end: index,
            is_certain: entrance == Entrance::Certain,
        }))
    }

    /// Adds the first `limit` executions of one copy in a call. Returns whether there may be more.
    fn find_in(
        &self,
        number: usize,
        function: &InlinedFunction,
        call: CallId,
        limit: usize,
        found: &mut Vec<Execution>,
    ) -> Result<bool> {
        let (lines, copy) = (&self.lines, &function.copy);
        let bounds = lines.forest.call(call);
        let begin = found.len();
        let mut examined = EXAMINED.max(limit.saturating_mul(4));
        let mut inside = OwnInstructions::new(lines, call, bounds.first, |pc| copy.code.contains(pc));
        // Until execution leaves the copy, only its first instruction can begin another execution.
        let ends = |pc| pc == copy.begin || !copy.code.contains(pc);
        let mut next = OwnInstructions::new(lines, call, bounds.first, ends);
        let mut index = inside.next(bounds.end)?;
        // The beginning of one more is the limit of the last.
        while let Some(at) = index
            && found.len() - begin <= limit
            && examined > 0
        {
            examined -= 1;
            found.extend(self.begun_at(number, function, at)?);
            next.seek(at + 1);
            index = match next.next(bounds.end)? {
                Some(again) if lines.history.pc(again) == Some(copy.begin) => Some(again),
                Some(outside) => {
                    inside.seek(outside);
                    inside.next(bounds.end)?
                }
                None => None,
            };
        }
        let more = index.is_some() && examined == 0;
        let mut end = bounds.end;
        for execution in found.iter_mut().skip(begin).rev() {
            execution.end = copy.end(lines, call, execution.first, end)?;
            end = execution.first;
        }
        found.truncate(begin.saturating_add(limit));
        Ok(more)
    }
}
