//! Places: a stop, a frame, a stack, source lines, disassembly.

use super::{Paint, Text};
use backtrail_debugger::StopReason;
use backtrail_debugger::breakpoint::UndecidedHits;
use backtrail_debugger::disassembly;
use backtrail_debugger::navigator::{HitsElsewhere, UnorderedHit};
use backtrail_debugger::source::{SourceLines, short};
use backtrail_debugger::stack::{Origin, Stack, StackFrame};
use backtrail_debugger::time::Time;
use backtrail_debugger::watchpoint::{UnseenAccesses, WatchHit, WatchKind};
use backtrail_values::FormattedMember;
use serde::Serialize;

/// A position with what is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// `t3497496#18220`.
    pub position: String,
    /// When, if known.
    pub time: Option<Time>,
    /// The processor, if known.
    pub cpu: Option<u32>,
    /// The innermost frame, if anything is known of it.
    pub frame: Option<StackFrame>,
    /// The source line, if there is one.
    pub source: Option<SourceLines>,
    /// The next instruction, where the position is not the start of a line.
    pub instruction: Option<disassembly::DisassembledLine>,
}

/// A stop of a verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopView {
    /// The reason of the stop.
    #[serde(flatten)]
    pub reason: StopReason,
    /// The position before the move.
    pub from: String,
    /// The cause of a gap that the move crossed.
    pub crossed_gap: Option<String>,
    /// Hits that were passed because their condition was unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "untold")]
    pub undecided: Option<UndecidedHits>,
    /// Places on the way at which accesses to watched memory may have gone unseen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unseen: Option<UnseenAccesses>,
    /// The thread, if the move went to another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switched_to: Option<ThreadName>,
    /// Hits of other threads that may have come before this one on the way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unordered: Vec<UnorderedHit>,
    /// If the move ended at an edge of the history: the hits of each thread.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<HitsElsewhere>,
    /// The position of the stop.
    pub place: Place,
    /// The values of `display`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub displays: Vec<super::NamedValue>,
}

/// A thread and its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadName {
    /// The thread.
    pub thread: u32,
    /// Its name.
    pub name: Option<String>,
}

/// The answer of `when`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PositionView {
    /// `t3497496#18220`.
    pub position: String,
    /// The thread.
    pub thread: u32,
    /// Its name.
    pub name: Option<String>,
    /// The number of instructions in its history; `None` if the beginning is not decoded yet.
    pub of: Option<u64>,
    /// When, if known.
    pub time: Option<Time>,
    /// The processor, if known.
    pub cpu: Option<u32>,
    /// The event at the end of the history.
    pub end: Option<String>,
}

impl StopView {
    pub(super) fn render(&self, to: &mut Text) {
        if let Some(cause) = &self.crossed_gap {
            to.line(to.paint(Paint::Alarm, format!("Crossed a gap in history: {cause}.")));
        }
        if let Some(undecided) = &self.undecided {
            to.line(format!("Breakpoint {} {undecided}.", undecided.breakpoint));
        }
        if let Some(unseen) = &self.unseen {
            let text = format!("In between, accesses may have gone unseen: {unseen}.");
            to.line(to.paint(Paint::Alarm, text));
        }
        if let Some(ThreadName { thread, name }) = &self.switched_to {
            to.line(match name {
                Some(name) => format!("[Switching to thread {thread} \"{name}\"]"),
                None => format!("[Switching to thread {thread}]"),
            });
        }
        let mut prefix = String::new();
        match &self.reason {
            StopReason::Done => {}
            StopReason::Breakpoint { number } => prefix = format!("Breakpoint {number}, "),
            StopReason::Watchpoint { number, hit } => render_watch_hit(*number, hit, to),
            StopReason::WatchScope {
                number,
                expression,
                scope,
            } => {
                let scope = scope.as_deref().unwrap_or("the call");
                to.line(format!(
                    "Watchpoint {number}: {expression} does not exist beyond this position, outside of {scope}."
                ));
            }
            StopReason::HistoryStart => to.line("No more history: this is the start."),
            StopReason::HistoryEnd { crash: Some(crash) } => {
                to.line(to.paint(Paint::Alarm, format!("The crash: {crash}.")));
            }
            StopReason::HistoryEnd { crash: None } => to.line("No more history: this is the end."),
            StopReason::Gap { cause } => {
                to.line(to.paint(
                    Paint::Alarm,
                    format!("History has a gap directly before this position: {cause}."),
                ));
            }
            StopReason::Canceled => to.line("Canceled; nothing moved."),
        }
        for hits in &self.elsewhere {
            to.line(format!("  {hits}"));
        }
        self.place.render(&prefix, to);
        for hit in &self.unordered {
            to.line(format!("  {hit}"));
        }
        if !self.displays.is_empty() {
            super::values::render_displays(&self.displays, to);
        }
    }
}

