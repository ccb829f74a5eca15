//! The stack at a position: out of the call forest, beyond that out of the core, and the inlined
//! copies.

mod callers;
mod core;
mod core_cache;
mod position;
mod trace_frames;

pub(crate) use self::core::unwound;
pub(crate) use self::core_cache::CoreStackCache;
pub use self::position::pc_at;

use crate::error::{Error, Result};
use crate::own_code::CodeOrigin;
use crate::session::{Session, Thread};
use crate::unwind::PhysicalFrame;
use backtrail_decoder::{CallId, Entered, Forest, Left, Watch};
use backtrail_pt::Avma;
use backtrail_symbolizer::Symbolizer;
use callers::Callers;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// The origin of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Its call, or what it called, is in the history.
    #[default]
    Trace,
    /// The memory of the core, by call frame information.
    Core,
}

impl Origin {
    fn is_trace(&self) -> bool {
        *self == Self::Trace
    }
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// 0 is the innermost.
    pub number: usize,
    /// The program counter: the next instruction, or the return address of the call.
    pub pc: Option<u64>,
    /// The function; `None`: no symbol covers the address.
    pub function: Option<String>,
    /// The source file, as the debug information names it.
    pub file: Option<String>,
    /// The source line.
    pub line: Option<u32>,
    /// The module, where the function is not known.
    pub module: Option<String>,
    /// The library that its code belongs to; absent for the user's own code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// A copy inlined into the next frame.
    pub inlined: bool,
    /// Its call, `c12` for `goto c12`.
    pub call: Option<String>,
    /// A signal handler: the next frame was interrupted, it did not call.
    pub signal_handler: bool,
    /// Whether it ended by a tail call to the frame before, so that it has no frame on the
    /// program's stack.
    pub tail_caller: bool,
    /// The origin of the frame; absent for the trace.
    #[serde(rename = "from", skip_serializing_if = "Origin::is_trace")]
    pub origin: Origin,
    /// Whether `pc` is not code. The caller is then assumed from the return address on top of the
    /// stack.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub called_through_bad_pointer: bool,
    /// `pc` is the start of a line's code: GDB leaves the address out then.
    #[serde(skip)]
    pub at_line_start: bool,
    /// The arguments; absent if they were not requested or no debug information describes them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Vec<Argument>>,
}

impl<'a> From<&'a StackFrame> for CodeOrigin<'a> {
    fn from(frame: &'a StackFrame) -> Self {
        Self {
            function: frame.function.as_deref(),
            file: frame.file.as_deref(),
            module: frame.module.as_deref(),
        }
    }
}

/// The value of a function's parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Argument {
    /// The parameter.
    pub name: String,
    /// Its value; `None`: unknown.
    pub value: Option<String>,
    /// The reason why it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// A stack, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Innermost first.
    pub frames: Vec<StackFrame>,
    /// The reason why older frames may be missing.
    pub unknown_beyond: Option<String>,
    /// Whether the undecoded beginning of the history may have more frames.
    #[serde(skip)]
    pub needs_earlier: bool,
}

impl Stack {
    /// Unless more of it is to be had.
    ///
    /// # Errors
    /// [`Error::Earlier`] when it is.
    pub fn complete(self) -> Result<Self> {
        match self.needs_earlier {
            true => Err(Error::Earlier),
            false => Ok(self),
        }
    }
}

struct StackWalk<'a> {
    session: &'a Session,
    thread: &'a Thread,
    /// The symbols of the position.
    symbols: Option<&'a Arc<Symbolizer>>,
    frames: Vec<StackFrame>,
    needs_earlier: bool,
    /// The maximum number of frames.
    limit: usize,
}

/// The stack before instruction `index`; `limit`: no more frames than this.
///
/// # Errors
/// When canceled.
pub fn stack(
    session: &Session,
    thread: &Thread,
    index: u64,
    limit: usize,
    watch: &Watch<'_>,
) -> Result<Stack> {
    let mut walk = StackWalk {
        session,
        thread,
        symbols: session.symbols_at(thread, index),
        frames: Vec::new(),
        needs_earlier: false,
        limit,
    };
    let unknown_beyond = if thread.history.is_empty() {
        walk.by_core()
    } else {
        let forest = session.forest(thread, watch)?;
        walk.by_forest(forest, index)
    };
    let mut frames = walk.frames;
    frames.truncate(limit);
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.number = number;
        frame.library = CodeOrigin::from(&*frame).library();
    }
    Ok(Stack {
        frames,
        unknown_beyond,
        needs_earlier: walk.needs_earlier,
    })
}

