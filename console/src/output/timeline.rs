//! The threads side by side on one clock: `timeline`.

use super::flow::render_rests;
use super::{Paint, Text, is_zero};
use backtrail_debugger::time::{Time, nanos};
use backtrail_debugger::timeline::ThreadState;
use backtrail_debugger::timeline::grid::{GridCell, Presence};
use serde::Serialize;

/// The answer of `timeline`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineView {
    /// The beginning of the first column.
    pub from: Time,
    /// The end of the last column.
    pub to: Time,
    /// The number of columns.
    pub columns: usize,
    /// The functions whose calls are shown, as they were given.
    pub function: Option<String>,
    /// The current position.
    pub here: MomentView,
    /// The crash; `None`: the trace does not end in one.
    pub crash: Option<CrashMoment>,
    /// The threads, by id.
    pub threads: Vec<ThreadRow>,
    /// The columns of the current position.
    #[serde(skip)]
    pub here_at: Vec<Presence>,
    /// Times at the beginning of these columns, and at the end of the last.
    #[serde(skip)]
    pub axis: Vec<(usize, Time)>,
}

/// Something in a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MomentView {
    /// The thread.
    pub thread: u32,
    /// The position, for `goto`.
    pub position: String,
    /// The time; `None` without a time stamp.
    pub time: Option<Time>,
}

/// The crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrashMoment {
    /// The thread that crashed.
    pub thread: u32,
    /// The name of the signal.
    pub signal: String,
    /// The time; `None` without a time stamp.
    pub time: Option<Time>,
}

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadRow {
    /// Its id.
    pub thread: u32,
    /// Its name, if known.
    pub name: Option<String>,
    /// The current position is in it.
    pub current: bool,
    /// Whether it crashed.
    pub crashed: bool,
    /// The trace has times for it.
    pub timed: bool,
    /// The number of instructions in its history.
    pub instructions: u64,
    /// Its states, in order of time.
    pub spans: Vec<SpanView>,
    /// The number of further spans.
    pub more_spans: u64,
    /// The signals that it handled, in order of time.
    pub signals: Vec<SignalView>,
    /// The number of further signals.
    pub more_signals: u64,
    /// The calls of the requested function.
    pub calls: Option<CallsRow>,
    #[serde(skip)]
    pub(crate) cells: Vec<GridCell>,
    /// The columns with signals.
    #[serde(skip)]
    pub(crate) signals_at: Vec<Presence>,
    /// Which column has the crash.
    #[serde(skip)]
    pub(crate) crash_at: Option<usize>,
}

/// A thread in one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpanView {
    /// The state.
    pub state: ThreadState,
    /// The beginning.
    pub from: Time,
    /// The end.
    pub to: Time,
    /// Its first instruction, or the one that it came before; for `goto`.
    pub position: String,
    /// The number of executed instructions.
    pub instructions: u64,
}

/// A signal that was handled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SignalView {
    /// The first instruction of the handler.
    pub position: String,
    /// The handler, or its address.
    pub handler: String,
    /// The time of the handler's entry.
    pub time: Time,
}

/// The calls of some functions in a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallsRow {
    /// The number of calls that began or ran in the columns.
    pub count: u64,
    /// The number of these calls that may be continuations of earlier ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub rests: u64,
    /// The number of calls without time stamps.
    pub without_time: u64,
    /// The first of them.
    pub spans: Vec<CallSpan>,
    #[serde(skip)]
    pub(crate) columns: Vec<Presence>,
}

/// The time of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallSpan {
    /// `c12`, a name in its thread.
    pub call: Option<String>,
    /// Its first instruction.
    pub position: String,
    /// The beginning.
    pub from: Time,
    /// The end.
    pub to: Time,
}

/// The states, as they are drawn and explained.
const LEGEND: [(GridCell, char, &str); 5] = [
    (GridCell::Ran, '█', "ran"),
    (GridCell::OffCpu, '░', "off-CPU"),
    (GridCell::Both, '▒', "mixed or partly unknown"),
    (GridCell::Unknown, '?', "unknown"),
    (GridCell::Gap, '×', "history is missing"),
];

