//! Recovers the value of a register before an instruction from the instructions around it.

use super::calls::PreservingCalls;
use super::code::ExecutedCode;
use super::constants::Constants;
use super::operation::{self, InstructionInputs};
use super::part::RegisterPart;
use crate::heap::calls::last_call;
use crate::session::{Process, Thread};
use backtrail_bundle::heap::{AllocatorFunction, HeapWord};
use backtrail_decoder::{Mark, MarkKind, Position, Resumed};
use backtrail_pt::{Avma, Cofi};
use iced_x86::{Mnemonic, OpKind, Register};
use std::fmt;

/// The limit of instructions that are searched, backward and forward. Instructions of calls that
/// preserve the register do not count.
pub(super) const BACK: u64 = 4096;
const AHEAD: u64 = 1024;
/// The limit of registers through which a value is followed.
pub(super) const MAX_DEPTH: u32 = 16;
/// The limit of instructions for one register, including those of the registers it was computed
/// from.
const MOST: u32 = 1 << 16;

/// The evidence for a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    kind: EvidenceKind,
    /// Whether calls between the evidence and the position preserved the value.
    across_calls: bool,
}

impl From<EvidenceKind> for Evidence {
    fn from(kind: EvidenceKind) -> Self {
        Self {
            kind,
            across_calls: false,
        }
    }
}

impl Evidence {
    /// Returns the same evidence, from the other side of a call.
    fn across_calls(self, across_calls: bool) -> Self {
        Self {
            across_calls: self.across_calls || across_calls,
            ..self
        }
    }
}

/// The kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvidenceKind {
    /// An instruction computed the value from known inputs.
    ExecutedCode(Position),
    /// An indirect branch went there.
    Branch(Position),
    /// The comparison before this conditional branch, which went as it does for this value.
    Comparison(Position),
    /// The program wrote the value by `PTWRITE`.
    Ptwrite(Position),
    /// The recorder logged the argument of the allocator function.
    HeapEvent(Position),
    /// The core has the value, and nothing changed it until the crash.
    Crash,
    /// The core's stack has the value for a frame that had not ended.
    Frame,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            EvidenceKind::ExecutedCode(at) => write!(f, "set by the instruction at {at}"),
            EvidenceKind::Branch(at) => write!(f, "the target of the branch at {at}"),
            EvidenceKind::Comparison(at) => write!(f, "implied by the branch at {at}"),
            EvidenceKind::Ptwrite(at) => write!(f, "written by PTWRITE at {at}"),
            EvidenceKind::HeapEvent(at) => write!(f, "recorded with the heap event at {at}"),
            EvidenceKind::Crash => write!(f, "unchanged until the crash"),
            EvidenceKind::Frame => write!(f, "unchanged in its frame until the crash"),
        }?;
        match self.across_calls {
            true => f.write_str(", and preserved by the calls between"),
            false => Ok(()),
        }
    }
}

/// Knows registers of a thread before its instructions.
pub(super) struct Registers<'a> {
    thread: &'a Thread,
    code: ExecutedCode<'a>,
    calls: PreservingCalls<'a>,
    constants: Constants<'a>,
    /// At the end of the history, by their DWARF numbers.
    at_end: Option<[u64; 16]>,
    /// The trace has heap events.
    has_heap_events: bool,
    left: u32,
    /// No instruction before this one is searched.
    floor: u64,
}

impl<'a> Registers<'a> {
    /// `constants`: read-only memory; `at_end`: the registers at the end of the history by their
    /// DWARF numbers, if a core has them.
    pub fn new(
        process: &'a Process,
        thread: &'a Thread,
        calls: PreservingCalls<'a>,
        constants: Constants<'a>,
        at_end: Option<[u64; 16]>,
        has_heap_events: bool,
    ) -> Self {
        Self {
            thread,
            code: ExecutedCode::new(process, thread),
            calls,
            constants,
            at_end,
            has_heap_events,
            left: MOST,
            floor: 0,
        }
    }

