//! The stack at a position, out of the call forest and the inlined copies.

use crate::error::{Error, Result};
use crate::session::{Session, Thread};
use backtrail_decoder::{CallId, Entered, Forest, Watch};
use backtrail_pt::{Avma, Cofi};
use serde::Serialize;

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackFrame {
    /// 0 is the innermost.
    pub number: usize,
    /// Where it stands: the next instruction, or where the call made from it returns to.
    pub pc: Option<u64>,
    /// The function; `None`: no symbol covers the address.
    pub function: Option<String>,
    /// The source file, as the debug information names it.
    pub file: Option<String>,
    /// The source line.
    pub line: Option<u32>,
    /// The module, where the function is not known.
    pub module: Option<String>,
    /// A copy inlined into the next frame.
    pub inlined: bool,
    /// Its call, `c12` for `goto c12`.
    pub call: Option<String>,
    /// A signal handler: the next frame was interrupted, it did not call.
    pub signal_handler: bool,
    /// It jumped to the frame before, at its own end: a tail call. Its frame on the program's stack is gone.
    pub tail_caller: bool,
    /// `pc` is the start of a line's code: GDB leaves the address out then.
    #[serde(skip)]
    pub at_line_start: bool,
}

/// A stack, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stack {
    /// Innermost first.
    pub frames: Vec<StackFrame>,
    /// Why there may be older frames that are not shown.
    pub unknown_beyond: Option<String>,
    /// That is because the beginning of the history is not decoded yet.
    #[serde(skip)]
    pub needs_earlier: bool,
}

impl Stack {
    /// Unless older frames are missing that are to be had.
    ///
    /// # Errors
    /// [`Error::Earlier`] when they are.
    pub fn complete(self) -> Result<Self> {
        match self.needs_earlier {
            true => Err(Error::Earlier),
            false => Ok(self),
        }
    }
}

struct Walk<'a> {
    session: &'a Session,
    thread: &'a Thread,
    frames: Vec<StackFrame>,
    needs_earlier: bool,
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
    let mut walk = Walk {
        session,
        thread,
        frames: Vec::new(),
        needs_earlier: false,
    };
    let unknown_beyond = if thread.history.is_empty() {
        walk.by_registers()
    } else {
        let forest = session.forest(thread, watch)?;
        walk.by_forest(forest, index, limit)
    };
    let mut frames = walk.frames;
    let needs_earlier = walk.needs_earlier && frames.len() < limit;
    let unknown_beyond = unknown_beyond.filter(|_| needs_earlier || !walk.needs_earlier);
    frames.truncate(limit);
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.number = number;
    }
    Ok(Stack {
        frames,
        unknown_beyond,
        needs_earlier,
    })
}

/// Where the thread stands before instruction `index`; at the end, where the core or the trace says.
#[must_use]
pub fn pc_at(session: &Session, thread: &Thread, index: u64) -> Option<Avma> {
    if index < thread.history.len() {
        return thread.history.pc(index);
    }
    session
        .end_registers(thread.tid)
        .map(|registers| registers.pc())
        .or_else(|| thread.history.pc(index))
}

