//! The threads side by side on one clock: `timeline`.

use super::{Context, find, goto};
use crate::output::{
    CallSpan, CallsRow, CrashMoment, MomentView, Output, SignalView, SpanView, ThreadRow, TimelineView,
    label, label_width,
};
use backtrail_debugger::calls::Calls;
use backtrail_debugger::functions::{self, FunctionCode};
use backtrail_debugger::inlined;
use backtrail_debugger::session::{Session, Thread};
use backtrail_debugger::signal;
use backtrail_debugger::time::{Timebase, parse_nanos};
use backtrail_debugger::timeline::grid::{ColumnMarks, Grid, GridRow, Presence};
use backtrail_debugger::timeline::{self, Window};
use backtrail_debugger::{Error, Result};
use backtrail_decoder::{Left, Stage, TimeEstimate, Watch};
use backtrail_pt::{Avma, Pid, Tsc};

/// No more columns are drawn.
const MAX_COLUMNS: usize = 10_000;
/// No fewer columns are drawn, however narrow the terminal is.
const MIN_COLUMNS: usize = 20;
/// No more spans, signals or calls of a thread are listed; in the columns all are.
const LISTED: usize = 10_000;
/// Columns between two times on the axis.
const AXIS: usize = 20;
/// The number of calls between two checks for cancellation.
const OFTEN: usize = 4096;

/// The parsed arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct TimelineArguments<'a> {
    function: Option<String>,
    from: Option<&'a str>,
    to: Option<&'a str>,
    columns: Option<usize>,
}

impl<'a> TimelineArguments<'a> {
    fn read(arguments: &'a str) -> Result<Self> {
        let misuse = |problem: String| match find("timeline") {
            Ok(command) => command.misuse(problem),
            Err(error) => error.into(),
        };
        let mut parsed = Self::default();
        let mut function = Vec::new();
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next();
                value.ok_or_else(|| misuse(format!("{word} requires a value")))
            };
            match word {
                "--from" => parsed.from = Some(value()?),
                "--to" => parsed.to = Some(value()?),
                "--columns" => {
                    let number = value()?.parse().ok();
                    let fits = number.filter(|number| (1..=MAX_COLUMNS).contains(number));
                    let wrong = || misuse(format!("--columns requires a number from 1 to {MAX_COLUMNS}"));
                    parsed.columns = Some(fits.ok_or_else(wrong)?);
                }
                _ if word.starts_with("--") => return Err(misuse(format!("unknown option {word}"))),
                _ => function.push(word),
            }
        }
        parsed.function = (!function.is_empty()).then(|| function.join(" "));
        Ok(parsed)
    }
}

pub(super) fn timeline(context: &mut Context<'_>, arguments: &str) -> Result<Output> {
    let parsed = TimelineArguments::read(arguments)?;
    let navigator = &*context.navigator;
    let session = navigator.session();
    let window = window(context, &parsed)?;
    let code = match &parsed.function {
        Some(function) => Some((
            navigator.process()?.pid,
            functions::code(navigator.process()?, function)?,
        )),
        None => None,
    };
    let current = navigator.thread()?;
    let columns = parsed.columns.unwrap_or_else(|| {
        let labels = session
            .threads()
            .iter()
            .map(|thread| label(thread.tid.0, thread.name.as_deref(), thread.tid == current.tid));
        let width = label_width(labels, parsed.function.as_deref());
        let room = navigator.width.saturating_sub(width + 1);
        room.clamp(MIN_COLUMNS, MAX_COLUMNS)
    });
    let builder = TimelineBuilder {
        session,
        grid: Grid::new(window, columns),
        code,
        watch: context.watch,
    };
    let threads = session
        .threads()
        .iter()
        .map(|thread| builder.row(thread, thread.tid == current.tid))
        .collect::<Result<_>>()?;
    let here = timeline::reached(current, navigator.index());
    let mut here_at = ColumnMarks::new(builder.grid);
    if let Some(here) = here {
        here_at.add(here, here);
    }
    let times = session.times();
    Ok(Output::Timeline(Box::new(TimelineView {
        from: exactly(times, window.from),
        to: exactly(times, window.to),
        columns,
        function: parsed.function,
        here: MomentView {
            thread: current.tid.0,
            position: navigator.position().to_string(),
            time: here.map(|here| times.time(here)),
        },
        crash: session.crash().map(|crash| CrashMoment {
            thread: crash.tid.0,
            signal: signal::name(crash.signal),
            time: times.zero.map(|zero| exactly(times, zero)),
        }),
        threads,
        here_at: here_at.columns().to_vec(),
        axis: axis(times, &builder.grid),
    })))
}

