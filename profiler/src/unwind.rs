//! Walks the stack of a program by compact tables, from its registers and the bytes of its stack.
//!
//! Nothing is read from the process. Code without a table is walked by frame pointers, if they lead
//! upward in the stack and to code. Otherwise the walk ends and says so.

use crate::unwind_table::{Cfa, SavedBp, UnwindRule};

/// The most frames of a stack.
pub const MAX_FRAMES: usize = 1024;

/// The registers that unwinding needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub bp: u64,
}

/// The innermost bytes of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackBytes<'a> {
    /// The address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StackBytes<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        word.try_into().ok().map(u64::from_le_bytes)
    }
}

/// The knowledge of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeAt {
    /// Code of a file with a table.
    Rule(UnwindRule),
    /// Code without a table, as of a JIT compiler.
    NoTable,
    /// No known code.
    Unmapped,
}

/// An address of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeAddress {
    /// The address.
    pub pc: u64,
    /// Whether the address is that of the instruction after a call.
    pub is_return: bool,
}

impl CodeAddress {
    /// Returns an address inside the instruction that ran or made the call.
    #[must_use]
    pub fn inside(self) -> u64 {
        self.pc.saturating_sub(self.is_return.into())
    }
}

/// The reason why a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// The start of the thread.
    Complete,
    /// The code has no table, and its frame pointer leads nowhere.
    NoTable,
    /// The table has no rule for the code.
    NoRule,
    /// The caller's frame is beyond the bytes of the stack.
    NoBytes,
    /// The frames do not lead upward, or to no code.
    Invalid,
    /// The stack has more than [`MAX_FRAMES`].
    TooDeep,
}

/// Appends the addresses of a stack, the innermost first, and returns why it ended.
pub fn unwind(
    start: Registers,
    stack: StackBytes<'_>,
    mut code_at: impl FnMut(u64) -> CodeAt,
    addresses: &mut Vec<CodeAddress>,
) -> StackEnd {
    let mut frame = Frame {
        registers: start,
        is_return: false,
    };
    for _ in 0..MAX_FRAMES {
        let address = CodeAddress {
            pc: frame.registers.pc,
            is_return: frame.is_return,
        };
        let code = code_at(address.inside());
        // The innermost address is where the thread is, whether it is known or not.
        if code == CodeAt::Unmapped && !addresses.is_empty() {
            return StackEnd::Invalid;
        }
        addresses.push(address);
        let caller = match code {
            CodeAt::Rule(UnwindRule::Outermost) => return StackEnd::Complete,
            CodeAt::Rule(UnwindRule::Unknown) => return StackEnd::NoRule,
            CodeAt::Rule(UnwindRule::Signal) => interrupted(frame.registers.sp, &stack),
            CodeAt::Rule(UnwindRule::Frame { cfa, bp }) => caller(frame.registers, cfa, bp, &stack),
            CodeAt::NoTable | CodeAt::Unmapped => {
                if frame.registers.bp == 0 && code == CodeAt::NoTable {
                    return StackEnd::Complete;
                }
                let cfa = Cfa::Bp(16);
                let caller = caller(frame.registers, cfa, SavedBp::AtCfa(-16), &stack);
                let mut is_code = |pc| pc == 0 || code_at(pc) != CodeAt::Unmapped;
                match caller.filter(|caller| is_code(caller.registers.pc.saturating_sub(1))) {
                    Some(caller) => Some(caller),
                    None => return StackEnd::NoTable,
                }
            }
        };
        let Some(caller) = caller else {
            return StackEnd::NoBytes;
        };
        if caller.registers.pc == 0 {
            return StackEnd::Complete;
        }
        // Only the return from a signal handler may lead to another stack.
        if caller.is_return && caller.registers.sp <= frame.registers.sp {
            return StackEnd::Invalid;
        }
        frame = caller;
    }
    StackEnd::TooDeep
}

/// The registers of a frame.
#[derive(Clone, Copy, Debug)]
struct Frame {
    registers: Registers,
    is_return: bool,
}

/// Returns the frame of the caller, or `None` if it is beyond the stack's bytes.
fn caller(registers: Registers, cfa: Cfa, bp: SavedBp, stack: &StackBytes<'_>) -> Option<Frame> {
    let Registers { pc, sp, bp: own_bp } = registers;
    let cfa = match cfa {
        Cfa::Sp(offset) => sp.checked_add_signed(offset)?,
        Cfa::Bp(offset) => own_bp.checked_add_signed(offset)?,
        Cfa::AtBp(offset) => stack.word(own_bp.checked_add_signed(offset)?)?,
        Cfa::Plt(byte) => {
            let pushed = (pc & 15).cast_signed() >= byte;
            sp.checked_add(if pushed { 16 } else { 8 })?
        }
    };
    Some(Frame {
        registers: Registers {
            pc: stack.word(cfa.checked_sub(8)?)?,
            sp: cfa,
            bp: match bp {
                SavedBp::Unchanged => own_bp,
                SavedBp::AtCfa(offset) => stack.word(cfa.checked_add_signed(offset)?)?,
                SavedBp::AtBp(offset) => stack.word(own_bp.checked_add_signed(offset)?)?,
            },
        },
        is_return: true,
    })
}

/// Returns the frame that a signal interrupted. The handler's return leaves the stack pointer at a
/// `struct ucontext` (`arch/x86/include/uapi/asm/sigcontext.h`).
fn interrupted(sp: u64, stack: &StackBytes<'_>) -> Option<Frame> {
    const MCONTEXT: u64 = 40;
    let register = |index: u64| stack.word(sp.checked_add(MCONTEXT + index * 8)?);
    Some(Frame {
        registers: Registers {
            bp: register(10)?,
            sp: register(15)?,
            pc: register(16)?,
        },
        is_return: false,
    })
}

#[cfg(test)]
mod tests;
