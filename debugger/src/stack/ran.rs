//! What the history tells of the frames that a thread has in the core.

use super::outwards::{Outwards, Step};
use crate::session::{Process, Session, Thread};
use crate::unwind::{Layout, Past};
use backtrail_decoder::{CallId, Entered, Forest, Instruction, Version, Watch};
use backtrail_pt::{Avma, Cofi};
use backtrail_symbolizer::UnwindRow;
use rustc_hash::FxHashMap;

/// A function that ran more instructions since it was entered is not looked at.
const MOST: u64 = 1 << 20;

/// A thread whose stack is looked for in the core.
pub(super) struct Ran<'a> {
    pub session: &'a Session,
    pub thread: &'a Thread,
    pub process: &'a Process,
}

impl Ran<'_> {
    fn last(&self) -> Option<Instruction> {
        let last = self.thread.history.len().checked_sub(1)?;
        self.thread.history.instruction(last)
    }
}

impl Past for Ran<'_> {
    fn has_returned(&self) -> bool {
        self.last().is_some_and(|last| last.cofi == Cofi::Return)
    }

    fn rules(&self, number: usize, pc: Avma) -> Option<(UnwindRow, Avma)> {
        let history = &self.thread.history;
        let forest = self.session.forest(self.thread, &Watch::none()).ok()?;
        let steps = Outwards::new(self.session, self.thread, forest, history.len());
        let Numbered { step, inner, outer } = Numbered::find(steps, number)?;
        if step.pc != Some(pc) {
            return None;
        }
        let Some((call, outer)) = step.call.zip(outer) else {
            // The last instruction called it.
            let returns_to = self.last().filter(|last| last.cofi.is_call())?.next();
            return Some((Layout::at_entry().row()?, returns_to));
        };
        let until = match inner {
            None => history.len(),
            Some(Step { call: None, .. }) => history.len().checked_sub(1)?,
            Some(Step {
                call: Some(inner), ..
            }) => match forest.call(inner).entered {
                Entered::Call { site } => site,
                Entered::Signal { .. } => forest.call(inner).first,
                _ => return None,
            },
        };
        let Entered::Call { site } = forest.call(outer).entered else {
            return None;
        };
        let returns_to = history.instruction(site)?.next();
        Some((self.layout(forest, call, until)?.row()?, returns_to))
    }
}

/// A frame on the program's stack.
struct Numbered {
    step: Step,
    /// The outermost of those that share the frame inside of it.
    inner: Option<Step>,
    /// The call whose return it shares.
    outer: Option<CallId>,
}

impl Numbered {
    /// A frame by its number in the core: those that handlers return to are there counted, those that jumped to their
    /// callees not.
    fn find(steps: Outwards<'_>, number: usize) -> Option<Self> {
        let mut steps = steps.peekable();
        let (mut count, mut inner) = (0, None);
        while let Some(step) = steps.next() {
            if !step.tail_caller {
                if count == number {
                    let mut outer = step.call;
                    while let Some(jumped) = steps.next_if(|step| step.tail_caller) {
                        outer = jumped.call;
                    }
                    return Some(Self { step, inner, outer });
                }
                count += 1;
            }
            count += usize::from(step.signal_handler);
            inner = Some(step);
        }
        None
    }
}

impl Ran<'_> {
    /// The frame of a call before instruction `until`.
    fn layout(&self, forest: &Forest, call: CallId, until: u64) -> Option<Layout> {
        let history = &self.thread.history;
        let mut layout = Layout::at_entry();
        let mut decoded: FxHashMap<(Avma, Version), iced_x86::Instruction> = FxHashMap::default();
        let mut children = forest.children(call).map(|child| forest.call(child)).peekable();
        let mut walker = history.walk(forest.call(call).first);
        let mut left = MOST;
        while walker.index() < until {
            left = left.checked_sub(1)?;
            let at = walker.index();
            if let Some(child) = children.next_if(|child| child.first <= at) {
                let back = match child.entered {
                    Entered::Signal { interrupted } => interrupted,
                    Entered::Call { site } => history.instruction(site)?.next(),
                    _ => return None,
                };
                if child.end <= at || history.pc(child.end) != Some(back) {
                    return None;
                }
                walker = history.walk(child.end);
                if matches!(child.entered, Entered::Call { .. }) {
                    layout.called();
                }
                continue;
            }
            let executed = walker.next()?;
            let calls = executed.cofi.is_call() && children.peek().is_some_and(|child| child.first == at + 1);
            if calls {
                continue;
            }
            let version = history.version(at);
            let instruction = match decoded.get(&(executed.pc, version)) {
                Some(known) => *known,
                None => {
                    let found = self.process.decoded_at(version, executed.pc, executed.len)?;
                    decoded.insert((executed.pc, version), found);
                    found
                }
            };
            layout.step(&instruction)?;
        }
        Some(layout)
    }
}