    /// Read-only memory.
    pub fn constants(&self) -> &Constants<'a> {
        &self.constants
    }

    /// Returns the value of a part of a register before instruction `index`.
    pub fn known(&mut self, part: RegisterPart, index: u64) -> Option<(u64, Evidence)> {
        self.left = MOST;
        self.floor = index.saturating_sub(BACK * u64::from(MAX_DEPTH));
        self.before(part, index, 0)
            .or_else(|| self.ahead(part, index, 0))
            .or_else(|| self.argument(part, index))
    }

    /// Returns the argument of an allocator function at its first instruction.
    fn argument(&self, part: RegisterPart, index: u64) -> Option<(u64, Evidence)> {
        if !self.has_heap_events {
            return None;
        }
        let call = last_call(&self.thread.history, index).filter(|call| call.index == index)?;
        let value = match part.register {
            Register::RDI if call.function.takes_block() => call.argument,
            Register::RSI if call.function == AllocatorFunction::Realloc => call.size?,
            Register::RDI => match call.function {
                AllocatorFunction::Malloc | AllocatorFunction::New | AllocatorFunction::NewArray => {
                    call.argument
                }
                _ => return None,
            },
            _ => return None,
        };
        // Larger arguments are recorded as the largest one.
        let is_exact = value < HeapWord::MAX_ARGUMENT;
        let event = EvidenceKind::HeapEvent(self.thread.position(index));
        is_exact.then(|| (part.of(value), event.into()))
    }

    /// Counts one more instruction; `None` if the limit is reached.
    fn spend(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        Some(())
    }

    /// Searches the preceding instructions.
    fn before(&mut self, part: RegisterPart, index: u64, depth: u32) -> Option<(u64, Evidence)> {
        let history = &self.thread.history;
        let first = self.floor;
        let marks = history.marks_in(first..index.saturating_add(1));
        let mut marks = marks.iter().rev().peekable();
        let mut walker = history.walk(index);
        let (mut walked, mut across_calls) = (0, false);
        // The instruction after this one is a branch that found two values equal.
        let mut equal = None;
        let mut next = history.pc(index);
        while walker.index() > first && walked < BACK && depth < MAX_DEPTH {
            self.spend()?;
            walked += 1;
            let after = walker.index();
            let executed = walker.prev()?;
            let at = walker.index();
            if executed.cofi == Cofi::Return
                && let Some(site) = self.calls.site_before(after, part, &mut self.code)
            {
                if site < first {
                    return None;
                }
                // Marks inside of the call do not matter, as it returned.
                while let Some(mark) = marks.next_if(|mark| mark.index > site) {
                    if mark.index == after && !self.keeps(mark, executed.cofi, part.register) {
                        return None;
                    }
                }
                walker = history.walk(site);
                across_calls = true;
                equal = None;
                next = history.pc(site);
                continue;
            }
            let step = self.code.at(at, executed.pc, executed.len)?;
            while let Some(mark) = marks.next_if(|mark| mark.index == after) {
                if !self.keeps(mark, executed.cofi, part.register) {
                    return None;
                }
                if let MarkKind::Ptwrite(value) = mark.kind
                    && let Some(value) = value_from_ptwrite(&step.instruction, part, value)
                {
                    let evidence = Evidence::from(EvidenceKind::Ptwrite(self.thread.position(at)));
                    return Some((value, evidence.across_calls(across_calls)));
                }
            }
            if let Some(branch) = equal
                && let Some(value) = operation::if_zero(&step.instruction, part).after
            {
                let evidence = Evidence::from(EvidenceKind::Comparison(self.thread.position(branch)));
                return Some((value, evidence.across_calls(across_calls)));
            }
            if step.writes(part) {
                let mut inputs = KnownInputs {
                    registers: self,
                    index: at,
                    depth: depth + 1,
                };
                let value = operation::result(&step.instruction, part, &mut inputs)?;
                let evidence = Evidence::from(EvidenceKind::ExecutedCode(self.thread.position(at)));
                return Some((value, evidence.across_calls(across_calls)));
            }
            equal = next
                .filter(|next| operation::was_zero(&step.instruction, next.0))
                .map(|_| at);
            next = Some(executed.pc);
        }
        None
    }

    /// Searches the following instructions for evidence of the unchanged register or a copy of it.
    /// If the register has the caller's value, the caller's instructions follow.
    fn ahead(&mut self, part: RegisterPart, index: u64, depth: u32) -> Option<(u64, Evidence)> {
        if let Some(found) = self.ahead_in_call(part, index, depth) {
            return Some(found);
        }
        let goes_on = self.calls.given_back(index, part, &mut self.code);
        let goes_on = goes_on.filter(|_| depth < MAX_DEPTH)?;
        let (value, evidence) = self.ahead(part, goes_on, depth + 1)?;
        Some((value, evidence.across_calls(true)))
    }

    fn ahead_in_call(&mut self, part: RegisterPart, index: u64, depth: u32) -> Option<(u64, Evidence)> {
        let history = &self.thread.history;
        let end = history.len();
        let mut marks = history.marks_in(index.saturating_add(1)..end);
        let mut walker = history.walk(index);
        let (mut walked, mut across_calls) = (0, false);
        let mut before = None;
        // The value that the preceding instruction compared the register with, and whether that
        // instruction changed it.
        let (mut compared, mut changed) = (None, false);
        while walker.index() < end && walked < AHEAD && depth < MAX_DEPTH {
            self.spend()?;
            walked += 1;
            let at = walker.index();
            while let Some((mark, rest)) = marks.split_first().filter(|(mark, _)| mark.index == at) {
                if !self.keeps(mark, before?, part.register) {
                    return None;
                }
                marks = rest;
            }
            let executed = walker.next()?;
            let step = self.code.at(at, executed.pc, executed.len)?;
            if let Some(value) = compared
                && let Some(next) = self.branch_target(at)
                && operation::was_zero(&step.instruction, next.0)
            {
                let evidence = Evidence::from(EvidenceKind::Comparison(self.thread.position(at)));
                return Some((value, evidence.across_calls(across_calls)));
            }
            if changed {
                return None;
            }
            if let Some((value, evidence)) = self.shown(&step.instruction, part, at) {
                return Some((value, evidence.across_calls(across_calls)));
            }
            if let Some(copy) = copied(&step.instruction, part)
                && let Some((value, evidence)) = self.ahead(copy, at + 1, depth + 1)
            {
                return Some((value, evidence.across_calls(across_calls)));
            }
            compared = operation::if_zero(&step.instruction, part).before;
            changed = step.writes(part);
            if changed && compared.is_none() {
                return None;
            }
            before = Some(executed.cofi);
            if !changed && matches!(executed.cofi, Cofi::Call { .. } | Cofi::IndirectCall) {
                if let Some(value) = self.calls.in_core(at, part) {
                    let evidence = Evidence::from(EvidenceKind::Frame);
                    return Some((part.of(value), evidence.across_calls(across_calls)));
                }
                if let Some(after) = self.calls.end_of(at, part, &mut self.code) {
                    // Marks inside of the call do not matter, as it returned.
                    let inside = marks.partition_point(|mark| mark.index < after);
                    marks = marks.get(inside..).unwrap_or_default();
                    walker = history.walk(after);
                    (across_calls, compared, before) = (true, None, Some(Cofi::Return));
                }
            }
        }
        if changed || walker.index() < end || depth >= MAX_DEPTH {
            return None;
        }
        let last = before.or_else(|| Some(history.walk(end).prev()?.cofi));
        let kept = last != Some(Cofi::FarTransfer) || !is_changed_by_the_kernel(part.register);
        let marks = history.marks_in(end..end.saturating_add(1));
        let kept = kept && !marks.iter().any(|mark| matches!(mark.kind, MarkKind::Gap(_)));
        let value = self.at_end.filter(|_| kept)?.get(part.number()?).copied()?;
        let evidence = Evidence::from(EvidenceKind::Crash);
        Some((part.of(value), evidence.across_calls(across_calls)))
    }

    /// Returns the value of a part of a register that an instruction reveals by using it.
    fn shown(
        &self,
        instruction: &iced_x86::Instruction,
        part: RegisterPart,
        at: u64,
    ) -> Option<(u64, Evidence)> {
        let uses = instruction.op0_kind() == OpKind::Register
            && RegisterPart::operand(instruction, 0).is_some_and(|used| used.register == part.register);
        if !uses {
            return None;
        }
        let position = self.thread.position(at);
        if instruction.is_call_near_indirect() || instruction.is_jmp_near_indirect() {
            let target = self.branch_target(at)?;
            return Some((part.of(target.0), EvidenceKind::Branch(position).into()));
        }
        let marks = self.thread.history.marks_in(at + 1..at + 2);
        let written = marks.iter().find_map(|mark| match mark.kind {
            MarkKind::Ptwrite(value) => value_from_ptwrite(instruction, part, value),
            _ => None,
        });
        Some((written?, EvidenceKind::Ptwrite(position).into()))
    }

    /// Returns the target of an instruction; `None` if the next instruction may follow from another
    /// cause.
    fn branch_target(&self, at: u64) -> Option<Avma> {
        let history = &self.thread.history;
        let undisturbed = history.marks_in(at + 1..at + 2).is_empty();
        history.pc(at + 1).filter(|_| undisturbed)
    }

    /// Returns whether a register has the same value before and after a mark.
    fn keeps(&self, mark: &Mark, before: Cofi, register: Register) -> bool {
        match &mark.kind {
            MarkKind::Descheduled { .. } | MarkKind::Ptwrite(_) => true,
            // An interrupt, and no signal.
            MarkKind::Interrupted { from, .. } => self.thread.history.pc(mark.index) == Some(*from),
            MarkKind::LeftUser { resumed, .. } => {
                *resumed == Resumed::After
                    && before == Cofi::FarTransfer
                    && !is_changed_by_the_kernel(register)
            }
            // Nothing is known about the registers after a gap, or a mark of another kind.
            _ => false,
        }
    }
}

