//! Calls, callers, history and search results.

use super::{Paint, Text};
use backtrail_debugger::calls::{CallTree, Caller};
use backtrail_debugger::source::short;
use backtrail_debugger::time::Time;
use serde::Serialize;

/// A line start, or a call that led here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HistoryStep {
    /// Where.
    pub position: String,
    /// When, if known.
    pub time: Option<Time>,
    /// The number of additional calls around it, compared with the outermost shown step, for the
    /// indentation.
    pub depth: usize,
    /// The function, named where it is another than in the step before.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The source line.
    pub line: Option<u32>,
    /// Its text, if found.
    pub text: Option<String>,
    /// Whether the line is of a function that was inlined.
    #[serde(skip)]
    pub inlined: bool,
    /// The number of calls around it, inlined ones included.
    #[serde(skip)]
    pub absolute_depth: usize,
}

/// The lines that led to a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HistoryView {
    /// Oldest first.
    pub steps: Vec<HistoryStep>,
    /// The reason why there is nothing before, if history ends there.
    pub before: Option<String>,
}

/// Executed functions or source lines that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SearchView {
    /// The regular expression.
    pub pattern: String,
    /// Matching functions that were called, with how often, and the positions of the last call and
    /// of the first.
    pub functions: Vec<(String, u64, String, String)>,
    /// Matching files of which something ran.
    pub files: Vec<FileHit>,
    /// Lines that ran, and whose text matches.
    pub lines: Vec<LineHit>,
    /// More match than are listed.
    pub more: bool,
}

/// A source file of which something ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileHit {
    /// As the debug information names it.
    pub file: String,
    /// The number of its lines that ran.
    pub lines: u64,
}

/// A source line that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineHit {
    /// As the debug information names it.
    pub file: String,
    /// Its number.
    pub line: u32,
    /// Its text.
    pub text: String,
    /// The number of executions.
    pub count: u64,
    /// The position of the first execution.
    pub first: String,
    /// The position of the last execution.
    pub last: String,
}

pub(super) fn render_calls(tree: &CallTree, to: &mut Text) {
    if tree.calls.is_empty() {
        to.line("No calls: there is no history here.");
    }
    for call in &tree.calls {
        let mark = if call.current { "→ " } else { "  " };
        let place = call.file.as_deref().zip(call.line);
        let place = place
            .map(|(file, line)| format!(" {}:{line}", short(file)))
            .unwrap_or_default();
        let mut aside = call.name_and_position();
        if let Some(duration) = &call.duration {
            aside.push_str(&format!(", {duration}"));
        }
        aside.push_str(&format!(", {} instructions", call.instructions));
        let (function, place_paint) = match call.library {
            Some(_) => (Paint::Faint, Paint::Faint),
            None => (Paint::Function, Paint::Place),
        };
        let inlined = if call.inlined { " (inlined)" } else { "" };
        let notes: Vec<&str> = [&call.entered, &call.left]
            .into_iter()
            .flatten()
            .map(String::as_str)
            .collect();
        if !notes.is_empty() {
            aside.push_str(&format!("; {}", notes.join(", ")));
        }
        to.line(format!(
            "{mark}{:indent$}{}{inlined}{}  {}",
            "",
            to.paint(function, &call.function),
            to.paint(place_paint, place),
            to.paint(Paint::Faint, format!("[{aside}]")),
            indent = call.depth * 2
        ));
    }
    if tree.more {
        to.line("… and more; `calls --limit N` shows more, `calls cN` those below one call.");
    }
}

/// Reports calls that may be continuations of earlier ones, if there are any.
pub(super) fn render_rests(rests: u64, to: &mut Text) {
    if rests > 0 {
        to.line(format!(
            "{rests} of them may be the continuation of an earlier one, after a gap, a resumption or an unknown transfer, or in inlined code."
        ));
    }
}

pub(super) fn render_callers(function: &str, callers: &[Caller], to: &mut Text) {
    if callers.is_empty() {
        to.line(format!("{function} was not called in the recorded history."));
    }
    for caller in callers {
        let name = caller
            .function
            .as_deref()
            .unwrap_or("<unknown: before history, across a gap, resumed, or an unknown transfer>");
        let place = caller.file.as_deref().zip(caller.line);
        let place = place
            .map(|(file, line)| format!(" at {}:{line}", short(file)))
            .unwrap_or_default();
        let last = to.paint(Paint::Faint, format!("[last {}]", caller.last));
        to.line(format!(
            "{:>8}  {}{place}  {last}",
            caller.count,
            to.paint(Paint::Function, name)
        ));
    }
}

impl HistoryView {
    /// Renders the steps, indented by their depth.
    pub fn render(&self, to: &mut Text) {
        if let Some(before) = &self.before {
            to.line(to.paint(Paint::Faint, format!("<{before}>")));
        }
        for step in &self.steps {
            let indent = "  ".repeat(step.depth.min(20));
            if let Some(function) = &step.function {
                let place = step
                    .file
                    .as_deref()
                    .map(|file| format!("  {}", short(file)))
                    .unwrap_or_default();
                to.line(format!(
                    "{indent}{}{}",
                    to.paint(Paint::Function, function),
                    to.paint(Paint::Place, place)
                ));
            }
            let line = step.line.map(|line| line.to_string()).unwrap_or_default();
            let time = step
                .time
                .as_ref()
                .map(|time| format!(", {time}"))
                .unwrap_or_default();
            let aside = to.paint(Paint::Faint, format!("[{}{time}]", step.position));
            let text = step.text.as_deref().unwrap_or("").trim();
            let text = if text.is_empty() {
                String::new()
            } else {
                format!("{text}  ")
            };
            to.line(format!(
                "{indent}  {}  {text}{aside}",
                to.paint(Paint::Place, format!("{line:>4}"))
            ));
        }
    }
}

impl SearchView {
    pub(super) fn render(&self, to: &mut Text) {
        if self.functions.is_empty() && self.files.is_empty() && self.lines.is_empty() {
            to.line(format!(
                "No executed function, file or source line matches \"{}\".",
                self.pattern
            ));
        }
        let places = |first: &str, last: &str| match first == last {
            true => to.paint(Paint::Faint, format!("[{first}]")),
            false => to.paint(Paint::Faint, format!("[first {first}, last {last}]")),
        };
        let mut found = Vec::new();
        for (function, calls, last, first) in &self.functions {
            found.push(format!(
                "{calls:>8}  {}  {}",
                to.paint(Paint::Function, function),
                places(first, last)
            ));
        }
        for FileHit { file, lines } in &self.files {
            let file = to.paint(Paint::Place, file);
            found.push(format!("          {file}: {lines} lines ran"));
        }
        for hit in &self.lines {
            let place = to.paint(Paint::Place, format!("{}:{}", short(&hit.file), hit.line));
            found.push(format!(
                "{:>8}  {place}  {}  {}",
                hit.count,
                hit.text.trim(),
                places(&hit.first, &hit.last)
            ));
        }
        for line in found {
            to.line(line);
        }
        if self.more {
            to.line("… and more; use a more specific expression.");
        }
    }
}
