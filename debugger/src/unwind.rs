//! The stack of a thread at the crash, by call frame information, out of its registers and memory
//! in the core.
//!
//! Sources: DWARF 5, section 6.4.4; System V ABI AMD64, section 3.2.1 (which registers a callee
//! preserves) and section 3.6.2 (their numbers).

mod layout;
mod memory;
mod operation;
mod sigreturn;
#[cfg(test)]
mod tests;

use backtrail_bundle::core::Registers;
use backtrail_pt::Avma;
use backtrail_symbolizer::{CfaRule, Machine, RegisterRule, Symbolizer, UnwindRow};
pub(crate) use layout::Layout;
pub(crate) use memory::Memory;
pub(crate) use operation::Operation;

/// A stack with more frames is cut here.
const MAX_FRAMES: usize = 4096;

/// The number of general registers, and the DWARF numbers of the frame pointer, the stack pointer
/// and the return address.
const COUNT: usize = 16;
const RBP: u16 = 6;
const RSP: u16 = 7;
const PC: u16 = 16;

/// The general registers by DWARF number; `None`: not known in this frame.
type KnownRegisters = [Option<u64>; COUNT];

/// A frame that is on the program's stack: no inlined copy, and no caller that is gone by a tail
/// call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PhysicalFrame {
    /// The next instruction of the innermost frame and of one interrupted by a signal; of others,
    /// where the call made from it returns to.
    pub pc: Avma,
    /// The canonical frame address: the stack pointer of its caller, before the call.
    pub cfa: Option<Avma>,
    /// The general registers in it.
    registers: KnownRegisters,
    /// Whether the frame is the innermost one or was interrupted by a signal, and so was not left
    /// by a call.
    interrupted: bool,
    /// Whether it is the code to which a signal handler returns, and not a function.
    pub signal_frame: bool,
    /// `pc` is no code: that the word on top of the stack says who called it is a rule, not known.
    pub bad_pointer: bool,
}

/// The frames of a thread in a core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unwound {
    /// Innermost first, never empty.
    pub frames: Vec<PhysicalFrame>,
    /// The reason why there are no more frames.
    pub end: UnwindEnd,
}

/// The reason why the last frame has no known caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnwindEnd {
    /// The frame is the outermost one.
    Outermost,
    /// No call frame information covers this address.
    NoRules(Avma),
    /// The rules need memory that the core has not.
    Memory(Avma),
    /// The rules need a register whose value is lost, or are malformed.
    Lost,
    /// The caller's frame would not lie above.
    NotGrowing,
    /// The return address, or the program counter of the innermost frame, is not code.
    NoCode(Avma),
    /// There are [`MAX_FRAMES`].
    TooMany,
}

impl UnwindEnd {
    /// Returns the note about older frames for the user; `None` if none are missing.
    pub fn why(self) -> Option<String> {
        let reason = self.reason()?;
        Some(format!("older frames are unknown: {reason}"))
    }

    /// Returns the missing part; `None` if nothing is missing.
    pub fn reason(self) -> Option<String> {
        Some(match self {
            Self::Outermost => return None,
            Self::NoRules(at) => format!("there is no call frame information for {:#x}", at.0),
            Self::Memory(at) => format!("the core does not have the memory at {:#x}", at.0),
            Self::Lost => "how to find them depends on a value that is lost".to_owned(),
            Self::NotGrowing => "the next one would not lie above this one; the stack is damaged".to_owned(),
            Self::NoCode(at) => format!("{:#x} is no code", at.0),
            Self::TooMany => format!("the stack is cut after {MAX_FRAMES} frames"),
        })
    }
}

impl PhysicalFrame {
    /// Returns a general register by its DWARF number, or the program counter.
    pub fn register(&self, register: u16) -> Option<u64> {
        match register {
            PC => Some(self.pc.0),
            _ => known_in(self, register),
        }
    }

    /// Returns the address whose unwind rules, function and line apply to the frame.
    ///
    /// For a caller, this address is inside its call instruction, which may be the last instruction
    /// of a function.
    pub fn look_up(&self) -> Avma {
        if self.interrupted || self.signal_frame {
            self.pc
        } else {
            Avma(self.pc.0.wrapping_sub(1))
        }
    }
}

/// The part of the history that determines frames of a stack.
pub(crate) trait FrameHistory {
    /// The last instruction was a return, so that a bad pointer was not called.
    fn has_returned(&self) -> bool;

    /// Returns whether the names of functions may be read, which takes debug information.
    fn reads_functions(&self) -> bool {
        true
    }

    /// Returns the possible unwind rules of a frame at `pc`, by its number from the innermost one,
    /// and its return address.
    fn rules(&self, number: usize, pc: Avma) -> Option<(Vec<UnwindRow>, Avma)>;
}

/// No history.
pub(crate) struct NoHistory;

impl FrameHistory for NoHistory {
    fn has_returned(&self) -> bool {
        false
    }

    fn reads_functions(&self) -> bool {
        false
    }

