//! Lists: threads, modules, gaps, breakpoints, functions, registers.

use super::{Paint, Text};
use backtrail_debugger::breakpoint::UndecidedHits;
use backtrail_debugger::registers::Register;
use backtrail_debugger::source::short;
use serde::Serialize;

/// A thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadView {
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: Option<String>,
    /// Whether it is the current thread.
    pub current: bool,
    /// Whether it received the signal that ended the process.
    pub crashed: bool,
    /// The number of instructions in its history.
    pub instructions: u64,
    /// The number of gaps.
    pub gaps: usize,
    /// The position at which it is shown.
    pub position: String,
    /// The location at that position.
    pub place: Option<String>,
    /// The position at the time of the current position.
    pub now: ThreadPositionView,
}

/// The position of a thread at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadPositionView {
    /// The thread had reached this position.
    pub position: Option<String>,
    /// The thread was not beyond this position, as precisely as the time stamps determine.
    pub until: Option<String>,
    /// The location at the position.
    pub place: Option<String>,
    /// The reason why there is no position.
    pub unknown: Option<&'static str>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ModuleView {
    /// Its first address.
    pub from: u64,
    /// The address after it.
    pub to: u64,
    /// Its path in the traced system.
    pub name: String,
    /// Symbols were found.
    pub symbols: bool,
    /// The reason why its debug information is incomplete, if it is.
    pub debug_gap: Option<String>,
}

/// A gap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GapView {
    /// The first instruction after it.
    pub position: String,
    /// Why.
    pub cause: String,
    /// The offset in the trace bytes.
    pub trace_offset: u64,
    /// The number of trace bytes in it; `None` if it extends to the end.
    pub trace_bytes: Option<u64>,
}

/// A breakpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BreakpointView {
    /// Its number.
    pub number: u32,
    /// As it was given.
    pub location: String,
    /// The resolved locations.
    pub places: Vec<String>,
    /// The only thread in which it hits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// The kind of a watchpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watches: Option<&'static str>,
    /// Deleted at its first hit.
    pub temporary: bool,
    /// Whether it stops moves.
    pub enabled: bool,
    /// Its condition.
    pub condition: Option<String>,
    /// The hits that it passed because the condition was unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "untold")]
    pub undecided: Option<UndecidedHits>,
    /// The remaining number of hits to ignore.
    pub ignore: u64,
    /// The number of hits.
    pub hits: u64,
    /// The commands that run at a stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionView {
    /// The entry address.
    pub entry: u64,
    /// Its name.
    pub name: String,
    /// The line of its declaration.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
}

/// A source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SourceFileView {
    /// As the debug information names it; `None`: no line is known here.
    pub file: Option<String>,
    /// The path at which it was found.
    pub found: Option<String>,
    /// Whether its text is that of the bundle.
    pub bundled: bool,
    /// Whether the debug information confirms the bundle's text by its MD5.
    pub verified: bool,
    /// Whether the bundle has only some of its lines.
    pub partial: bool,
}

pub(super) fn render_threads(threads: &[ThreadView], to: &mut Text) {
    for thread in threads {
        let mark = if thread.current { "*" } else { " " };
        let name = thread
            .name
            .as_deref()
            .map(|name| format!(" \"{name}\""))
            .unwrap_or_default();
        let mut text = format!(
            "{mark} {}{name}  {} instructions",
            thread.tid, thread.instructions
        );
        if thread.gaps > 0 {
            text.push_str(&format!(", {} gaps", thread.gaps));
        }
        if thread.crashed {
            text.push_str(", crashed");
        }
        let now = &thread.now;
        if let Some(unknown) = now.unknown {
            text.push_str(&format!("  <{unknown}>"));
        }
        if let Some(place) = &now.place {
            text.push_str(&format!("  {place}"));
        }
        let aside = match (&now.position, &now.until) {
            (Some(position), Some(until)) => format!("[{position}, not beyond {until}]"),
            (Some(position), None) => format!("[{position}]"),
            (None, _) => format!("[left at {}]", thread.position),
        };
        to.line(format!("{text}  {}", to.paint(Paint::Faint, aside)));
    }
}

pub(super) fn render_registers(registers: &[Register], to: &mut Text) {
    for register in registers {
        let name = &register.name;
        let value = register.value.map(|value| format!("{value:#x}"));
        match (value.or_else(|| register.vector.clone()), &register.unknown) {
            (Some(value), _) => {
                to.line(format!("{name:<15}{value}"));
                if let Some(origin) = &register.origin {
                    to.line(to.paint(Paint::Faint, format!("    <{origin}>")));
                }
            }
            (None, Some(why)) => to.line(format!("{name:<15}<unknown: {why}>")),
            (None, None) => to.line(format!("{name:<15}<unknown>")),
        }
    }
}