impl Walk<'_> {
    fn by_registers(&mut self) -> Option<String> {
        let pc = pc_at(self.session, self.thread, 0);
        if let Some(pc) = pc {
            self.push(pc, pc, None);
        }
        Some("the callers are unknown: this thread has no history, only its registers in the core".to_owned())
    }

    /// Gives why there may be more.
    fn by_forest(&mut self, forest: &Forest, index: u64, limit: usize) -> Option<String> {
        let history = &self.thread.history;
        let mut at = forest.call_at(index)?;
        let mut pc = pc_at(self.session, self.thread, index);
        let mut look_up = pc;
        if index >= history.len() {
            let last = history.instruction(history.len().checked_sub(1)?)?;
            let moved = pc.filter(|&pc| !self.same_function(pc, last.pc));
            match (moved, last.cofi) {
                (Some(callee), cofi) if cofi.is_call() => {
                    // The call is the last of the history: its callee has no call of its own there.
                    self.push(callee, callee, None);
                    (pc, look_up) = (Some(last.next()), Some(last.pc));
                }
                (Some(_), Cofi::Return) => match forest.call(at).parent {
                    Some(parent) => at = parent,
                    None => {
                        self.push(pc?, pc?, None);
                        return Some(self.beyond(forest, at));
                    }
                },
                _ => {}
            }
        }
        let mut tail_caller = false;
        loop {
            let call = forest.call(at);
            match pc.zip(look_up) {
                Some((pc, look_up)) => self.push(pc, look_up, Some((forest, at))),
                None => self.push_unknown(forest, call.function, at),
            }
            if tail_caller && let Some(frame) = self.frames.last_mut() {
                frame.tail_caller = true;
            }
            tail_caller = matches!(call.entered, Entered::TailCall { .. });
            if matches!(call.entered, Entered::Signal { .. })
                && let Some(frame) = self.frames.last_mut()
            {
                frame.signal_handler = true;
            }
            let Some(parent) = call.parent else {
                return Some(self.beyond(forest, at));
            };
            if self.frames.len() >= limit {
                return None;
            }
            (pc, look_up) = match call.entered {
                Entered::Call { site } => {
                    let site = history.instruction(site);
                    (site.map(|site| site.next()), site.map(|site| site.pc))
                }
                Entered::TailCall { site } => (history.pc(site), history.pc(site)),
                Entered::Signal { interrupted } => (Some(interrupted), Some(interrupted)),
                // The instruction it returned to stands behind the call.
                _ => {
                    let returned = history.pc(call.end).filter(|_| call.end < history.len());
                    (returned, returned.map(|pc| Avma(pc.0.saturating_sub(1))))
                }
            };
            at = parent;
        }
    }

    fn beyond(&mut self, forest: &Forest, root: CallId) -> String {
        let call = forest.call(root);
        if self.thread.is_cut_off(&call) {
            self.needs_earlier = true;
            return "older frames are in history that is not decoded yet; `backtrace` decodes it".to_owned();
        }
        match call.entered {
            Entered::AfterGap => format!(
                "the callers are unknown: history has a gap before {}",
                self.thread.position(call.first)
            ),
            Entered::Unknown => {
                "the callers are unknown: flow came here in a way that is not understood".to_owned()
            }
            _ => "older frames are unknown: history begins inside of this one".to_owned(),
        }
    }

    fn same_function(&self, one: Avma, other: Avma) -> bool {
        let Some(process) = self.session.process(self.thread) else {
            return true;
        };
        let entry = |at| process.symbols.function_at(at).map(|function| function.entry);
        entry(one) == entry(other)
    }

    /// Pushes the frames of a call that stands at `pc`; names and lines are those at `look_up`.
    fn push(&mut self, pc: Avma, look_up: Avma, call: Option<(&Forest, CallId)>) {
        let process = self.session.process(self.thread);
        let symbols = process.map(|process| &process.symbols);
        let frames = symbols
            .map(|symbols| symbols.frames_at(look_up))
            .unwrap_or_default();
        let module = symbols
            .and_then(|symbols| symbols.module_at(pc))
            .map(|module| module.name.to_string());
        let call = call.and_then(|(forest, call)| self.thread.name_of(forest, call));
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
    fn push_unknown(&mut self, forest: &Forest, function: Avma, call: CallId) {
        let process = self.session.process(self.thread);
        let found = process.and_then(|process| process.symbols.function_at(function));
        self.frames.push(StackFrame {
            function: found.map(|function| function.name.to_string()),
            call: self.thread.name_of(forest, call),
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
            inlined: false,
            call: None,
            signal_handler: false,
            tail_caller: false,
            at_line_start: false,
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

    /// `main ()`, `ns::f(int)`, `??`.
    #[must_use]
    pub fn signature(&self) -> String {
        match &self.function {
            Some(name) if name.contains('(') => name.clone(),
            Some(name) => format!("{name} ()"),
            None => "?? ()".to_owned(),
        }
    }
}