/// The known inputs of an instruction.
struct KnownInputs<'r, 'a> {
    registers: &'r mut Registers<'a>,
    index: u64,
    depth: u32,
}

impl InstructionInputs for KnownInputs<'_, '_> {
    fn part(&mut self, part: RegisterPart) -> Option<u64> {
        let known = self.registers.before(part, self.index, self.depth);
        known.map(|(value, _)| value)
    }

    fn memory(&mut self, at: u64, size: usize) -> Option<u64> {
        let mut bytes = [0; 8];
        self.registers.constants.read(Avma(at), bytes.get_mut(..size)?)?;
        Some(u64::from_le_bytes(bytes))
    }
}

/// A system call gives back all registers but these (System V ABI AMD64, section A.2.1).
fn is_changed_by_the_kernel(register: Register) -> bool {
    matches!(register, Register::RAX | Register::RCX | Register::R11)
}

/// Returns the value of a part of a register that `PTWRITE` wrote.
fn value_from_ptwrite(instruction: &iced_x86::Instruction, part: RegisterPart, value: u64) -> Option<u64> {
    let of_it = instruction.mnemonic() == Mnemonic::Ptwrite
        && RegisterPart::operand(instruction, 0)
            .is_some_and(|used| used.register == part.register && used.bits >= part.bits);
    of_it.then(|| part.of(value))
}

/// Returns the part of a register to which an instruction copies another.
fn copied(instruction: &iced_x86::Instruction, part: RegisterPart) -> Option<RegisterPart> {
    let moves = matches!(
        instruction.mnemonic(),
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd
    );
    let registers = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
    if !moves || !registers {
        return None;
    }
    let from = RegisterPart::operand(instruction, 1)?;
    let to = RegisterPart::operand(instruction, 0)?;
    let all = from.register == part.register && from.bits >= part.bits && to.bits >= part.bits;
    all.then_some(RegisterPart {
        register: to.register,
        bits: part.bits,
    })
}