    fn rules(&self, _number: usize, _pc: Avma) -> Option<(Vec<UnwindRow>, Avma)> {
        None
    }
}

/// Goes from frame to frame.
pub(crate) fn unwind(
    registers: &Registers,
    symbols: &Symbolizer,
    memory: &Memory<'_>,
    past: &dyn FrameHistory,
) -> Unwound {
    let unwinder = Unwinder {
        symbols,
        memory,
        past,
    };
    let frame = PhysicalFrame {
        pc: registers.pc(),
        cfa: None,
        registers: by_number(registers).map(Some),
        interrupted: true,
        signal_frame: false,
        bad_pointer: false,
    };
    unwind_from(frame, &unwinder)
}

/// Goes from frame to frame from a return address on. `sp` and `bp` are the registers there.
pub(crate) fn unwind_caller(
    caller: Avma,
    [sp, bp]: [u64; 2],
    symbols: &Symbolizer,
    memory: &Memory<'_>,
) -> Unwound {
    let mut registers: KnownRegisters = [None; COUNT];
    for (register, value) in [(RSP, sp), (RBP, bp)] {
        if let Some(known) = registers.get_mut(usize::from(register)) {
            *known = Some(value);
        }
    }
    let frame = PhysicalFrame {
        pc: caller,
        cfa: None,
        registers,
        interrupted: false,
        signal_frame: false,
        bad_pointer: false,
    };
    let unwinder = Unwinder {
        symbols,
        memory,
        past: &NoHistory,
    };
    unwind_from(frame, &unwinder)
}

fn unwind_from(mut frame: PhysicalFrame, unwinder: &Unwinder<'_>) -> Unwound {
    let Unwinder { memory, past, .. } = unwinder;
    let mut frames = Vec::new();
    let end = loop {
        let caller = if frames.is_empty() && past.has_returned() && !memory.is_code(frame.pc) {
            Err(UnwindEnd::NoCode(frame.pc))
        } else {
            unwinder.caller(&mut frame, frames.len())
        };
        frames.push(frame);
        match caller {
            Ok(_) if frames.len() == MAX_FRAMES => break UnwindEnd::TooMany,
            Ok(caller) => frame = caller,
            Err(end) => break end,
        }
    };
    Unwound { frames, end }
}

/// The general registers by their DWARF numbers (System V ABI AMD64, section 3.6.2).
pub(crate) fn by_number(registers: &Registers) -> [u64; 16] {
    [
        registers.rax,
        registers.rdx,
        registers.rcx,
        registers.rbx,
        registers.rsi,
        registers.rdi,
        registers.rbp,
        registers.rsp,
        registers.r8,
        registers.r9,
        registers.r10,
        registers.r11,
        registers.r12,
        registers.r13,
        registers.r14,
        registers.r15,
    ]
}

/// rbx, rbp, rsp and r12 to r15.
fn is_preserved(register: u16) -> bool {
    matches!(register, 3 | 6 | RSP | 12..=15)
}

struct Unwinder<'a> {
    symbols: &'a Symbolizer,
    memory: &'a Memory<'a>,
    past: &'a dyn FrameHistory,
}

