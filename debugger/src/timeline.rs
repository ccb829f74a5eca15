//! The states of a thread over time: running, off-CPU, or in a gap, with time bounds for each
//! beginning and end.
//!
//! Only the marks between instructions are read, so the cost depends on the number of system calls.

pub mod chart;
pub mod flame;
pub mod grid;

use crate::error::Result;
use crate::latency::time_bounds::{OffCpu, TimeBound, TimeBounds};
use crate::session::{Session, Thread};
use backtrail_decoder::{Entered, Forest, History, Mark, MarkKind, Resumed, Stage, TimeEstimate, Watch};
use backtrail_pt::{Avma, Cofi, Tsc};
use serde::Serialize;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadState {
    /// The thread executed instructions of its history.
    Ran,
    /// The thread was out of the traced code: in the kernel, or waiting for an event or a CPU.
    OffCpu,
    /// History is missing.
    Gap,
    /// The thread existed, in an unknown state.
    Unknown,
}

/// A thread in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSpan {
    /// The state.
    pub state: ThreadState,
    /// The bounds of its beginning.
    pub from: TimeEstimate,
    /// The bounds of its end; the upper bound is open if the trace ends before.
    pub to: TimeEstimate,
    /// The first instruction of it, or that it came before.
    pub first: u64,
    /// One past its last instruction; `first` where none ran.
    pub end: u64,
}

/// From one time stamp to another, in TSC ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// States that end before this are left out.
    pub from: Tsc,
    /// States that begin after this are left out.
    pub to: Tsc,
}

/// The number of marks between two checks for cancellation.
const OFTEN: usize = 4096;

impl Window {
    /// All that the trace has a time for; `None`: it has none.
    #[must_use]
    pub fn whole(session: &Session) -> Option<Self> {
        let histories = || session.threads().iter().map(|thread| &thread.history);
        let from = histories().filter_map(|history| history.first_stamp()).min()?;
        // A stamp after the last instruction belongs to a later event, such as saving the core.
        let ends = histories().filter_map(|history| history.arrival(history.len()));
        let to = ends.map(|end| end.tsc).chain(session.times().zero).max()?;
        Some(Self {
            from,
            to: to.max(from),
        })
    }
}

impl StateSpan {
    fn new(state: ThreadState, from: TimeEstimate, to: TimeEstimate, first: u64, end: u64) -> Self {
        Self {
            state,
            from,
            to,
            first,
            end,
        }
    }
}

/// Calls `visit` with the states of a thread in a window, in order of time.
///
/// The time before the first time stamp is left out. So is the time after the last instruction,
/// unless the thread is known to have existed then.
///
/// # Errors
///
/// Those of `visit`; if the states depend on history that is not decoded yet; when canceled.
pub fn visit_states(
    session: &Session,
    thread: &Thread,
    window: Window,
    watch: &Watch<'_>,
    visit: &mut dyn FnMut(StateSpan) -> Result<()>,
) -> Result<()> {
    let history = &thread.history;
    let Some(begin) = history.first_stamp() else {
        return thread.needs_beginning();
    };
    // A repeated stamp is left out, so an earlier position may have the same time.
    if window.from <= begin {
        thread.needs_beginning()?;
    }
    let builder = StateBuilder {
        // The recorder's single-stepping engine writes of a system call when it has returned.
        dated_late: session
            .made_by()
            .is_some_and(|command| command.contains("--engine step")),
        ..StateBuilder::new(history, window)
    };
    states(builder, || HistoryEnd::of(session, thread), watch, visit)
}

/// The states of a history, and `end` after it.
fn states(
    mut builder: StateBuilder<'_>,
    end: impl FnOnce() -> HistoryEnd,
    watch: &Watch<'_>,
    visit: &mut dyn FnMut(StateSpan) -> Result<()>,
) -> Result<()> {
    let history = builder.moments.history;
    let marks = history.marks_in(builder.ran_from..history.len());
    for (number, group) in marks.chunk_by(|one, next| one.index == next.index).enumerate() {
        let Some(mark) = group.first() else { continue };
        if number % OFTEN == 0 {
            watch.report(Stage::Search, mark.index, history.len())?;
        }
        builder.between(group, visit)?;
        if builder.is_over {
            return Ok(());
        }
    }
    builder.end(end(), visit)
}

/// The known state of a thread after its last instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HistoryEnd {
    /// The state.
    state: ThreadState,
    /// The end of the thread's known existence; `None` if it is unknown.
    until: Option<Tsc>,
    /// Whether the thread crashed.
    crashed: bool,
}