/// Renders an access to a watched expression as GDB does. The old value is that before the access.
fn render_watch_hit(number: u32, hit: &WatchHit, to: &mut Text) {
    let kind = match hit.kind {
        WatchKind::Change => "Watchpoint",
        WatchKind::Read => "Read watchpoint",
        WatchKind::Access => "Access watchpoint",
    };
    match number {
        0 => to.line(format!("Write of {}:", hit.expression)),
        _ => to.line(format!("{kind} {number}: {}", hit.expression)),
    }
    match hit.has_changed() {
        true => {
            to.lines(format!("Old value = {}", hit.old));
            to.lines(format!("New value = {}", hit.new));
        }
        false => to.lines(format!("Value = {}", hit.new)),
    }
}

impl Place {
    /// Renders the place in two or three lines, GDB's way.
    pub fn render(&self, prefix: &str, to: &mut Text) {
        let described = self
            .frame
            .as_ref()
            .map_or_else(|| "<unknown place>".to_owned(), |frame| describe(frame, to));
        let mut aside = self.position.clone();
        if let Some(time) = &self.time {
            aside.push_str(&format!(", {time}"));
        }
        to.line(format!(
            "{prefix}{described}  {}",
            to.paint(Paint::Faint, format!("[{aside}]"))
        ));
        if let Some(source) = &self.source {
            render_source(source, to);
        }
        if let Some(instruction) = &self.instruction {
            to.line(instruction_line(instruction, to));
        }
    }
}

fn describe(frame: &StackFrame, to: &Text) -> String {
    let text = frame.describe();
    let signature = frame.signature();
    text.replacen(&signature, &to.paint(Paint::Function, &signature), 1)
}

/// Writes source lines with their numbers.
pub(super) fn render_source(source: &SourceLines, to: &mut Text) {
    let Some(lines) = &source.lines else {
        to.line(format!(
            "{}\tin {} (source not found)",
            source.current.unwrap_or(source.first),
            short(&source.file)
        ));
        return;
    };
    let single = lines.len() == 1;
    let mut executions = source.executions.iter().flatten();
    for ((index, number), line) in (source.first..).enumerate().zip(lines) {
        let is_kept = source.is_kept(index);
        let ran = match (&source.executions, executions.next()) {
            (None, _) => String::new(),
            (Some(_), None | Some(None)) => " ".repeat(12),
            (Some(_), Some(Some(0))) => format!("{:>11} ", "never"),
            (Some(_), Some(Some(count))) => format!("{:>11} ", format!("{count}×")),
        };
        let ran = to.paint(Paint::Faint, ran);
        let current = source.current == Some(number) && !single;
        let mark = if current { "→" } else { "" };
        let number = to.paint(Paint::Place, number.to_string());
        let line = if !is_kept {
            to.paint(Paint::Faint, SourceLines::NOT_KEPT)
        } else if current {
            to.paint(Paint::Current, line)
        } else {
            line.clone()
        };
        to.line(format!("{ran}{mark}{number}\t{line}"));
    }
    if source.executions.is_some() {
        let counted = match source.counted_threads {
            0 | 1 => "this thread",
            _ => "all threads",
        };
        to.line(to.paint(
            Paint::Faint,
            format!("  (the number of executions of each line in the history of {counted})"),
        ));
    }
}

