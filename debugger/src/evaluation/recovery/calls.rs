//! Registers that calls preserve (System V ABI AMD64, section 3.2.1), across calls.
//!
//! A call that has returned gave its caller's values back in two cases. At its last instruction,
//! its call frame information says that the register has the caller's value (DWARF 5, section
//! 6.4.1). Or the last instructions loaded the register from where that information says that it
//! was saved. Of a call that had not returned at the crash, the core's stack has its caller's
//! values.

use super::code::ExecutedCode;
use super::epilogue::EpilogueStep;
use super::part::RegisterPart;
use crate::session::{Process, Thread};
use crate::unwind::PhysicalFrame;
use backtrail_decoder::{Call, CallId, Entered, Forest, Left};
use backtrail_pt::{Avma, Cofi};
use backtrail_symbolizer::{CfaRule, RegisterRule, UnwindRow};
use std::sync::Arc;

/// The limit of functions that leave by a jump to the next, for one call.
const MAX_JUMPS: usize = 32;
/// The limit of instructions of a function without call frame information, such as a stub of a
/// procedure linkage table.
const MAX_STUB: u64 = 8;
/// The limit of instructions that load the caller's registers, before a return.
const MAX_EPILOGUE: usize = 32;
/// The canonical frame address before a return instruction: above the return address.
const BEFORE_RETURN: CfaRule = CfaRule::Register {
    register: 7,
    offset: 8,
};

/// The calls of a thread, and which registers they preserved.
pub(super) struct PreservingCalls<'a> {
    process: &'a Process,
    thread: &'a Thread,
    forest: &'a Forest,
    /// The core's stack at the end of the history, innermost first; empty if that is not the
    /// crash.
    frames: &'a [PhysicalFrame],
}

impl<'a> PreservingCalls<'a> {
    pub fn new(
        process: &'a Process,
        thread: &'a Thread,
        forest: &'a Forest,
        frames: &'a [PhysicalFrame],
    ) -> Self {
        Self {
            process,
            thread,
            forest,
            frames,
        }
    }

