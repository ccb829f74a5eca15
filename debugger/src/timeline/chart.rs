//! The threads on one clock, with the calls that are visible in columns: the data of timelines in
//! editors and on pages.

use super::flame::{Axis, Flame, flames};
use super::grid::{Grid, GridCell, GridRow};
use super::{ThreadState, Window, reached, visit_states};
use crate::calls::Calls;
use crate::error::Result;
use crate::session::{Session, Thread};
use crate::signal;
use backtrail_decoder::{TimeEstimate, Watch};
use backtrail_pt::Tsc;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The part of the trace that a timeline shows, and its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChartRequest {
    /// The beginning, in the unit of [`Timeline`]; `None`: that of the trace.
    pub from: Option<f64>,
    /// The end; `None`: that of the trace.
    pub to: Option<f64>,
    /// The number of columns.
    pub columns: usize,
    /// The number of call levels.
    pub levels: usize,
}

/// Returns the timeline of all threads. The current position is before instruction `index` of
/// thread `here`. Without time stamps, the timeline has that thread by its instructions.
///
/// # Errors
///
/// If the beginning of the history is not decoded yet, or there is no history; when canceled.
pub fn timeline(
    session: &Session,
    here: &Thread,
    index: u64,
    request: ChartRequest,
    watch: &Watch<'_>,
) -> Result<Timeline> {
    session.threads().iter().try_for_each(Thread::needs_beginning)?;
    let chart = ChartBuilder {
        session,
        here,
        index,
        request,
        watch,
    };
    match Window::whole(session) {
        Some(whole) => chart.by_time(whole),
        None => chart.by_instructions(),
    }
}

/// The unit of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Nanoseconds; 0 is the crash, or the end.
    Ns,
    /// TSC ticks; 0 is the crash, or the end.
    Ticks,
    /// Instructions from the beginning of the history.
    Instructions,
}

/// A position on the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelinePosition {
    /// The thread.
    pub thread_id: u32,
    /// The time.
    pub at: i64,
}

/// The crash on the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineCrash {
    /// The thread.
    pub thread_id: u32,
    /// The time.
    pub at: i64,
    /// The signal's name.
    pub signal: String,
}

/// The state of a thread in some columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ColumnState {
    /// The thread ran.
    Ran,
    /// The thread was off-CPU.
    OffCpu,
    /// Both, or partly unknown.
    Both,
    /// The state is unknown.
    Unknown,
    /// History is missing.
    Gap,
}

/// A thread in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineState {
    /// The state.
    pub state: ColumnState,
    /// The beginning.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// The cause of a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// A call, or several short ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineCall {
    /// The number of calls around it.
    pub level: u32,
    /// The beginning.
    pub from: i64,
    /// The end.
    pub to: i64,
    /// The function, or its address.
    pub function: String,
    /// The name of the call, such as `c12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// Its first instruction.
    pub position: String,
    /// Whether it is several calls, each shorter than a column.
    pub several: bool,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineThread {
    /// Its id.
    pub thread_id: u32,
    /// Its name, or nothing.
    pub name: String,
    /// Whether the current position is in it.
    pub current: bool,
    /// Whether it crashed.
    pub crashed: bool,
    /// Whether the trace has times for it.
    pub timed: bool,
    /// Its states, in order.
    pub states: Vec<TimelineState>,
    /// Its calls, by level and in order.
    pub calls: Vec<TimelineCall>,
    /// The number of levels.
    pub levels: u32,
}

/// A timeline: `Timeline` of `docs/dap.md`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The unit of all times.
    pub unit: TimeUnit,
    /// The beginning of the trace.
    pub begin: i64,
    /// The end of the trace.
    pub end: i64,
    /// The beginning of what is shown.
    pub from: i64,
    /// The end of what is shown.
    pub to: i64,
    /// The current position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here: Option<TimelinePosition>,
    /// The crash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<TimelineCrash>,
    /// The threads, by id.
    pub threads: Vec<TimelineThread>,
}

/// The clock of a session, as the client sees it.
struct TimelineClock<'a> {
    session: &'a Session,
    unit: TimeUnit,
}