impl HistoryEnd {
    fn of(session: &Session, thread: &Thread) -> Self {
        let history = &thread.history;
        let last = history.marks_in(history.len()..u64::MAX);
        let last_executed = history
            .len()
            .checked_sub(1)
            .and_then(|last| history.instruction(last));
        let is_gap = last.iter().any(|mark| is_gap(mark, 0));
        let state = match OffCpu::of(last) {
            _ if is_gap => ThreadState::Gap,
            Some(_) => ThreadState::OffCpu,
            // A system call that did not return.
            None if last_executed.is_some_and(|last| last.cofi == Cofi::FarTransfer) => ThreadState::OffCpu,
            None => ThreadState::Unknown,
        };
        Self {
            state,
            until: there_until(session, thread),
            crashed: session.crash_of(thread.tid).is_some(),
        }
    }
}

/// Returns the time at which a thread reached an instruction; at the end of its history, the time
/// after the last one. `None` without a time stamp.
#[must_use]
pub fn reached(thread: &Thread, index: u64) -> Option<TimeEstimate> {
    let history = &thread.history;
    match index < history.len() {
        true => history.time(index),
        false => history.arrival(history.len()),
    }
}

/// Returns the time until which a thread certainly existed: the crash, if the core lists it; `None`
/// if unknown.
#[must_use]
pub fn there_until(session: &Session, thread: &Thread) -> Option<Tsc> {
    let listed = session.core()?.thread(thread.tid).is_some();
    session.times().zero.filter(|_| listed)
}

/// History is missing in the middle: what is missing before instruction `start` is before history.
fn is_gap(mark: &Mark, start: u64) -> bool {
    matches!(mark.kind, MarkKind::Gap(_)) && mark.index > start
}

/// Goes through the marks of a thread.
struct StateBuilder<'t> {
    moments: TimeBounds<'t>,
    window: Window,
    /// The first instruction that has run since.
    ran_from: u64,
    /// Returns the time bounds of the event; `None` if it is before the window.
    since: Option<TimeEstimate>,
    /// That the thread left has the time stamp of when it was back: only what came before is
    /// certain.
    dated_late: bool,
    /// Something began after the window.
    is_over: bool,
}

impl<'t> StateBuilder<'t> {
    /// Begins at the last mark before the window.
    fn new(history: &'t History, window: Window) -> Self {
        let first = history.first_stamp().and_then(|first| history.index_at(first));
        let reached = history.index_at(window.from);
        let before = reached.and_then(|reached| history.marks_in(0..reached).last());
        let start = first.unwrap_or(0);
        let before = before.map(|mark| mark.index).filter(|&index| index > start);
        Self {
            moments: TimeBounds {
                history,
                conversion: None,
            },
            window,
            ran_from: before.unwrap_or(start),
            since: match before {
                Some(_) => None,
                None => history.arrival(start),
            },
            dated_late: false,
            is_over: false,
        }
    }

    fn emit(&mut self, span: StateSpan, visit: &mut dyn FnMut(StateSpan) -> Result<()>) -> Result<()> {
        if span.from.tsc > self.window.to {
            self.is_over = true;
            return Ok(());
        }
        match span.to.latest().is_some_and(|latest| latest < self.window.from) {
            true => Ok(()),
            false => visit(span),
        }
    }

    /// The instructions up to a mark, and what the marks before one instruction say.
    fn between(&mut self, group: &[Mark], visit: &mut dyn FnMut(StateSpan) -> Result<()>) -> Result<()> {
        let Some(mark) = group.first() else { return Ok(()) };
        let missing = group.iter().any(|mark| is_gap(mark, 0));
        let state = match OffCpu::of(group) {
            _ if missing => ThreadState::Gap,
            Some(_) => ThreadState::OffCpu,
            None => return Ok(()),
        };
        let departure = self.moments.history.departure(mark.index);
        // The gap extends to the next instruction, whatever the thread did.
        let gap = OffCpu {
            index: mark.index,
            left: mark.tsc,
            back: departure.map(|departure| departure.tsc),
        };
        let off_cpu = OffCpu::of(group).filter(|_| !missing).unwrap_or(gap);
        self.add_off_cpu(state, off_cpu, visit)
    }

