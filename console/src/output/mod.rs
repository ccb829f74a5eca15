//! The answers of commands, which serialize to JSON and render to text.
//!
//! The JSON schema is `backtrail-debug/1`: see [`crate::batch`].

mod called;
mod compare;
mod count;
mod crash;
mod first_screen;
mod flow;
mod heap;
mod latency;
mod lists;
mod place;
mod ptwrites;
mod skips;
mod text;
mod thread_apply;
mod timeline;
mod values;
mod visible;
mod writes;

pub use called::CalledView;
pub use count::{CountView, ThreadCount};
pub use crash::{CrashView, HandlerView};
pub use flow::{FileHit, HistoryStep, HistoryView, LineHit, SearchView};
pub use heap::HeapView;
pub use latency::{LatencyView, SlowCall, SlowestView, UnmeasuredView};
pub use lists::{
    BreakpointView, FunctionView, GapView, ModuleView, SourceFileView, ThreadPositionView, ThreadView,
};
pub use place::{Place, PositionView, StopView, ThreadName};
pub use ptwrites::PtwriteView;
pub use skips::SkipView;
pub use text::{Paint, Text};
pub use thread_apply::ThreadAnswer;
pub use timeline::{
    CallSpan, CallsRow, CrashMoment, MomentView, SignalView, SpanView, ThreadRow, TimelineView,
};
pub(crate) use timeline::{label, label_width};
pub use values::{MemoryLine, NamedValue};
pub use visible::{is_invisible, unlinked, visible, visible_lines, write_json};
pub use writes::WritesView;

use backtrail_debugger::calls::{CallTree, Caller};
use backtrail_debugger::compare::Comparison;
use backtrail_debugger::disassembly;
use backtrail_debugger::heap::summary::HeapSummary;
use backtrail_debugger::origin::ValueOrigin;
use backtrail_debugger::registers::Register;
use backtrail_debugger::source::SourceLines;
use backtrail_debugger::stack::Stack;
use backtrail_values::{FormattedMember, FormattedValue};
use serde::Serialize;

/// The answer of a command.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Output {
    /// The answer of a command that moved.
    Stop(Box<StopView>),
    /// The answer of `when`.
    #[serde(rename = "when")]
    Position(PositionView),
    /// `frame`, `up`, `down`, `info frame`.
    Frame {
        number: usize,
        frame: backtrail_debugger::stack::StackFrame,
        source: Option<SourceLines>,
        /// The call of the frame, if `info frame` requests it and it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        called: Option<CalledView>,
    },
    /// `backtrace`.
    Backtrace {
        /// The frames that were asked for.
        #[serde(flatten)]
        stack: Stack,
        /// There are more.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        more: bool,
    },
    /// `backtrace full`.
    FullBacktrace {
        /// The frames that were asked for.
        #[serde(flatten)]
        stack: Stack,
        /// There are more.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        more: bool,
        /// The variables of each frame.
        locals: Vec<Vec<FormattedMember>>,
    },
    /// `list`, `info line`.
    Source(SourceLines),
    /// `disassemble`, `x/i`.
    Disassembly {
        function: Option<String>,
        lines: Vec<disassembly::DisassembledLine>,
        /// With the bytes of each instruction.
        #[serde(skip)]
        raw: bool,
    },
    /// `calls`.
    Calls(CallTree),
    /// `callers`.
    Callers { function: String, callers: Vec<Caller> },
    /// `history`.
    History(HistoryView),
    /// `count`.
    Count(CountView),
    /// `origin`.
    Origin(Box<ValueOrigin>),
    /// `history EXPR`.
    Writes(WritesView),
    /// `search`.
    Search(SearchView),
    /// `latency`.
    Latency(LatencyView),
    /// `slowest`.
    Slowest(SlowestView),
    /// `compare`.
    Comparison(Box<Comparison>),
    /// `timeline`.
    Timeline(Box<TimelineView>),
    /// `crash`.
    Crash(Box<CrashView>),
    /// `info breakpoints`.
    Breakpoints { breakpoints: Vec<BreakpointView> },
    /// `break` and its kin.
    Breakpoint { breakpoint: BreakpointView },
    /// `skip`, `info skip`.
    Skips { skips: Vec<SkipView> },
    /// `info threads`.
    Threads { threads: Vec<ThreadView> },
    /// `info registers`.
    Registers { registers: Vec<Register> },
    /// `print`.
    Value {
        /// `$1` is 1; absent where there is no value.
        number: Option<usize>,
        expression: String,
        value: FormattedValue,
    },
    /// `info locals`, `info args`.
    Variables {
        variables: Vec<FormattedMember>,
        #[serde(skip)]
        none: &'static str,
    },
    /// `ptype`, `whatis`.
    Type { expression: String, text: String },
    /// `x`.
    Memory { lines: Vec<MemoryLine> },
    /// `display`, `info display`.
    Displays { displays: Vec<NamedValue> },
    /// `info sharedlibrary`.
    Modules { modules: Vec<ModuleView> },
    /// `info gaps`.
    Gaps { gaps: Vec<GapView> },
    /// `info ptwrites`.
    Ptwrites {
        /// In order.
        writes: Vec<PtwriteView>,
        /// The number of earlier ones.
        older: usize,
    },
    /// `info heap ADDRESS`.
    Heap(Box<HeapView>),
    /// `info heap`.
    HeapSummary(Box<HeapSummary>),
    /// `info functions`.
    Functions {
        functions: Vec<FunctionView>,
        more: bool,
    },
    /// `info source`.
    SourceFile(SourceFileView),
    /// `bookmark`, `info bookmarks`.
    Bookmarks { bookmarks: Vec<(String, String)> },
    /// The answers of several commands: of `thread apply`, or of the commands of a breakpoint.
    Several { answers: Vec<ThreadAnswer> },
    /// A sentence.
    Message { text: String },
    /// `help`.
    Help { text: String },
    /// `quit`: the session ends.
    Quit,
}

