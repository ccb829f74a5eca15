//! The crash in at most 30 lines: what a session shows first.

use super::place::{render_frame, render_source};
use super::{CrashView, HistoryStep, Paint, Text};
use backtrail_debugger::calls::CallView;
use backtrail_debugger::source::{SourceLines, short};
use backtrail_debugger::stack::{Stack, StackFrame, without_parameters};

/// The number of lines of the stack, without the line about hidden frames.
const MAX_STACK: usize = 6;
/// The number of lines of the stack that are always shown.
const MIN_STACK: usize = 3;
/// The number of notes.
const MAX_NOTES: usize = 3;
/// The number of last calls, and of last lines.
const MAX_LAST: usize = 4;
/// The same number if lines of standard error are shown.
const MAX_LAST_AFTER_ERRORS: usize = 3;
/// The number of source lines around the current one.
const AROUND: u32 = 1;
/// The number of libraries that are named for folded frames.
const MAX_LIBRARIES: usize = 3;

impl CrashView {
    /// Renders what fits a screen.
    pub(super) fn render_first_screen(&self, to: &mut Text) {
        self.render_head(to);
        if let Some(source) = &self.source {
            to.line("");
            self.render_place(source, to);
        }
        to.line("");
        let has_own = self.stack.frames.iter().any(|frame| frame.library.is_none());
        // Lines that most crashes do not have take the place of frames.
        let others = self.notes.len().min(MAX_NOTES)
            + usize::from(self.handler.is_some())
            + 2 * usize::from(self.heap.is_some())
            + usize::from(self.request.is_some());
        let said = self.shown_standard_error().len();
        // With them, there is one call and one line less.
        let saved = 2 * (MAX_LAST - MAX_LAST_AFTER_ERRORS);
        let others = others + (said + usize::from(said > 0)).saturating_sub(saved);
        let limit = MAX_STACK.saturating_sub(others).max(MIN_STACK);
        render_stack(&self.stack, limit, has_own, self.more_frames, to);
        let (calls, lines) = self.last();
        if !calls.is_empty() {
            to.line("");
            to.line("Last calls:");
            calls.iter().for_each(|call| render_call(call, to));
        }
        if !lines.is_empty() {
            to.line("");
            to.line("Last lines, newest last:");
            lines.iter().for_each(|line| render_line(line, to));
        }
        to.line("");
        for note in self.notes.iter().take(MAX_NOTES) {
            to.line(to.paint(Paint::Faint, format!("Note: {note}")));
        }
        let more = self.notes.len().saturating_sub(MAX_NOTES);
        if more > 0 {
            to.line(to.paint(Paint::Faint, format!("Note: {more} more in `crash full`")));
        }
        let next = match self.is_core_alone {
            true => "Next: `backtrace`, `info locals`, `crash full`, `help`",
            false => "Next: `reverse-step`, `break LOCATION` and `reverse-continue`, `crash full`, `help`",
        };
        to.line(to.paint(Paint::Faint, next));
    }

    /// The calls and lines that are shown: those of own code, if there are any.
    fn last(&self) -> (&[CallView], &[HistoryStep]) {
        let (calls, lines) = match self.own_lines.is_empty() && self.own_calls.is_empty() {
            true => (&*self.calls, &*self.history.steps),
            false => (&*self.own_calls, &*self.own_lines),
        };
        // Standard error takes their place.
        let count = match self.shown_standard_error().is_empty() {
            true => MAX_LAST,
            false => MAX_LAST_AFTER_ERRORS,
        };
        (newest(calls, count), newest(lines, count))
    }

    /// Renders the function, file and lines of the innermost own frame.
    fn render_place(&self, source: &SourceLines, to: &mut Text) {
        let is_shown = |frame: &&StackFrame| {
            frame.file.as_deref() == Some(&*source.file) && frame.line == source.current
        };
        let frame = self.stack.frames.iter().find(is_shown);
        let function = frame.and_then(|frame| frame.function.as_deref());
        let function = function.map_or_else(String::new, |function| {
            format!(" in {}", to.paint(Paint::Function, function))
        });
        let line = source.current.unwrap_or(source.first);
        let place = format!("{}:{line}", short(&source.file));
        to.line(format!("{}{function}", to.paint(Paint::Place, place)));
        if source.lines.is_some() {
            render_source(&around(source), to);
        }
    }
}

fn newest<T>(all: &[T], count: usize) -> &[T] {
    all.get(all.len().saturating_sub(count)..).unwrap_or(all)
}

