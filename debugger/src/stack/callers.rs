//! From the call that a position is in outwards, to its root.

use super::position::pc_at;
use crate::session::{Session, Thread};
use backtrail_decoder::{CallId, Entered, Forest};
use backtrail_pt::{Avma, Cofi};

/// One call on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallerStep {
    /// The program counter: the next instruction, or the return address of the call.
    pub pc: Option<Avma>,
    /// The address whose function and line are meant.
    pub look_up: Option<Avma>,
    /// The call; `None`: it began with the last instruction of the history, which has no call for
    /// it.
    pub call: Option<CallId>,
    /// Whether it ended by a jump to the previous one.
    pub tail_caller: bool,
    /// As `tail_caller`, but by a return to where a function begins: whether it shares its caller
    /// is not certain.
    pub returned_to_start: bool,
    /// Whether it is a signal handler.
    pub signal_handler: bool,
    /// The call itself, or the one that ended with the last instruction, when it is inside of no
    /// other.
    pub root: Option<CallId>,
}

/// The calls that a position is in, innermost first.
pub(super) struct Callers<'a> {
    thread: &'a Thread,
    forest: &'a Forest,
    /// Comes before all others.
    callee: Option<CallerStep>,
    at: Option<CallId>,
    pc: Option<Avma>,
    look_up: Option<Avma>,
    tail_caller: bool,
    /// The instruction by which it jumped.
    site: Option<u64>,
}

impl<'a> Callers<'a> {
    pub fn new(session: &Session, thread: &'a Thread, forest: &'a Forest, index: u64) -> Self {
        let pc = pc_at(session, thread, index);
        let mut steps = Self {
            thread,
            forest,
            callee: None,
            at: forest.call_at(index),
            pc,
            look_up: pc,
            tail_caller: false,
            site: None,
        };
        if index >= thread.history.len() {
            steps.leave_the_last(session);
        }
        steps
    }

    /// Applies the last instruction of the history, whose effect is not in the call forest.
    fn leave_the_last(&mut self, session: &Session) {
        let last = self.thread.history.len().checked_sub(1);
        let Some(last) = last.and_then(|last| self.thread.history.instruction(last)) else {
            return;
        };
        let Some(pc) = self
            .pc
            .filter(|&pc| !same_function(session, self.thread, pc, last.pc))
        else {
            return;
        };
        let callee = CallerStep {
            pc: Some(pc),
            look_up: Some(pc),
            call: None,
            tail_caller: false,
            returned_to_start: false,
            signal_handler: false,
            root: None,
        };
        if last.cofi.is_call() {
            self.callee = Some(callee);
            (self.pc, self.look_up) = (Some(last.next()), Some(last.pc));
        } else if last.cofi == Cofi::Return
            && let Some(returned) = self.at
        {
            let call = self.forest.call(returned);
            self.at = call.parent.filter(|_| !call.is_outermost());
            if self.at.is_none() {
                self.callee = Some(CallerStep {
                    root: Some(returned),
                    ..callee
                });
            } else if let Entered::Call { site } = call.entered
                && let Some(site) = self.thread.history.instruction(site)
                && !same_function(session, self.thread, pc, site.pc)
            {
                // Not to its caller: the return address was overwritten.
                self.callee = Some(callee);
                (self.pc, self.look_up) = (Some(site.next()), Some(site.pc));
            }
        }
    }
}

impl Iterator for Callers<'_> {
    type Item = CallerStep;

    fn next(&mut self) -> Option<CallerStep> {
        if let Some(callee) = self.callee.take() {
            return Some(callee);
        }
        let at = self.at?;
        let history = &self.thread.history;
        let call = self.forest.call(at);
        let jump = self.site.take().and_then(|site| history.instruction(site));
        let step = CallerStep {
            pc: self.pc,
            look_up: self.look_up,
            call: Some(at),
            tail_caller: self.tail_caller,
            returned_to_start: jump.is_some_and(|jump| jump.cofi == Cofi::Return),
            signal_handler: matches!(call.entered, Entered::Signal { .. }),
            root: call.is_outermost().then_some(at),
        };
        self.tail_caller = matches!(call.entered, Entered::TailCall { .. });
        (self.pc, self.look_up) = match call.entered {
            Entered::Call { site } => {
                let site = history.instruction(site);
                (site.map(|site| site.next()), site.map(|site| site.pc))
            }
            Entered::TailCall { site } => {
                self.site = Some(site);
                (history.pc(site), history.pc(site))
            }
            Entered::Signal { interrupted } => (Some(interrupted), Some(interrupted)),
            // The instruction to which it returned follows the call.
            _ => {
                let returned = history.pc(call.end).filter(|_| call.end < history.len());
                (returned, returned.map(|pc| Avma(pc.0.saturating_sub(1))))
            }
        };
        self.at = call.parent.filter(|_| !call.is_outermost());
        Some(step)
    }
}

/// Returns whether two addresses are in one function, at the end of the history.
fn same_function(session: &Session, thread: &Thread, one: Avma, other: Avma) -> bool {
    let Some(symbols) = session.symbols_at(thread, thread.history.len()) else {
        return true;
    };
    let entry = |at| symbols.function_at(at).map(|function| function.entry);
    entry(one) == entry(other)
}