impl<'a> TimelineClock<'a> {
    fn of(session: &'a Session) -> Self {
        let unit = match session.times().conversion {
            Some(_) if session.times().zero.is_some() => TimeUnit::Ns,
            _ => TimeUnit::Ticks,
        };
        Self { session, unit }
    }

    fn write(&self, tsc: Tsc) -> i64 {
        let time = self.session.times().time(TimeEstimate { tsc, uncertainty: 0 });
        match self.unit {
            TimeUnit::Ns => time.ns.unwrap_or(0),
            _ => tsc
                .0
                .wrapping_sub(self.session.times().zero.map_or(0, |zero| zero.0)) as i64,
        }
    }

    fn read(&self, at: f64) -> Option<Tsc> {
        let at = at as i64;
        match self.unit {
            TimeUnit::Ns => self.session.times().tsc_at(at),
            _ => {
                let zero = self.session.times().zero.map_or(0, |zero| zero.0);
                Some(Tsc(zero.saturating_add_signed(at)))
            }
        }
    }
}

/// Builds a timeline.
struct ChartBuilder<'a> {
    session: &'a Session,
    here: &'a Thread,
    index: u64,
    request: ChartRequest,
    watch: &'a Watch<'a>,
}

impl ChartBuilder<'_> {
    fn by_time(&self, all: Window) -> Result<Timeline> {
        let session = self.session;
        let clock = TimelineClock::of(session);
        let bound = |at: Option<f64>, otherwise: Tsc| {
            let read = at.and_then(|at| clock.read(at));
            read.map_or(otherwise, |at| at.clamp(all.from, all.to))
        };
        let from = bound(self.request.from, all.from);
        let window = Window {
            from,
            to: bound(self.request.to, all.to).max(Tsc(from.0.saturating_add(1))),
        };
        let grid = Grid::new(window, self.request.columns);
        let write = |at: u64| clock.write(Tsc(at));
        let mut threads = Vec::new();
        for thread in session.threads() {
            let timed = thread.history.first_stamp().is_some();
            let (states, found) = match timed {
                true => (
                    self.states(thread, grid, &clock)?,
                    self.calls(thread, Axis::Ticks, window.from.0..window.to.0)?,
                ),
                false => (Vec::new(), (Vec::new(), 0)),
            };
            threads.push(self.thread(thread, timed, states, found, &write)?);
        }
        let here = reached(self.here, self.index).map(|here| TimelinePosition {
            thread_id: self.here.tid.0,
            at: clock.write(here.tsc),
        });
        let crash = session.crash().zip(session.times().zero);
        Ok(Timeline {
            unit: clock.unit,
            begin: clock.write(all.from),
            end: clock.write(all.to),
            from: clock.write(window.from),
            to: clock.write(window.to),
            here,
            crash: crash.map(|(crash, zero)| TimelineCrash {
                thread_id: crash.tid.0,
                at: clock.write(zero),
                signal: signal::name(crash.signal),
            }),
            threads,
        })
    }

    /// Without time, the current thread by its instructions.
    fn by_instructions(&self) -> Result<Timeline> {
        let thread = self.here;
        let len = thread.history.len();
        if len == 0 {
            return Err(crate::error::Error::NoHistory(thread.tid));
        }
        let bound = |at: Option<f64>, otherwise: u64| at.map_or(otherwise, |at| at.max(0.0) as u64).min(len);
        let from = bound(self.request.from, 0);
        let to = bound(self.request.to, len).max(from.saturating_add(1));
        let found = self.calls(thread, Axis::Instructions, from..to)?;
        let gaps = thread
            .history
            .gaps()
            .filter(|&(at, _)| at > 0 && (from..to).contains(&at));
        let write = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        let mut states = vec![TimelineState {
            state: ColumnState::Ran,
            from: write(from),
            to: write(to),
            cause: None,
        }];
        states.extend(gaps.map(|(at, gap)| TimelineState {
            state: ColumnState::Gap,
            from: write(at),
            to: write(at),
            cause: Some(gap.cause.to_string()),
        }));
        let crashed = self.session.crash_of(thread.tid);
        Ok(Timeline {
            unit: TimeUnit::Instructions,
            begin: 0,
            end: write(len),
            from: write(from),
            to: write(to),
            here: Some(TimelinePosition {
                thread_id: thread.tid.0,
                at: write(self.index),
            }),
            crash: crashed.map(|crash| TimelineCrash {
                thread_id: crash.tid.0,
                at: write(len),
                signal: signal::name(crash.signal),
            }),
            threads: vec![self.thread(thread, false, states, found, &write)?],
        })
    }

    /// The states of a thread, in runs of columns.
    fn states(&self, thread: &Thread, grid: Grid, clock: &TimelineClock<'_>) -> Result<Vec<TimelineState>> {
        let mut row = GridRow::new(grid);
        let mut causes: Vec<(Range<u64>, String)> = Vec::new();
        visit_states(self.session, thread, grid.window(), self.watch, &mut |span| {
            row.add(&span);
            if span.state == ThreadState::Gap
                && let Some((_, gap)) = thread
                    .history
                    .gap_between(span.first.saturating_sub(1), span.first)
            {
                let until = span.to.latest().unwrap_or(span.to.tsc);
                causes.push((span.from.tsc.0..until.0.saturating_add(1), gap.cause.to_string()));
            }
            Ok(())
        })?;
        let mut states: Vec<(GridCell, Range<usize>)> = Vec::new();
        for (column, cell) in row.cells().into_iter().enumerate() {
            match states.last_mut() {
                Some((last, run)) if *last == cell => run.end = column + 1,
                _ => states.push((cell, column..column + 1)),
            }
        }
        let named = states.into_iter().filter_map(|(cell, run)| {
            let state = match cell {
                GridCell::Nothing => return None,
                GridCell::Ran => ColumnState::Ran,
                GridCell::OffCpu => ColumnState::OffCpu,
                GridCell::Both => ColumnState::Both,
                GridCell::Unknown => ColumnState::Unknown,
                GridCell::Gap => ColumnState::Gap,
            };
            let (from, to) = (grid.edge(run.start), grid.edge(run.end));
            let mut causes = causes
                .iter()
                .filter(|(when, _)| when.start < to.0 && from.0 < when.end);
            Some(TimelineState {
                state,
                from: clock.write(from),
                to: clock.write(to),
                cause: causes
                    .next()
                    .filter(|_| cell == GridCell::Gap)
                    .map(|(_, cause)| cause.clone()),
            })
        });
        Ok(named.collect())
    }

    fn calls(&self, thread: &Thread, axis: Axis, window: Range<u64>) -> Result<(Vec<Flame>, u32)> {
        if thread.history.is_empty() {
            return Ok((Vec::new(), 0));
        }
        let calls = Calls::of_all(self.session, thread, self.watch)?;
        let (columns, levels) = (self.request.columns, self.request.levels);
        let history = &thread.history;
        let found = flames(history, calls.forest(), axis, window, columns, levels, self.watch)?;
        Ok((found.flames, found.levels))
    }

    fn thread(
        &self,
        thread: &Thread,
        timed: bool,
        states: Vec<TimelineState>,
        (flames, levels): (Vec<Flame>, u32),
        write: &dyn Fn(u64) -> i64,
    ) -> Result<TimelineThread> {
        let session = self.session;
        let forest = match thread.history.is_empty() {
            true => None,
            false => Some(session.forest(thread, self.watch)?),
        };
        let calls = flames.into_iter().filter_map(|flame| {
            let forest = forest?;
            let symbols = session.symbols_at(thread, forest.call(flame.call).first);
            let function = symbols.and_then(|symbols| symbols.function_at(flame.function));
            Some(TimelineCall {
                level: flame.level,
                from: write(flame.from),
                to: write(flame.to),
                function: function.map_or_else(
                    || flame.function.to_string(),
                    |function| function.name.to_string(),
                ),
                call: thread.name_of(forest, flame.call).map(|name| name.to_string()),
                position: thread.position(forest.call(flame.call).first).to_string(),
                several: flame.several,
            })
        });
        Ok(TimelineThread {
            thread_id: thread.tid.0,
            name: thread.name.clone().unwrap_or_default(),
            current: self.here.tid == thread.tid,
            crashed: session.crash_of(thread.tid).is_some(),
            timed,
            states,
            calls: calls.collect(),
            levels,
        })
    }
}