    /// The instructions up to one, and the time before it.
    fn add_off_cpu(
        &mut self,
        state: ThreadState,
        off_cpu: OffCpu,
        visit: &mut dyn FnMut(StateSpan) -> Result<()>,
    ) -> Result<()> {
        let index = off_cpu.index;
        let history = self.moments.history;
        let ends = match self.moments.stretch(&off_cpu) {
            Some(stretch) => Some((estimate(stretch.begin), estimate(stretch.end))),
            // Without a following time stamp, the end is unknown.
            None => history.arrival(index).zip(history.departure(index)),
        };
        let Some((mut left, back)) = ends else {
            return Ok(());
        };
        if self.dated_late && state == ThreadState::OffCpu {
            let exit = index.checked_sub(1).and_then(|exit| history.departure(exit));
            let earliest = exit.map_or(left.tsc, |exit| exit.tsc.min(left.tsc));
            left = left.latest().map_or(left, |latest| between(earliest, latest));
        }
        self.add_running(left, index, visit)?;
        self.emit(StateSpan::new(state, left, back, index, index), visit)?;
        (self.ran_from, self.since) = (index, Some(back));
        Ok(())
    }

    /// The instructions up to one, if there are any.
    fn add_running(
        &mut self,
        to: TimeEstimate,
        end: u64,
        visit: &mut dyn FnMut(StateSpan) -> Result<()>,
    ) -> Result<()> {
        let since = self
            .since
            .or_else(|| self.moments.history.departure(self.ran_from));
        match since.filter(|_| self.ran_from < end) {
            Some(since) => self.emit(
                StateSpan::new(ThreadState::Ran, since, to, self.ran_from, end),
                visit,
            ),
            None => Ok(()),
        }
    }

    /// The last instructions, and what came then.
    fn end(&mut self, end: HistoryEnd, visit: &mut dyn FnMut(StateSpan) -> Result<()>) -> Result<()> {
        let history = self.moments.history;
        let len = history.len();
        let Some(left) = history.arrival(len) else {
            return Ok(());
        };
        // Nothing ran after the crash: it bounds what has no later time stamp.
        let left = match (left.latest(), end.until) {
            (None, Some(until)) if until >= left.tsc => between(left.tsc, until),
            _ => left,
        };
        self.add_running(left, len, visit)?;
        match end.until.filter(|&until| !end.crashed && until > left.tsc) {
            Some(until) => self.emit(
                StateSpan::new(end.state, left, between(until, until), len, len),
                visit,
            ),
            None => Ok(()),
        }
    }
}

fn estimate(moment: TimeBound) -> TimeEstimate {
    between(Tsc(moment.earliest), Tsc(moment.latest))
}

fn between(from: Tsc, to: Tsc) -> TimeEstimate {
    TimeEstimate {
        tsc: from,
        uncertainty: to.0.saturating_sub(from.0),
    }
}

/// A signal that was delivered to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The first instruction of its handler.
    pub index: u64,
    /// An address in the handler.
    pub handler: Avma,
    /// Returns the bounds of the running time.
    pub at: TimeEstimate,
}

/// The signals whose handlers a thread ran in a window, in order of time.
///
/// # Errors
/// When canceled.
pub fn signals(
    session: &Session,
    thread: &Thread,
    window: Window,
    watch: &Watch<'_>,
) -> Result<Vec<Delivery>> {
    let history = &thread.history;
    let from = history.index_at(window.from).unwrap_or(0);
    let mut forest: Option<&Forest> = None;
    let mut found = Vec::new();
    for (number, mark) in history.marks_in(from..u64::MAX).iter().enumerate() {
        if number % OFTEN == 0 {
            watch.report(Stage::Search, mark.index, history.len())?;
        }
        let elsewhere = match mark.kind {
            MarkKind::Interrupted { from, .. } => history.pc(mark.index).is_some_and(|at| at != from),
            MarkKind::LeftUser { resumed, .. } => matches!(resumed, Resumed::Elsewhere(_)),
            _ => false,
        };
        let Some(at) = history.departure(mark.index).filter(|_| elsewhere) else {
            continue;
        };
        if at.tsc > window.to {
            break;
        }
        // The call forest knows whether the destination was a handler.
        let forest = match forest {
            Some(forest) => forest,
            None => *forest.insert(session.forest(thread, watch)?),
        };
        let call = forest.call_at(mark.index).map(|id| forest.call(id));
        let is_handler = |call: &backtrail_decoder::Call| {
            call.first == mark.index && matches!(call.entered, Entered::Signal { .. })
        };
        if let Some(call) = call.filter(is_handler) {
            found.push(Delivery {
                index: mark.index,
                handler: call.function,
                at,
            });
        }
    }
    found.dedup_by_key(|delivery| delivery.index);
    Ok(found)
}

#[cfg(test)]
mod tests;