pub(super) fn render_modules(modules: &[ModuleView], to: &mut Text) {
    if modules.is_empty() {
        to.line("No modules are known.");
        return;
    }
    to.line("From                To                  Symbols  Module");
    for module in modules {
        let symbols = if module.symbols { "yes" } else { "no" };
        to.line(format!(
            "{:#018x}  {:#018x}  {symbols:<7}  {}",
            module.from, module.to, module.name
        ));
        if let Some(gap) = &module.debug_gap {
            to.line(format!("    {gap}"));
        }
    }
}

pub(super) fn render_gaps(gaps: &[GapView], to: &mut Text) {
    if gaps.is_empty() {
        to.line("No gaps: the history of this thread is complete.");
    }
    for gap in gaps {
        let size = gap
            .trace_bytes
            .map(|bytes| format!(", {bytes} bytes of trace"))
            .unwrap_or_default();
        to.line(format!(
            "{}  {} (trace offset {:#x}{size})",
            gap.position, gap.cause, gap.trace_offset
        ));
    }
}

pub(super) fn render_breakpoints(breakpoints: &[BreakpointView], to: &mut Text) {
    if breakpoints.is_empty() {
        to.line("No breakpoints.");
    }
    for breakpoint in breakpoints {
        let times = if breakpoint.hits == 1 { "time" } else { "times" };
        let kind = match (breakpoint.temporary, breakpoint.enabled) {
            (true, true) => " (temporary)",
            (true, false) => " (temporary, disabled)",
            (false, true) => "",
            (false, false) => " (disabled)",
        };
        to.line(format!(
            "{:<4}{}{kind}  hit {} {times}",
            breakpoint.number, breakpoint.location, breakpoint.hits
        ));
        for place in &breakpoint.places {
            to.line(format!("    {place}"));
        }
        if let Some(thread) = breakpoint.thread {
            to.line(format!("    stop only in thread {thread}"));
        }
        if let Some(condition) = &breakpoint.condition {
            to.line(format!("    stop only if {condition}"));
        }
        if let Some(undecided) = &breakpoint.undecided {
            to.line(format!("    {undecided}"));
        }
        if breakpoint.ignore > 0 {
            to.line(match breakpoint.ignore {
                1 => "    ignore the next hit".to_owned(),
                count => format!("    ignore the next {count} hits"),
            });
        }
        for command in &breakpoint.commands {
            to.line(format!("        {command}"));
        }
    }
}

impl BreakpointView {
    pub(super) fn render_new(&self, to: &mut Text) {
        if let Some(kind) = self.watches {
            let (first, rest) = kind.split_at(1);
            let kind = first.to_uppercase() + rest;
            to.line(format!("{kind} {}: {}", self.number, self.location));
            return;
        }
        let kind = if self.temporary {
            "Temporary breakpoint"
        } else {
            "Breakpoint"
        };
        match self.places.as_slice() {
            [place] => to.line(format!("{kind} {}: {place}", self.number)),
            places => {
                to.line(format!(
                    "{kind} {}: {} ({} places)",
                    self.number,
                    self.location,
                    places.len()
                ));
                places.iter().for_each(|place| to.line(format!("    {place}")));
            }
        }
    }
}

pub(super) fn render_functions(functions: &[FunctionView], more: bool, to: &mut Text) {
    if functions.is_empty() {
        to.line("No functions match.");
    }
    for function in functions {
        let place = function.file.as_deref().zip(function.line);
        let place = place
            .map(|(file, line)| format!("  {}:{line}", short(file)))
            .unwrap_or_default();
        to.line(format!(
            "{:#018x}  {}{place}",
            function.entry,
            to.paint(Paint::Function, &function.name)
        ));
    }
    if more {
        to.line("… and more; narrow the regular expression.");
    }
}

impl SourceFileView {
    pub(super) fn render(&self, to: &mut Text) {
        match (&self.file, &self.found) {
            (None, _) => to.line("No line is known here."),
            (Some(file), Some(found)) => {
                let mark = match (self.bundled, self.verified) {
                    (true, true) => " (from the bundle, verified by its MD5)",
                    (true, false) => " (from the bundle)",
                    (false, _) => "",
                };
                let lines = if self.partial { ", some lines only" } else { "" };
                to.line(format!("{file}, found at {found}{mark}{lines}"));
            }
            (Some(file), None) => to.line(format!(
                "{file}, not found; use `set substitute-path FROM TO` or --symfs DIR"
            )),
        }
    }
}
