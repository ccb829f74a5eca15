//! The crash as a person wants to read it: the opening view of a session.

use super::heap::render_diagnosis;
use super::place::render_stack;
use super::{HistoryStep, HistoryView, Paint, Text};
use backtrail_debugger::calls::CallView;
use backtrail_debugger::heap::diagnosis::HeapDiagnosis;
use backtrail_debugger::source::SourceLines;
use backtrail_debugger::stack::Stack;
use serde::Serialize;

/// The crash, its stack, and what led there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CrashView {
    /// The program.
    pub program: Option<String>,
    /// `SIGSEGV (segmentation fault) at address 0x0`; `None`: the trace does not end in a crash.
    pub signal: Option<String>,
    /// The meaning of the signal's code.
    pub cause: Option<String>,
    /// The end of a program that did not crash, if known: `the program exited with status 0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ending: Option<String>,
    /// Whether the program exited after a panic. All is then shown at the newest panic.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub panicked: bool,
    /// The thread.
    pub thread: u32,
    /// Its name.
    pub name: Option<String>,
    /// The end of its history, or the panic.
    pub position: String,
    /// The request of the thread, if its process published one: `trace id …, span id …`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The last lines that the program wrote to standard error, if it ended badly.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standard_error: Vec<String>,
    /// The signal handler that was running.
    pub handler: Option<HandlerView>,
    /// The explanation by the history of the heap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heap: Option<HeapDiagnosis>,
    /// The lines around the faulting one.
    pub source: Option<SourceLines>,
    /// The stack.
    pub stack: Stack,
    /// Whether there are more frames.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub more_frames: bool,
    /// The last calls, oldest first.
    pub calls: Vec<CallView>,
    /// The last lines.
    pub history: HistoryView,
    /// The last calls of the user's own code, oldest first; empty if no frame of the stack is.
    pub own_calls: Vec<CallView>,
    /// The last lines of the user's own code, oldest first.
    pub own_lines: Vec<HistoryStep>,
    /// Whether all is shown, and not what fits a screen.
    #[serde(skip)]
    pub is_full: bool,
    /// Notes about the trace for the reader.
    pub notes: Vec<String>,
    /// Whether there is a core, and no trace.
    #[serde(skip)]
    pub is_core_alone: bool,
}

/// A signal handler that runs at the crash: what went wrong may lie before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HandlerView {
    /// The function; `None`: it has no symbol.
    pub handler: Option<String>,
    /// Its first instruction.
    pub position: String,
    /// The function that was interrupted.
    pub interrupted: Option<String>,
}

impl HandlerView {
    fn render(&self, to: &mut Text) {
        let handler = self.handler.as_deref().unwrap_or("a signal handler");
        let interrupted = self.interrupted.as_deref().unwrap_or("the interrupted code");
        to.line(format!(
            "{handler} has been handling a signal since {}; `reverse-step` from there goes to {interrupted}",
            self.position
        ));
    }
}

/// The number of lines of standard error on the first screen.
const MAX_STANDARD_ERROR: usize = 3;

/// The beginning of the line that follows the message of a panic in Rust.
const HINT: &str = "note: run with `RUST_BACKTRACE=1`";

/// The texts in the first line of a message about a fault.
const MESSAGES: [&str; 5] = [
    "panicked at",
    "panic:",
    "Assertion",
    "terminate called",
    "AddressSanitizer",
];

impl CrashView {
    /// Returns the lines of standard error that are shown: all, or the message about the fault, or
    /// the last ones. The history of the heap says more.
    pub(super) fn shown_standard_error(&self) -> &[String] {
        let all = &*self.standard_error;
        if self.is_full {
            return all;
        }
        if self.heap.is_some() {
            return &[];
        }
        let is_message = |line: &String| MESSAGES.iter().any(|text| line.contains(text));
        let newest = all.len().saturating_sub(MAX_STANDARD_ERROR);
        let from = all.iter().rposition(is_message).unwrap_or(newest);
        let shown = all.get(from..).unwrap_or_default().iter();
        let shown = shown.take_while(|line| !line.starts_with(HINT)).count();
        all.get(from..from + shown.min(MAX_STANDARD_ERROR))
            .unwrap_or_default()
    }

    pub(super) fn render(&self, to: &mut Text) {
        match self.is_full {
            true => self.render_full(to),
            false => self.render_first_screen(to),
        }
    }

    /// Renders the signal, the thread, and what it worked on.
    pub(super) fn render_head(&self, to: &mut Text) {
        let program = self.program.as_deref().unwrap_or("The program");
        let name = self
            .name
            .as_deref()
            .map(|name| format!(" \"{name}\""))
            .unwrap_or_default();
        match &self.signal {
            Some(signal) => {
                let cause = self
                    .cause
                    .as_deref()
                    .map(|cause| format!(": {cause}"))
                    .unwrap_or_default();
                to.line(to.paint(Paint::Alarm, format!("{program} crashed: {signal}{cause}")));
                to.line(format!("in thread {}{name}, at {}", self.thread, self.position));
            }
            None if self.panicked => {
                let ending = self.ending.as_deref().unwrap_or("the program exited");
                to.line(to.paint(Paint::Alarm, format!("{program} panicked: {ending}.")));
                to.line(format!(
                    "The newest panic is in thread {}{name}, at {}; `goto panic` goes there.",
                    self.thread, self.position
                ));
            }
            None => {
                let how = self.ending.as_deref().map(|how| format!(": {how}"));
                let how = how.unwrap_or_default();
                to.line(match self.is_core_alone {
                    true => format!("{program} ran when its core was saved: the core has no signal."),
                    false => format!("{program}: the trace does not end in a crash{how}."),
                });
                to.line(format!(
                    "The end of thread {}{name} is {}",
                    self.thread, self.position
                ));
            }
        }
        if let Some(heap) = &self.heap {
            render_diagnosis(heap, to);
        }
        let said = self.shown_standard_error();
        if !said.is_empty() {
            to.line("Standard error:");
            said.iter().for_each(|line| to.line(format!("  {line}")));
        }
        if let Some(request) = &self.request {
            to.line(format!("request: {request}"));
        }
        if let Some(handler) = &self.handler {
            handler.render(to);
        }
    }

    fn render_full(&self, to: &mut Text) {
        self.render_head(to);
        if let Some(source) = &self.source {
            to.line("");
            super::place::render_source(source, to);
        }
        to.line("");
        to.line("Stack:");
        render_stack(&self.stack, &[], to);
        if self.more_frames {
            to.line(to.paint(Paint::Faint, "    <more frames: `backtrace` shows them>"));
        }
        if !self.calls.is_empty() {
            to.line("");
            to.line("Last calls:");
            for call in &self.calls {
                let time = call.time.map(|time| format!(", {time}")).unwrap_or_default();
                let aside = to.paint(Paint::Faint, format!("[{}{time}]", call.name_and_position()));
                let left = call
                    .left
                    .as_deref()
                    .map(|left| format!("  ({left})"))
                    .unwrap_or_default();
                to.line(format!(
                    "  {}{left}  {aside}",
                    to.paint(Paint::Function, &call.function)
                ));
            }
        }
        if !self.history.steps.is_empty() {
            to.line("");
            to.line("Last lines, newest last:");
            self.history.render(to);
        }
        for note in &self.notes {
            to.line(to.paint(Paint::Faint, format!("Note: {note}")));
        }
    }
}