/// Returns the lines next to the current one.
fn around(source: &SourceLines) -> SourceLines {
    let current = source.current.unwrap_or(source.first);
    let first = current.saturating_sub(AROUND).max(source.first);
    let skipped = first.saturating_sub(source.first) as usize;
    let count = (current - first + AROUND) as usize + 1;
    let (lines, kept) = (source.lines.as_ref(), source.kept.as_ref());
    SourceLines {
        first,
        lines: lines.map(|lines| lines.iter().skip(skipped).take(count).cloned().collect()),
        kept: kept.map(|kept| kept.iter().skip(skipped).take(count).copied().collect()),
        ..source.clone()
    }
}

/// Renders a stack. Frames of libraries next to each other take one line, if there is own code.
fn render_stack(stack: &Stack, limit: usize, has_own: bool, more: bool, to: &mut Text) {
    to.line("Stack:");
    let mut rest = &*stack.frames;
    let mut shown = 0;
    while let Some((frame, others)) = rest.split_first() {
        let markers = usize::from(frame.signal_handler) + usize::from(frame.called_through_bad_pointer);
        if shown + 1 + markers > limit {
            break;
        }
        shown += 1 + markers;
        let folded = match has_own {
            true => rest.iter().take_while(|frame| is_foldable(frame)).count(),
            false => 0,
        };
        if folded > 1 {
            let (frames, after) = rest.split_at(folded);
            to.line(to.paint(Paint::Faint, format!("    {}", folded_frames(frames))));
            rest = after;
            continue;
        }
        render_frame(frame.number, frame, to);
        if frame.called_through_bad_pointer {
            to.line("    <called through a bad pointer, by the return address on the stack>");
        }
        if frame.signal_handler {
            to.line("    <signal handler called>");
        }
        rest = others;
    }
    let hidden = match (rest.len(), more) {
        (0, false) => None,
        (0, true) => Some("more frames".to_owned()),
        (1, false) => Some("1 more frame".to_owned()),
        (count, false) => Some(format!("{count} more frames")),
        (count, true) => Some(format!("more than {count} more frames")),
    };
    if let Some(hidden) = hidden {
        to.line(to.paint(Paint::Faint, format!("    <{hidden}: `backtrace` shows them>")));
    } else if let Some(why) = &stack.unknown_beyond {
        to.line(to.paint(Paint::Faint, format!("    <{why}>")));
    }
}

fn is_foldable(frame: &StackFrame) -> bool {
    frame.library.is_some() && !frame.signal_handler && !frame.called_through_bad_pointer
}

/// Returns `7 frames of core, std and libc.so.6`.
fn folded_frames(frames: &[StackFrame]) -> String {
    let mut libraries: Vec<&str> = Vec::new();
    for library in frames.iter().filter_map(|frame| frame.library.as_deref()) {
        if !libraries.contains(&library) {
            libraries.push(library);
        }
    }
    let names = match &*libraries {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [all @ .., last] if all.len() < MAX_LIBRARIES => format!("{} and {last}", all.join(", ")),
        all => format!(
            "{} and others",
            all.get(..MAX_LIBRARIES).unwrap_or(all).join(", ")
        ),
    };
    format!("{} frames of {names}", frames.len())
}

fn render_call(call: &CallView, to: &mut Text) {
    let place = call.file.as_deref().zip(call.line);
    let place = place.map_or_else(String::new, |(file, line)| format!("  {}:{line}", short(file)));
    let left = call
        .left
        .as_deref()
        .map_or_else(String::new, |left| format!("  ({left})"));
    to.line(format!(
        "  {}{}{left}  {}",
        to.paint(Paint::Function, without_parameters(&call.function)),
        to.paint(Paint::Place, place),
        to.paint(Paint::Faint, format!("[{}]", call.name_and_position()))
    ));
}

fn render_line(step: &HistoryStep, to: &mut Text) {
    let place = match (step.file.as_deref(), step.line) {
        (Some(file), Some(line)) => format!("{}:{line}", short(file)),
        _ => step
            .function
            .clone()
            .unwrap_or_else(|| "<unknown line>".to_owned()),
    };
    let text = step.text.as_deref().unwrap_or("").trim();
    let gap = if text.is_empty() { "" } else { "  " };
    to.line(format!(
        "  {}{gap}{text}  {}",
        to.paint(Paint::Place, place),
        to.paint(Paint::Faint, format!("[{}]", step.position))
    ));
}