fn glyph(cell: GridCell) -> char {
    let mut known = LEGEND.iter().filter(|(known, _, _)| *known == cell);
    known.next().map_or(' ', |&(_, glyph, _)| glyph)
}

fn presence(at: &[Presence], yes: char, maybe: char) -> Vec<char> {
    let glyph = |presence: &Presence| match presence {
        Presence::No => ' ',
        Presence::Maybe => maybe,
        Presence::Yes => yes,
    };
    at.iter().map(glyph).collect()
}

/// The longest name of a row, in characters.
const LABEL: usize = 26;

/// Returns the label before the columns of a thread. The current thread has an arrow.
pub(crate) fn label(thread: u32, name: Option<&str>, current: bool) -> String {
    let arrow = if current { '→' } else { ' ' };
    let label = match name {
        Some(name) => format!("{arrow} {thread} \"{name}\""),
        None => format!("{arrow} {thread}"),
    };
    shortened(&label, LABEL)
}

/// Cuts a text at `most` characters, and shows the cut as an ellipsis.
fn shortened(text: &str, most: usize) -> String {
    match text.chars().count() <= most {
        true => text.to_owned(),
        false => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

/// The number of blanks at the beginning of a line below a thread.
const INDENT: usize = 4;

/// Returns the name of the functions whose calls are shown, as a line below a thread has it.
fn calls_label(function: &str) -> String {
    shortened(function, LABEL - INDENT)
}

/// Returns the width of the column of labels: of the threads, and of the functions whose calls
/// are shown.
pub(crate) fn label_width(labels: impl Iterator<Item = String>, function: Option<&str>) -> usize {
    let below = function.map_or(0, |function| INDENT + calls_label(function).chars().count());
    labels
        .map(|label| label.chars().count())
        .max()
        .unwrap_or(0)
        .max(below)
}

impl ThreadRow {
    fn label(&self) -> String {
        label(self.thread, self.name.as_deref(), self.current)
    }

    fn render(&self, width: usize, function: Option<&str>, to: &mut Text) {
        let label = format!("{:<width$}", self.label());
        if !self.timed {
            let instructions = self.instructions;
            to.line(format!(
                "{label} {}",
                to.paint(
                    Paint::Faint,
                    format!("no time stamps: the time of its {instructions} instructions is unknown")
                )
            ));
            return;
        }
        let cells: String = self.cells.iter().map(|&cell| glyph(cell)).collect();
        to.line(format!("{label} {cells}"));
        let mut marks = presence(&self.signals_at, 'S', 's');
        if let Some(mark) = self.crash_at.and_then(|column| marks.get_mut(column)) {
            *mark = 'X';
        }
        below(width, "", &marks, to);
        if let Some(calls) = &self.calls {
            below(
                width,
                &function.map(calls_label).unwrap_or_default(),
                &presence(&calls.columns, '▔', '·'),
                to,
            );
        }
    }
}

/// A line below a row, if there is anything in it.
fn below(width: usize, label: &str, marks: &[char], to: &mut Text) {
    if marks.iter().all(|&mark| mark == ' ') {
        return;
    }
    let marks: String = marks.iter().collect();
    let label = format!("{:INDENT$}{label}", "");
    let label = to.paint(Paint::Function, format!("{label:<width$}"));
    to.line(format!("{label} {marks}"));
}

impl TimelineView {
    pub(super) fn render(&self, to: &mut Text) {
        let width = label_width(
            self.threads.iter().map(ThreadRow::label),
            self.function.as_deref(),
        );
        for row in &self.threads {
            row.render(width, self.function.as_deref(), to);
        }
        self.render_axis(width, to);
        let used = |cell: &GridCell| {
            self.threads
                .iter()
                .any(|row| row.timed && row.cells.contains(cell))
        };
        let mut legend: Vec<String> = LEGEND
            .iter()
            .filter(|(cell, _, _)| used(cell))
            .map(|(_, glyph, what)| format!("{glyph} {what}"))
            .collect();
        let signals = || self.threads.iter().flat_map(|row| &row.signals_at);
        if signals().any(|&at| at == Presence::Yes) {
            legend.push("S signal".to_owned());
        }
        if signals().any(|&at| at == Presence::Maybe) {
            legend.push("s signal somewhere here".to_owned());
        }
        if let Some(crash) = self
            .crash
            .as_ref()
            .filter(|_| self.threads.iter().any(|row| row.crash_at.is_some()))
        {
            legend.push(format!("X {}", crash.signal));
        }
        if self.here_at.iter().any(|&at| at != Presence::No) {
            legend.push("^ here".to_owned());
        }
        if used(&GridCell::Nothing) {
            legend.push("blank: no history".to_owned());
        }
        for line in wrapped(&legend, (width + 1 + self.columns).max(NARROW)) {
            to.line(to.paint(Paint::Faint, line));
        }
        self.render_calls(to);
    }

    fn render_axis(&self, width: usize, to: &mut Text) {
        let mut line: Vec<char> = vec!['─'; self.columns];
        for &(column, _) in &self.axis {
            if let Some(at) = line.get_mut(column) {
                *at = '┬';
            }
        }
        let line: String = line.into_iter().collect();
        to.line(to.paint(Paint::Faint, format!("{:width$} {line}", "")));
        let here = presence(&self.here_at, '^', '^');
        if here.contains(&'^') {
            to.line(format!("{:width$} {}", "", here.iter().collect::<String>()));
        }
        let mut times = String::new();
        for (column, time) in &self.axis {
            let text = at(time);
            let begin = (*column).min(self.columns.saturating_sub(text.chars().count()));
            let long = times.chars().count();
            // One that does not fit is left out.
            if begin >= long + usize::from(long > 0) {
                times.extend(std::iter::repeat_n(' ', begin - long));
                times.push_str(&text);
            }
        }
        to.line(to.paint(Paint::Faint, format!("{:width$} {times}", "")));
        let origin = match (&self.crash, self.from.ns) {
            (Some(_), Some(_)) => "times before the crash",
            (None, Some(_)) => "times before the end of the trace",
            (Some(_), None) => "TSC ticks before the crash (the trace has no time conversion)",
            (None, None) => "TSC ticks before the end of the trace (it has no time conversion)",
        };
        to.line(to.paint(
            Paint::Faint,
            format!("{origin}; one column is {}", self.column_length()),
        ));
    }

    /// Returns the duration of a column.
    fn column_length(&self) -> String {
        let columns = self.columns.max(1) as u64;
        match (self.from.ns, self.to.ns) {
            (Some(from), Some(until)) => {
                let length = until.saturating_sub(from).unsigned_abs() / columns;
                nanos(i64::try_from(length).unwrap_or(i64::MAX))
            }
            _ => format!("{} ticks", self.to.tsc.saturating_sub(self.from.tsc) / columns),
        }
    }

    fn render_calls(&self, to: &mut Text) {
        let Some(function) = &self.function else { return };
        let calls = || self.threads.iter().filter_map(|row| row.calls.as_ref());
        let count: u64 = calls().map(|calls| calls.count).sum();
        let without: u64 = calls().map(|calls| calls.without_time).sum();
        let rests: u64 = calls().map(|calls| calls.rests).sum();
        let name = to.paint(Paint::Function, function);
        to.line(match count {
            0 => format!("{name} did not run here."),
            1 => format!("{name}: 1 call  ▔ ran  · may have run"),
            _ => format!("{name}: {count} calls  ▔ ran  · may have run"),
        });
        render_rests(rests, to);
        if without > 0 {
            to.line(format!("Calls without time stamps, not shown: {without}."));
        }
    }
}

/// The legend is no narrower, however few the columns are.
const NARROW: usize = 72;

/// Wraps items into lines of at most `width` characters, except for longer single items.
fn wrapped(words: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + word.chars().count() <= width => {
                line.push_str("  ");
                line.push_str(word);
            }
            _ => lines.push(word.clone()),
        }
    }
    lines
}

/// A time on the axis.
fn at(time: &Time) -> String {
    time.ns.map_or_else(|| time.to_string(), nanos)
}

#[cfg(test)]
mod tests;