impl Unwinder<'_> {
    /// The caller of a frame, of which it finds out what was not known of it.
    fn caller(&self, frame: &mut PhysicalFrame, number: usize) -> Result<PhysicalFrame, UnwindEnd> {
        if frame.interrupted && !self.memory.is_code(frame.pc) {
            return self.caller_by_bad_pointer(frame);
        }
        // The address alone does not show that a signal handler returns here. The preceding byte
        // does not belong to it, so the C library's unwind rules begin a byte early.
        let Some(row) = self.symbols.unwind_row(frame.look_up()) else {
            let no_rules = if self.is_program_entry(frame) {
                UnwindEnd::Outermost
            } else {
                UnwindEnd::NoRules(frame.pc)
            };
            if let Some(interrupted) = sigreturn::interrupted(frame, self.memory) {
                return interrupted;
            }
            return self.caller_by_past(frame, number).ok_or(no_rules);
        };
        self.caller_by(&row, frame)
    }

    /// The caller of a frame by its rules.
    fn caller_by(&self, row: &UnwindRow, frame: &mut PhysicalFrame) -> Result<PhysicalFrame, UnwindEnd> {
        frame.signal_frame = row.signal_frame;
        let cfa = self.cfa(row, frame)?;
        frame.cfa = Some(Avma(cfa));
        let pc = match row.rule(row.return_address) {
            Some(RegisterRule::Undefined) => return Err(UnwindEnd::Outermost),
            Some(rule) => self.value(rule, row.return_address, cfa, frame)?,
            None => return Err(UnwindEnd::Lost),
        };
        let mut registers: KnownRegisters = [None; COUNT];
        for (register, known) in (0..).zip(&mut registers) {
            *known = match row.rule(register) {
                Some(rule) => self.value(rule, register, cfa, frame).ok(),
                None if register == RSP => Some(cfa),
                None => known_in(frame, register).filter(|_| is_preserved(register)),
            };
        }
        let caller = PhysicalFrame {
            pc: Avma(pc),
            cfa: None,
            registers,
            interrupted: row.signal_frame,
            signal_frame: false,
            bad_pointer: false,
        };
        if caller.interrupted {
            return Ok(caller);
        }
        if pc == 0 {
            return Err(UnwindEnd::Outermost);
        }
        // Stacks grow down, and a call puts at least its return address there.
        if known_in(frame, RSP).is_none_or(|rsp| cfa <= rsp) {
            return Err(UnwindEnd::NotGrowing);
        }
        if !self.memory.is_code(caller.pc) {
            return Err(UnwindEnd::NoCode(caller.pc));
        }
        Ok(caller)
    }

    /// The caller of a frame by what ran in it; `None`: that is not known, or is not of the frame.
    fn caller_by_past(&self, frame: &mut PhysicalFrame, number: usize) -> Option<PhysicalFrame> {
        let (rows, returns_to) = self.past.rules(number, frame.pc)?;
        rows.iter().find_map(|row| {
            let mut found = frame.clone();
            let caller = self.caller_by(row, &mut found).ok()?;
            let fits = caller.pc == returns_to;
            if fits {
                *frame = found;
            }
            fits.then_some(caller)
        })
    }

    /// Returns whether the frame is of the program's entry function.
    fn is_program_entry(&self, frame: &PhysicalFrame) -> bool {
        if !self.past.reads_functions() {
            return false;
        }
        let function = self.symbols.function_at(frame.look_up());
        function.is_some_and(|function| Some(function.entry) == self.memory.program_entry())
    }

    /// A call through a bad pointer has put its return address on the stack, and nothing ran since.
    fn caller_by_bad_pointer(&self, frame: &mut PhysicalFrame) -> Result<PhysicalFrame, UnwindEnd> {
        let no_code = UnwindEnd::NoCode(frame.pc);
        let rsp = known_in(frame, RSP).ok_or(UnwindEnd::Lost)?;
        let pc = self.memory.word(Avma(rsp)).ok_or(no_code)?;
        if !self.memory.is_behind_call(Avma(pc)) {
            return Err(no_code);
        }
        let cfa = rsp.checked_add(8).ok_or(UnwindEnd::NotGrowing)?;
        frame.cfa = Some(Avma(cfa));
        frame.bad_pointer = true;
        let mut registers = frame.registers;
        if let Some(rsp) = registers.get_mut(usize::from(RSP)) {
            *rsp = Some(cfa);
        }
        Ok(PhysicalFrame {
            pc: Avma(pc),
            cfa: None,
            registers,
            interrupted: false,
            signal_frame: false,
            bad_pointer: false,
        })
    }

    fn cfa(&self, row: &UnwindRow, frame: &PhysicalFrame) -> Result<u64, UnwindEnd> {
        match &row.cfa {
            CfaRule::Register { register, offset } => {
                let base = known_in(frame, *register).ok_or(UnwindEnd::Lost)?;
                Ok(base.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => {
                let machine = CfiState {
                    frame,
                    memory: self.memory,
                };
                expression.evaluate(None, &machine).ok_or(UnwindEnd::Lost)
            }
        }
    }

    /// The value of a register in the caller.
    fn value(
        &self,
        rule: &RegisterRule,
        register: u16,
        cfa: u64,
        frame: &PhysicalFrame,
    ) -> Result<u64, UnwindEnd> {
        let machine = CfiState {
            frame,
            memory: self.memory,
        };
        let saved_at = |address: u64| {
            let word = self.memory.word(Avma(address));
            word.ok_or(UnwindEnd::Memory(Avma(address)))
        };
        match rule {
            RegisterRule::Undefined => Err(UnwindEnd::Lost),
            RegisterRule::SameValue => machine.register(register).ok_or(UnwindEnd::Lost),
            RegisterRule::Offset(offset) => saved_at(cfa.wrapping_add_signed(*offset)),
            RegisterRule::ValOffset(offset) => Ok(cfa.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => machine.register(*other).ok_or(UnwindEnd::Lost),
            RegisterRule::Expression(expression) => {
                saved_at(expression.evaluate(Some(cfa), &machine).ok_or(UnwindEnd::Lost)?)
            }
            RegisterRule::ValExpression(expression) => {
                expression.evaluate(Some(cfa), &machine).ok_or(UnwindEnd::Lost)
            }
        }
    }
}

fn known_in(frame: &PhysicalFrame, register: u16) -> Option<u64> {
    frame.registers.get(usize::from(register)).copied().flatten()
}

/// The state of a frame that unwind expressions read.
struct CfiState<'a> {
    frame: &'a PhysicalFrame,
    memory: &'a Memory<'a>,
}

impl Machine for CfiState<'_> {
    fn register(&self, register: u16) -> Option<u64> {
        if register == PC {
            return Some(self.frame.pc.0);
        }
        known_in(self.frame, register)
    }

    fn memory(&self, address: u64, out: &mut [u8]) -> Option<()> {
        self.memory.read(Avma(address), out)
    }
}
