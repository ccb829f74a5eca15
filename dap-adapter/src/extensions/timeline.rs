//! `backtrail/timeline`: the threads on one clock, with the calls that are visible in the columns.

use crate::failure::{Failure, Result};
use crate::session::ClientSession;
use backtrail_debugger::calls::Calls;
use backtrail_debugger::session::{Session, Thread};
use backtrail_debugger::timeline::flame::{Axis, Flame, flames};
use backtrail_debugger::timeline::grid::{Grid, GridCell, GridRow};
use backtrail_debugger::timeline::{self, Window};
use backtrail_debugger::{Navigator, signal};
use backtrail_decoder::{TimeEstimate, Watch};
use backtrail_pt::Tsc;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The limit of columns.
const MOST_COLUMNS: usize = 4000;
/// As many are, unless the client says.
const COLUMNS: usize = 1000;
/// The limit of call levels.
const MOST_LEVELS: usize = 200;
/// As many are, unless the client says.
const LEVELS: usize = 40;

/// The arguments of `backtrail/timeline`.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineRequest {
    #[serde(default)]
    from: Option<f64>,
    #[serde(default)]
    to: Option<f64>,
    #[serde(default)]
    width: Option<f64>,
    #[serde(default)]
    depth: Option<f64>,
}

/// The unit of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum TimeUnit {
    Ns,
    Ticks,
    Instructions,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimelinePosition {
    thread_id: u32,
    at: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimelineCrash {
    thread_id: u32,
    at: i64,
    signal: String,
}

#[derive(Debug, Serialize)]
struct TimelineState {
    state: &'static str,
    from: i64,
    to: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<String>,
}

#[derive(Debug, Serialize)]
struct TimelineCall {
    level: u32,
    from: i64,
    to: i64,
    function: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<String>,
    position: String,
    several: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TimelineThread {
    thread_id: u32,
    name: String,
    current: bool,
    crashed: bool,
    timed: bool,
    states: Vec<TimelineState>,
    calls: Vec<TimelineCall>,
    levels: u32,
}

/// `Timeline` of `docs/dap.md`.
#[derive(Debug, Serialize)]
pub struct Timeline {
    unit: TimeUnit,
    begin: i64,
    end: i64,
    from: i64,
    to: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<TimelinePosition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crash: Option<TimelineCrash>,
    threads: Vec<TimelineThread>,
}

/// `backtrail/timeline`.
pub fn timeline(
    client: &mut ClientSession,
    arguments: TimelineRequest,
    watch: &Watch<'_>,
) -> Result<Timeline> {
    if let (Some(from), Some(to)) = (arguments.from, arguments.to)
        && from > to
    {
        return Err(Failure::Cannot("the window ends before it starts".to_owned()));
    }
    let debuggee = client.debuggee()?;
    let body = debuggee.navigator.with_earlier(watch, |navigator| {
        let session = navigator.session();
        session.threads().iter().try_for_each(Thread::needs_beginning)?;
        match Window::whole(session) {
            Some(whole) => by_time(navigator, whole, &arguments, watch),
            None => by_instructions(navigator, &arguments, watch),
        }
    });
    Ok(body?)
}

fn columns(arguments: &TimelineRequest) -> usize {
    whole(arguments.width, COLUMNS, MOST_COLUMNS)
}

fn levels(arguments: &TimelineRequest) -> usize {
    whole(arguments.depth, LEVELS, MOST_LEVELS)
}

/// A number of the client's in bounds.
fn whole(wanted: Option<f64>, usual: usize, most: usize) -> usize {
    wanted
        .filter(|wanted| *wanted >= 1.0)
        .map_or(usual, |wanted| wanted as usize)
        .min(most)
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

fn by_time(
    navigator: &Navigator,
    all: Window,
    arguments: &TimelineRequest,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<Timeline> {
    let session = navigator.session();
    let clock = TimelineClock::of(session);
    let bound = |at: Option<f64>, otherwise: Tsc| {
        let read = at.and_then(|at| clock.read(at));
        read.map_or(otherwise, |at| at.clamp(all.from, all.to))
    };
    let from = bound(arguments.from, all.from);
    let window = Window {
        from,
        to: bound(arguments.to, all.to).max(Tsc(from.0.saturating_add(1))),
    };
    let grid = Grid::new(window, columns(arguments));
    let mut threads = Vec::new();
    for thread in session.threads() {
        let timed = thread.history.first_stamp().is_some();
        let (states, found) = match timed {
            true => (
                states(session, thread, grid, &clock, watch)?,
                calls(
                    navigator,
                    thread,
                    Axis::Ticks,
                    window.from.0..window.to.0,
                    arguments,
                    watch,
                )?,
            ),
            false => (Vec::new(), (Vec::new(), 0)),
        };
        let write = |at: u64| clock.write(Tsc(at));
        threads.push(timeline_thread(
            navigator, thread, timed, states, found, &write, watch,
        )?);
    }
    let thread = navigator.thread()?;
    let here = timeline::reached(thread, navigator.index()).map(|here| TimelinePosition {
        thread_id: thread.tid.0,
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
fn by_instructions(
    navigator: &Navigator,
    arguments: &TimelineRequest,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<Timeline> {
    let thread = navigator.thread()?;
    let len = thread.history.len();
    if len == 0 {
        return Err(backtrail_debugger::Error::NoHistory(thread.tid));
    }
    let bound = |at: Option<f64>, otherwise: u64| at.map_or(otherwise, |at| at.max(0.0) as u64).min(len);
    let from = bound(arguments.from, 0);
    let to = bound(arguments.to, len).max(from.saturating_add(1));
    let found = calls(navigator, thread, Axis::Instructions, from..to, arguments, watch)?;
    let gaps = thread
        .history
        .gaps()
        .filter(|&(at, _)| at > 0 && (from..to).contains(&at));
    let write = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
    let mut states = vec![TimelineState {
        state: "ran",
        from: write(from),
        to: write(to),
        cause: None,
    }];
    states.extend(gaps.map(|(at, gap)| TimelineState {
        state: "gap",
        from: write(at),
        to: write(at),
        cause: Some(gap.cause.to_string()),
    }));
    let crashed = navigator.session().crash_of(thread.tid);
    Ok(Timeline {
        unit: TimeUnit::Instructions,
        begin: 0,
        end: write(len),
        from: write(from),
        to: write(to),
        here: Some(TimelinePosition {
            thread_id: thread.tid.0,
            at: write(navigator.index()),
        }),
        crash: crashed.map(|crash| TimelineCrash {
            thread_id: crash.tid.0,
            at: write(len),
            signal: signal::name(crash.signal),
        }),
        threads: vec![timeline_thread(
            navigator, thread, false, states, found, &write, watch,
        )?],
    })
}

/// The states of a thread, in runs of columns.
fn states(
    session: &Session,
    thread: &Thread,
    grid: Grid,
    clock: &TimelineClock<'_>,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<Vec<TimelineState>> {
    let mut row = GridRow::new(grid);
    let mut causes: Vec<(Range<u64>, String)> = Vec::new();
    timeline::visit_states(session, thread, grid.window(), watch, &mut |span| {
        row.add(&span);
        if span.state == timeline::ThreadState::Gap
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
            GridCell::Ran => "ran",
            GridCell::OffCpu => "offCpu",
            GridCell::Both => "both",
            GridCell::Unknown => "unknown",
            GridCell::Gap => "gap",
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

type FunctionFlames = (Vec<Flame>, u32);

fn calls(
    navigator: &Navigator,
    thread: &Thread,
    axis: Axis,
    window: Range<u64>,
    arguments: &TimelineRequest,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<FunctionFlames> {
    if thread.history.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let calls = Calls::of_all(navigator.session(), thread, watch)?;
    let found = flames(
        &thread.history,
        calls.forest(),
        axis,
        window,
        columns(arguments),
        levels(arguments),
        watch,
    )?;
    Ok((found.flames, found.levels))
}

fn timeline_thread(
    navigator: &Navigator,
    thread: &Thread,
    timed: bool,
    states: Vec<TimelineState>,
    (flames, levels): FunctionFlames,
    write: &dyn Fn(u64) -> i64,
    watch: &Watch<'_>,
) -> backtrail_debugger::Result<TimelineThread> {
    let session = navigator.session();
    let forest = match thread.history.is_empty() {
        true => None,
        false => Some(session.forest(thread, watch)?),
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
        current: navigator.position().tid() == thread.tid,
        crashed: session.crash_of(thread.tid).is_some(),
        timed,
        states,
        calls: calls.collect(),
        levels,
    })
}