/// No answer.
#[expect(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Output {
    /// A sentence as the answer.
    #[must_use]
    pub fn message(text: impl Into<String>) -> Self {
        let text = visible(&text.into()).into_owned();
        Self::Message { text }
    }

    /// Text of several lines as the answer, for a command whose lines are the user's.
    #[must_use]
    pub fn lines(text: impl Into<String>) -> Self {
        Self::Message { text: text.into() }
    }

    /// Renders the answer as lines of text.
    pub fn render(&self, to: &mut Text) {
        match self {
            Self::Stop(view) => view.render(to),
            Self::Position(view) => view.render(to),
            Self::Frame {
                number,
                frame,
                source,
                called,
            } => {
                place::render_frame(*number, frame, to);
                if let Some(source) = source {
                    place::render_source(source, to);
                }
                if let Some(called) = called {
                    called.render(to);
                }
            }
            Self::Backtrace { stack, more } => place::render_backtrace(stack, &[], *more, to),
            Self::FullBacktrace { stack, more, locals } => place::render_backtrace(stack, locals, *more, to),
            Self::Source(source) => place::render_source(source, to),
            Self::Disassembly { function, lines, raw } => {
                place::render_disassembly(function.as_deref(), lines, *raw, to)
            }
            Self::Calls(tree) => flow::render_calls(tree, to),
            Self::Callers { function, callers } => flow::render_callers(function, callers, to),
            Self::History(view) => view.render(to),
            Self::Origin(origin) => writes::render_origin(origin, to),
            Self::Writes(view) => view.render(to),
            Self::Count(view) => view.render(to),
            Self::Search(view) => view.render(to),
            Self::Latency(view) => view.render(to),
            Self::Slowest(view) => view.render(to),
            Self::Comparison(view) => compare::render(view, to),
            Self::Timeline(view) => view.render(to),
            Self::Crash(view) => view.render(to),
            Self::Breakpoints { breakpoints } => lists::render_breakpoints(breakpoints, to),
            Self::Breakpoint { breakpoint } => breakpoint.render_new(to),
            Self::Skips { skips } => skips::render(skips, to),
            Self::Threads { threads } => lists::render_threads(threads, to),
            Self::Registers { registers } => lists::render_registers(registers, to),
            Self::Value {
                number,
                expression,
                value,
            } => values::render_value(*number, expression, value, to),
            Self::Variables { variables, none } => values::render_variables(variables, none, to),
            Self::Type { text, .. } => values::render_type(text, to),
            Self::Memory { lines } => values::render_memory(lines, to),
            Self::Displays { displays } => values::render_displays(displays, to),
            Self::Modules { modules } => lists::render_modules(modules, to),
            Self::Gaps { gaps } => lists::render_gaps(gaps, to),
            Self::Ptwrites { writes, older } => ptwrites::render(writes, *older, to),
            Self::Heap(view) => view.render(to),
            Self::HeapSummary(summary) => heap::render_summary(summary, to),
            Self::Functions { functions, more } => lists::render_functions(functions, *more, to),
            Self::SourceFile(view) => view.render(to),
            Self::Bookmarks { bookmarks } => {
                if bookmarks.is_empty() {
                    to.line("No bookmarks; `bookmark NAME` adds one here.");
                }
                for (name, position) in bookmarks {
                    to.line(format!("{name}  {position}"));
                }
            }
            Self::Several { answers } => thread_apply::render(answers, to),
            Self::Message { text } | Self::Help { text } => to.lines(text),
            Self::Quit => {}
        }
    }
}