/// Returns the time window.
fn window(context: &Context<'_>, parsed: &TimelineArguments<'_>) -> Result<Window> {
    let session = context.navigator.session();
    let no_time = || {
        Error::Cannot(
            "the trace has no time stamps, so the order of the threads is unknown; `info threads` lists them"
                .to_owned(),
        )
    };
    let whole = Window::whole(session);
    if whole.is_none() || parsed.from.is_none() {
        session.threads().iter().try_for_each(Thread::needs_beginning)?;
    }
    let mut window = whole.ok_or_else(no_time)?;
    if let Some(place) = parsed.from {
        window.from = moment(context, place)?.tsc;
    }
    if let Some(place) = parsed.to {
        let to = moment(context, place)?;
        window.to = to.latest().unwrap_or(to.tsc);
    }
    match window.from < window.to || parsed.from.or(parsed.to).is_none() {
        true => Ok(window),
        false => Err(Error::Cannot(
            "the timeline ends before it begins; --from must be before --to".to_owned(),
        )),
    }
}

/// Returns the time of a place in the syntax of `goto`. For a time, no instruction has to be
/// executed then.
fn moment(context: &Context<'_>, place: &str) -> Result<TimeEstimate> {
    let session = context.navigator.session();
    let typed = place.strip_prefix('@').and_then(parse_nanos);
    if let Some(tsc) = typed.and_then(|ns| session.times().tsc_at(ns)) {
        return Ok(TimeEstimate { tsc, uncertainty: 0 });
    }
    let position = goto::position(context, place)?;
    let thread = session.thread(position.tid())?;
    let time = timeline::reached(thread, thread.index_of(position)?);
    if time.is_none() {
        thread.needs_beginning()?;
    }
    time.ok_or_else(|| Error::Cannot(format!("the trace has no time stamp for {place}")))
}

fn exactly(times: &Timebase, tsc: Tsc) -> backtrail_debugger::time::Time {
    times.time(TimeEstimate { tsc, uncertainty: 0 })
}

/// Which columns have their time written below.
fn axis(times: &Timebase, grid: &Grid) -> Vec<(usize, backtrail_debugger::time::Time)> {
    let columns = (0..grid.columns()).step_by(AXIS);
    // The last one would be in the way of the end, which is as long.
    let columns = columns.filter(|&column| column == 0 || column + AXIS + AXIS / 4 <= grid.columns());
    columns
        .chain([grid.columns()])
        .map(|column| (column, exactly(times, grid.edge(column))))
        .collect()
}

/// Draws threads.
struct TimelineBuilder<'a> {
    session: &'a Session,
    grid: Grid,
    /// The functions that were asked for, and the process that has them.
    code: Option<(Pid, FunctionCode)>,
    watch: &'a Watch<'a>,
}

/// A call, or an execution of an inlined function.
struct TimelineCall {
    /// Its name in its thread; `None`: it has none.
    name: Option<String>,
    first: u64,
    end: u64,
    /// Whether it had not ended at the end of the history.
    is_open: bool,
    may_be_rest: bool,
}