impl StackWalk<'_> {
    /// All frames out of the core. Gives why there may be more, as the others do.
    fn by_core(&mut self) -> Option<String> {
        if self.limit > 1
            && let Some(unwound) = core::unwound(self.session, self.thread)
        {
            self.push_physical(&unwound.frames);
            return unwound.end.why().filter(|_| self.frames.len() < self.limit);
        }
        // The innermost frame takes no unwinding.
        if let Some(pc) = pc_at(self.session, self.thread, self.thread.history.len()) {
            self.push(pc, pc, None);
            self.frames
                .iter_mut()
                .for_each(|frame| frame.origin = Origin::Core);
        }
        let unknown = "the callers are unknown: the thread has no history and is not in the core";
        (self.limit > 1).then(|| unknown.to_owned())
    }

    fn by_forest(&mut self, forest: &Forest, index: u64) -> Option<String> {
        let history = &self.thread.history;
        let at = forest.call_at(index)?;
        if index >= history.len() && self.limit > 1 && self.is_wrong_at_the_end(forest, at) {
            self.needs_earlier = self.thread.is_partial();
            return self.by_core();
        }
        let mut root = None;
        for step in Callers::new(self.session, self.thread, forest, index) {
            if self.frames.len() >= self.limit {
                return None;
            }
            match step.pc.zip(step.look_up) {
                Some((pc, look_up)) => self.push(pc, look_up, step.call.map(|call| (forest, call))),
                None => self.push_unknown(forest, step.call?),
            }
            if let Some(frame) = self.frames.last_mut() {
                frame.tail_caller |= step.tail_caller;
                frame.signal_handler |= step.signal_handler;
            }
            root = step.root;
        }
        let root = root.filter(|_| self.frames.len() < self.limit)?;
        // The core does not have those that jumped to their callees.
        self.needs_earlier = self.thread.is_cut_off(&forest.call(root));
        let Some((callers, end)) = core::callers(self.session, self.thread, forest, root, index) else {
            return Some(self.beyond(forest, root));
        };
        self.push_physical(callers);
        end.why().filter(|_| self.frames.len() < self.limit)
    }

    /// The end of the history in the forest and the core differ. Either code that is not in the
    /// history ran since, or the forest misinterpreted the flow.
    fn is_wrong_at_the_end(&self, forest: &Forest, at: CallId) -> bool {
        let root = forest.ancestors(at).last();
        let lost = root.is_some_and(|root| forest.call(root).left == Left::Gap);
        (lost && self.session.end_registers(self.thread.tid).is_some())
            || core::contradicts(self.session, self.thread, forest)
    }

    /// Pushes frames of the core.
    fn push_physical(&mut self, frames: &[PhysicalFrame]) {
        for frame in frames {
            if let Some(handler) = self.frames.last_mut().filter(|_| frame.signal_frame) {
                handler.signal_handler = true;
                continue;
            }
            if self.frames.len() >= self.limit {
                return;
            }
            let known = self.frames.len();
            self.push(frame.pc, frame.look_up(), None);
            for pushed in self.frames.iter_mut().skip(known) {
                pushed.origin = Origin::Core;
                pushed.called_through_bad_pointer = frame.bad_pointer;
            }
        }
    }

    fn beyond(&self, forest: &Forest, root: CallId) -> String {
        let call = forest.call(root);
        match call.entered {
            _ if self.needs_earlier => {
                "older frames are in history that is not decoded yet; `backtrace` decodes it".to_owned()
            }
            Entered::AfterGap => format!(
                "the callers are unknown: history has a gap before {}",
                self.thread.position(call.first)
            ),
            Entered::Resumed => format!(
                "the callers are unknown: another function switched to this stack, at {}",
                self.thread.position(call.first.saturating_sub(1))
            ),
            Entered::Unknown => {
                "the callers are unknown: the transfer of control to here is not understood".to_owned()
            }
            _ => "older frames are unknown: history begins inside this one".to_owned(),
        }
    }

    /// Pushes the frames of a call at `pc`; names and lines are those at `look_up`.
    fn push(&mut self, pc: Avma, look_up: Avma, call: Option<(&Forest, CallId)>) {
        let symbols = self.symbols;
        let frames = symbols
            .map(|symbols| symbols.frames_at(look_up))
            .unwrap_or_default();
        let module = symbols
            .and_then(|symbols| symbols.module_at(pc))
            .map(|module| module.name.to_string());
        let name = call.and_then(|(forest, call)| self.thread.name_of(forest, call));
        let call = name.map(|name| name.to_string());
        if frames.is_empty() {
            let frame = StackFrame {
                call,
                module,
                ..StackFrame::nameless(Some(pc))
            };
            self.frames.push(frame);
            return;
        }
        let starts_line = symbols
            .and_then(|symbols| symbols.line_at(pc))
            .is_some_and(|row| row.range.start == pc);
        for (level, frame) in frames.into_iter().enumerate() {
            let location = frame.location.filter(|location| location.line != 0);
            self.frames.push(StackFrame {
                function: Some(frame.function.to_string()),
                file: location.as_ref().map(|location| location.file.to_string()),
                line: location.as_ref().map(|location| location.line),
                module: module.clone(),
                inlined: frame.inlined,
                call: call.clone(),
                at_line_start: level > 0 || (starts_line && pc == look_up),
                ..StackFrame::nameless(Some(pc))
            });
        }
    }

    /// Pushes a call of which only the function is known.
    fn push_unknown(&mut self, forest: &Forest, call: CallId) {
        let function = forest.call(call).function;
        let found = self.symbols.and_then(|symbols| symbols.function_at(function));
        self.frames.push(StackFrame {
            function: found.map(|function| function.name.to_string()),
            call: self.thread.name_of(forest, call).map(|name| name.to_string()),
            ..StackFrame::nameless(None)
        });
    }
}