impl PositionView {
    pub(super) fn render(&self, to: &mut Text) {
        let name = self
            .name
            .as_deref()
            .map(|name| format!(" \"{name}\""))
            .unwrap_or_default();
        let place = match (self.index().strip_prefix('-'), self.of) {
            (Some(count), None) => format!("{count} instructions before the end"),
            (Some(count), Some(of)) => format!("{count} instructions before the end of {of}"),
            (None, of) => format!("instruction {} of {}", self.index(), of.unwrap_or_default()),
        };
        to.line(format!(
            "{}: thread {}{name}, {place}",
            self.position, self.thread
        ));
        match &self.time {
            Some(time) => to.line(format!("time {time} (TSC {})", time.tsc)),
            None => to.line("time <unknown: the trace has no time stamp before this position>"),
        }
        if let Some(cpu) = self.cpu {
            to.line(format!("on processor {cpu}"));
        }
        if let Some(end) = &self.end {
            to.line(end);
        }
    }

    fn index(&self) -> &str {
        self.position.split('#').nth(1).unwrap_or("?")
    }
}

pub(super) fn render_frame(number: usize, frame: &StackFrame, to: &mut Text) {
    let note = match (frame.inlined, frame.tail_caller) {
        (true, _) => " (inlined)",
        (false, true) => " (tail call)",
        (false, false) => "",
    };
    to.line(format!("#{number:<2} {}{note}", describe(frame, to)));
}

/// With the variables of each frame, where there are some. `backtrace`, with the variables of each
/// frame where they are asked for; `more`: there are more frames.
pub(super) fn render_backtrace(stack: &Stack, locals: &[Vec<FormattedMember>], more: bool, to: &mut Text) {
    render_stack(stack, locals, to);
    if more {
        to.line(to.paint(Paint::Faint, "    <more frames follow>"));
    }
}

pub(super) fn render_stack(stack: &Stack, locals: &[Vec<FormattedMember>], to: &mut Text) {
    let mut before = None;
    let mut locals = locals.iter();
    for frame in &stack.frames {
        if before == Some(Origin::Trace) && frame.origin == Origin::Core {
            to.line(to.paint(
                Paint::Faint,
                "    <called before history begins; read from the core:>",
            ));
        }
        before = Some(frame.origin);
        render_frame(frame.number, frame, to);
        if frame.called_through_bad_pointer {
            to.line("    <called through a bad pointer, by the return address on the stack>");
        }
        if let Some(variables) = locals.next() {
            for variable in variables {
                to.lines(format!("        {} = {}", variable.name, variable.value.text));
            }
            if variables.is_empty() {
                to.line("No locals.");
            }
        }
        if frame.signal_handler {
            to.line("    <signal handler called>");
        }
    }
    if let Some(why) = &stack.unknown_beyond {
        to.line(to.paint(Paint::Faint, format!("    <{why}>")));
    }
}

fn instruction_line(line: &disassembly::DisassembledLine, to: &Text) -> String {
    let mark = if line.current { "=> " } else { "   " };
    let symbol = line
        .symbol
        .as_deref()
        .map(|symbol| format!(" <{symbol}>"))
        .unwrap_or_default();
    let text = format!("{mark}{:#x}{symbol}:\t{}", line.address, line.text);
    if line.current {
        to.paint(Paint::Current, text)
    } else {
        text
    }
}

pub(super) fn render_disassembly(
    function: Option<&str>,
    lines: &[disassembly::DisassembledLine],
    raw: bool,
    to: &mut Text,
) {
    if let Some(function) = function {
        to.line(format!("Code of {}:", to.paint(Paint::Function, function)));
    }
    if lines.is_empty() {
        to.line("<unknown: the code is not available>");
    }
    for line in lines {
        if let Some(source) = &line.source {
            to.line(format!("{}:", short(&source.file)));
            render_source(source, to);
        }
        if raw {
            let pairs = line.bytes.as_bytes().chunks(2);
            let pairs: Vec<String> = pairs
                .map(|pair| String::from_utf8_lossy(pair).into_owned())
                .collect();
            let text = format!("{:<24}{}", pairs.join(" "), line.text);
            to.line(instruction_line(
                &disassembly::DisassembledLine { text, ..line.clone() },
                to,
            ));
        } else {
            to.line(instruction_line(line, to));
        }
    }
}