    /// Returns the call instruction of the call that returned to instruction `after`, if the call
    /// preserved the register.
    pub fn site_before(&self, after: u64, part: RegisterPart, code: &mut ExecutedCode<'_>) -> Option<u64> {
        let last = after.checked_sub(1).filter(|_| part.is_preserved())?;
        let mut id = self.forest.call_at(last)?;
        let call = self.forest.call(id);
        if call.end != after || call.left != Left::Return || !self.gives_back(&call, last, part, code) {
            return None;
        }
        for _ in 0..MAX_JUMPS {
            match self.forest.call(id).entered {
                Entered::Call { site } => return self.returns_to(site, after).then_some(site),
                Entered::TailCall { site } => {
                    id = self.forest.call_at(site)?;
                    let jumped = self.forest.call(id);
                    if !self.gives_back(&jumped, site, part, code) {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the instruction after the call that the instruction `site` made, if the call
    /// returned and preserved the register.
    pub fn end_of(&self, site: u64, part: RegisterPart, code: &mut ExecutedCode<'_>) -> Option<u64> {
        let first = site.checked_add(1).filter(|_| part.is_preserved())?;
        let called = self.forest.call(self.forest.call_at(first)?);
        if called.first != first || called.entered != (Entered::Call { site }) {
            return None;
        }
        let end = self.end_of_call(&called)?;
        (self.site_before(end, part, code) == Some(site)).then_some(end)
    }

    /// Returns the instruction after the call that `called` is the first function of.
    fn end_of_call(&self, called: &Call) -> Option<u64> {
        let mut call = *called;
        for _ in 0..MAX_JUMPS {
            match call.left {
                Left::Return => return (call.end < self.thread.history.len()).then_some(call.end),
                Left::TailCall => {
                    let next = self.forest.call(self.forest.call_at(call.end)?);
                    let site = call.end.checked_sub(1)?;
                    if next.entered != (Entered::TailCall { site }) {
                        return None;
                    }
                    call = next;
                }
                _ => return None,
            }
        }
        None
    }

    /// Returns the instruction after the return of the call around instruction `at`. The register
    /// must have the caller's value at both.
    pub fn given_back(&self, at: u64, part: RegisterPart, code: &mut ExecutedCode<'_>) -> Option<u64> {
        if !part.is_preserved() {
            return None;
        }
        let call = self.forest.call(self.forest.call_at(at)?);
        if !self.rule_keeps(at, part) {
            return None;
        }
        let end = self.end_of_call(&call)?;
        self.site_before(end, part, code).map(|_| end)
    }

    /// Returns the value of a register before the call instruction `site`, from the core's stack.
    /// The call must be open at the crash.
    pub fn in_core(&self, site: u64, part: RegisterPart) -> Option<u64> {
        let first = site.checked_add(1).filter(|_| part.is_preserved())?;
        let called = self.forest.call(self.forest.call_at(first)?);
        let is_open = |call: &Call| call.left == Left::HistoryEnd;
        if called.first != first || called.entered != (Entered::Call { site }) || !is_open(&called) {
            return None;
        }
        // The frames of the calls that were open, from the innermost to this one.
        let mut number = 1usize;
        let mut id: CallId = self.forest.call_at(self.thread.history.len())?;
        loop {
            let call = self.forest.call(id);
            if call.first == first {
                break;
            }
            // Others have no frame of their own, or the stack has frames that are no calls.
            if !matches!(call.entered, Entered::Call { .. }) || !is_open(&call) {
                return None;
            }
            number = number.checked_add(1)?;
            id = call.parent?;
        }
        let frame = self.frames.get(number)?;
        let inner = self.frames.get(..number)?;
        let is_plain = inner
            .iter()
            .all(|frame| !frame.signal_frame && !frame.bad_pointer);
        if !is_plain || frame.signal_frame || Some(frame.pc) != self.after(site) {
            return None;
        }
        frame.register(u16::try_from(part.number()?).ok()?)
    }

    /// Returns whether instruction `after` is the one after the call instruction `site`.
    fn returns_to(&self, site: u64, after: u64) -> bool {
        self.thread.history.pc(after).is_some() && self.thread.history.pc(after) == self.after(site)
    }

    /// Returns the return address of a call instruction.
    fn after(&self, site: u64) -> Option<Avma> {
        let executed = self.thread.history.walk(site).next()?;
        Some(Avma(executed.pc.0.wrapping_add(u64::from(executed.len))))
    }

    /// Returns whether a register has its caller's value at the last instruction of a function.
    fn gives_back(&self, call: &Call, last: u64, part: RegisterPart, code: &mut ExecutedCode<'_>) -> bool {
        let (Some(row), Some(number)) = (self.row(last), part.number()) else {
            return self.is_untouched(call.first, last, part, code);
        };
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        match row.rule(number) {
            _ if row.signal_frame => false,
            None | Some(RegisterRule::SameValue) => true,
            Some(&RegisterRule::Offset(slot)) => {
                // The return address is on top of the stack: the frame is gone.
                row.cfa == BEFORE_RETURN && self.is_loaded(call.first, last, part, slot, code)
            }
            Some(_) => false,
        }
    }

    /// Returns whether the instructions before the last one of a function loaded a register from a
    /// slot, an offset from the canonical frame address.
    fn is_loaded(
        &self,
        first: u64,
        last: u64,
        part: RegisterPart,
        slot: i64,
        code: &mut ExecutedCode<'_>,
    ) -> bool {
        let mut walker = self.thread.history.walk(last);
        // The stack pointer, as an offset from the canonical frame address; `None`: not known.
        let mut stack_pointer = Some(-8i64);
        for _ in 0..MAX_EPILOGUE {
            let Some(executed) = walker.prev().filter(|_| walker.index() >= first) else {
                return false;
            };
            let index = walker.index();
            // Only the function's own instructions, one after the other.
            let follows = matches!(
                executed.cofi,
                Cofi::Sequential | Cofi::Conditional { .. } | Cofi::Jump { .. }
            );
            let Some(step) = code.at(index, executed.pc, executed.len).filter(|_| follows) else {
                return false;
            };
            let load = EpilogueStep::of(&step.instruction, stack_pointer);
            if step.writes(part) {
                return load.is_some_and(|load| load.register == part.register && load.slot == Some(slot));
            }
            let moves_stack = step.writes(RegisterPart::STACK_POINTER);
            stack_pointer = match load {
                Some(load) => load.stack_pointer,
                None if moves_stack => return false,
                None => stack_pointer,
            };
        }
        false
    }

    /// Returns whether the call frame information says that a register has its caller's value.
    fn rule_keeps(&self, index: u64, part: RegisterPart) -> bool {
        let (Some(row), Some(number)) = (self.row(index), part.number()) else {
            return false;
        };
        let rule = row.rule(u16::try_from(number).unwrap_or(u16::MAX));
        matches!(rule, None | Some(RegisterRule::SameValue)) && !row.signal_frame
    }

    fn row(&self, index: u64) -> Option<Arc<UnwindRow>> {
        let pc = self.thread.history.pc(index)?;
        let version = self.thread.history.version(index);
        self.process.symbols_at(version).unwind_row(pc)
    }

    /// Returns whether no instruction from `first` to `last` writes a register.
    fn is_untouched(&self, first: u64, last: u64, part: RegisterPart, code: &mut ExecutedCode<'_>) -> bool {
        if last.saturating_sub(first) >= MAX_STUB {
            return false;
        }
        let mut walker = self.thread.history.walk(first);
        (first..=last).all(|index| {
            let Some(executed) = walker.next() else {
                return false;
            };
            let step = code.at(index, executed.pc, executed.len);
            step.is_some_and(|step| !step.writes(part))
        })
    }
}