impl StackFrame {
    fn nameless(pc: Option<Avma>) -> Self {
        Self {
            number: 0,
            pc: pc.map(|pc| pc.0),
            function: None,
            file: None,
            line: None,
            module: None,
            library: None,
            inlined: false,
            call: None,
            signal_handler: false,
            tail_caller: false,
            origin: Origin::Trace,
            called_through_bad_pointer: false,
            at_line_start: false,
            arguments: None,
        }
    }

    /// `main () at main.c:3`, with the address before it when it is not the start of a line.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = match (self.pc, self.at_line_start) {
            (Some(pc), false) => format!("{pc:#018x} in "),
            _ => String::new(),
        };
        text.push_str(&self.signature());
        if let Some((file, line)) = self.file.as_deref().zip(self.line) {
            text.push_str(&format!(" at {}:{line}", crate::source::short(file)));
        } else if let Some(module) = &self.module {
            text.push_str(&format!(" from {module}"));
        }
        text
    }

    /// `main ()`, `ns::f(int)`, `??`; with arguments `ns::f (count=3, next=?)`.
    #[must_use]
    pub fn signature(&self) -> String {
        let name = self.function.as_deref().unwrap_or("??");
        match &self.arguments {
            Some(arguments) => {
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                format!("{} ({})", without_parameters(name), arguments.join(", "))
            }
            None if has_parameters(name) => name.to_owned(),
            None => format!("{name} ()"),
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value.as_deref().unwrap_or("?"))
    }
}

/// Returns a C++ name without its parameters and the qualifiers after them: `ns::f` of
/// `ns::f(int) const`.
#[must_use]
pub fn without_parameters(name: &str) -> &str {
    if !has_parameters(name) {
        return name;
    }
    let mut open = 0usize;
    let parenthesis = name.char_indices().rev().find(|(_, c)| {
        match c {
            ')' => open += 1,
            '(' => open = open.saturating_sub(1),
            _ => return false,
        }
        open == 0 && *c == '('
    });
    let base = parenthesis.and_then(|(at, _)| name.get(..at)).map(str::trim_end);
    base.filter(|base| !base.is_empty()).unwrap_or(name)
}

/// Returns whether a C++ name includes parameters and qualifiers.
///
/// Rust has parentheses in the names of types: `<fn() as FnOnce<()>>::call_once`.
fn has_parameters(name: &str) -> bool {
    let following = [") const", ") &", ") volatile", ") noexcept", ") ["];
    name.ends_with(')') || following.iter().any(|following| name.contains(following))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_follow_a_name_without_parameters() {
        let signature = |name: &str| {
            let function = Some(name.to_owned());
            let frame = StackFrame {
                function,
                ..StackFrame::nameless(None)
            };
            frame.signature()
        };
        assert_eq!(signature("main"), "main ()");
        let rust = "<fn() as core::ops::function::FnOnce<()>>::call_once";
        assert_eq!(signature(rust), format!("{rust} ()"));
        for whole in [
            "ns::f(int)",
            "A::size() const",
            "A::g() &&",
            "f(int) [clone .cold]",
            "A::operator()(int)",
        ] {
            assert_eq!(signature(whole), whole);
        }
        for (whole, base) in [
            ("main", "main"),
            ("ns::f(int)", "ns::f"),
            ("A::size() const", "A::size"),
            ("f(int) [clone .cold]", "f"),
            ("A::operator()(int (*)(char))", "A::operator()"),
            ("(anonymous namespace)::g(int)", "(anonymous namespace)::g"),
            (rust, rust),
        ] {
            assert_eq!(without_parameters(whole), base);
        }
    }
}