impl TimelineBuilder<'_> {
    fn row(&self, thread: &Thread, current: bool) -> Result<ThreadRow> {
        let (session, times) = (self.session, self.session.times());
        let window = self.grid.window();
        let mut row = GridRow::new(self.grid);
        let (mut spans, mut more_spans) = (Vec::new(), 0);
        timeline::visit_states(session, thread, window, self.watch, &mut |span| {
            row.add(&span);
            if spans.len() == LISTED {
                more_spans += 1;
                return Ok(());
            }
            spans.push(SpanView {
                state: span.state,
                from: times.time(span.from),
                to: times.time(span.to),
                position: thread.position(span.first).to_string(),
                instructions: span.end.saturating_sub(span.first),
            });
            Ok(())
        })?;
        let signals = timeline::signals(session, thread, window, self.watch)?;
        let mut signals_at = ColumnMarks::new(self.grid);
        for signal in &signals {
            signals_at.add(signal.at, signal.at);
        }
        let crashed = session.crash_of(thread.tid).is_some();
        let timed = thread.history.first_stamp().is_some();
        let crash = times.zero.filter(|_| crashed && timed);
        Ok(ThreadRow {
            thread: thread.tid.0,
            name: thread.name.clone(),
            current,
            crashed,
            timed,
            instructions: thread.history.len(),
            spans,
            more_spans,
            more_signals: signals.len().saturating_sub(LISTED) as u64,
            signals: signals
                .iter()
                .take(LISTED)
                .map(|signal| SignalView {
                    position: thread.position(signal.index).to_string(),
                    handler: self.name(thread, signal.index, signal.handler),
                    time: times.time(signal.at),
                })
                .collect(),
            calls: self.calls(thread)?,
            cells: row.cells(),
            signals_at: signals_at.columns().to_vec(),
            crash_at: crash.and_then(|crash| self.grid.column(crash)),
        })
    }

    /// The function at an address that a thread was at before instruction `index`.
    fn name(&self, thread: &Thread, index: u64, at: Avma) -> String {
        let symbols = self.session.symbols_at(thread, index);
        let function = symbols.and_then(|symbols| symbols.function_at(at));
        function.map_or_else(|| at.to_string(), |function| function.name.to_string())
    }

    /// The calls of the functions that were asked for; `None`: none were, or the thread is of
    /// another process.
    fn calls(&self, thread: &Thread) -> Result<Option<CallsRow>> {
        let Some((pid, code)) = &self.code else {
            return Ok(None);
        };
        let same = |process: &backtrail_debugger::session::Process| process.pid == *pid;
        if thread.history.is_empty() || !self.session.process(thread).is_some_and(same) {
            return Ok(None);
        }
        let (times, window) = (self.session.times(), self.grid.window());
        // A call that began long before may still run.
        let calls = Calls::of_all(self.session, thread, self.watch)?;
        let of_function = calls.of(&code.entries, self.watch)?;
        let called = of_function.iter().map(|&id| {
            let call = calls.forest().call(id);
            TimelineCall {
                name: thread.name_of(calls.forest(), id).map(|name| name.to_string()),
                first: call.first,
                end: call.end,
                is_open: call.left == Left::HistoryEnd,
                may_be_rest: call.may_be_rest(),
            }
        });
        let inlined = inlined::executions(self.session, thread, &code.copies, self.watch)?;
        let inlined = inlined.iter().map(|execution| TimelineCall {
            name: None,
            first: execution.first,
            end: execution.end,
            is_open: execution.end >= thread.history.len(),
            may_be_rest: !execution.is_certain,
        });
        let mut of_function: Vec<TimelineCall> = called.chain(inlined).collect();
        of_function.sort_by_key(|call| call.first);
        let until = timeline::there_until(self.session, thread);
        let mut marks = ColumnMarks::new(self.grid);
        let mut row = CallsRow {
            count: 0,
            rests: 0,
            without_time: 0,
            spans: Vec::new(),
            columns: Vec::new(),
        };
        let number_of_all = of_function.len() as u64;
        for (number, call) in of_function.into_iter().enumerate() {
            if number % OFTEN == 0 {
                self.watch.report(Stage::Measure, number as u64, number_of_all)?;
            }
            let ends = (thread.history.departure(call.first)).zip(thread.history.arrival(call.end));
            let Some((from, to)) = ends else {
                row.without_time += 1;
                continue;
            };
            let to = match until.filter(|&until| call.is_open && until >= to.tsc) {
                Some(tsc) => TimeEstimate { tsc, uncertainty: 0 },
                None => to,
            };
            if from.tsc > window.to || to.latest().is_some_and(|latest| latest < window.from) {
                continue;
            }
            marks.add(from, to);
            row.count += 1;
            row.rests += u64::from(call.may_be_rest);
            if row.spans.len() < LISTED {
                row.spans.push(CallSpan {
                    call: call.name,
                    position: thread.position(call.first).to_string(),
                    from: times.time(from),
                    to: times.time(to),
                });
            }
        }
        row.columns = marks.columns().to_vec();
        let shown = row.columns.iter().any(|&column| column != Presence::No);
        Ok((shown || row.without_time > 0).then_some(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_may_have_spaces_between_options() {
        let parsed = TimelineArguments::read("f(int, --from @-3ms char) --columns 7").unwrap();
        assert_eq!(parsed.function.as_deref(), Some("f(int, char)"));
        assert_eq!((parsed.from, parsed.to), (Some("@-3ms"), None));
        assert_eq!(parsed.columns, Some(7));
        assert_eq!(TimelineArguments::read("").unwrap(), TimelineArguments::default());
    }

    #[test]
    fn options_are_checked() {
        for wrong in [
            "--from",
            "--columns 0",
            "--columns 99999",
            "--columns x",
            "--colums 3",
        ] {
            let error = TimelineArguments::read(wrong).unwrap_err().to_string();
            assert!(error.contains("usage: timeline"), "{error}");
        }
    }
}
