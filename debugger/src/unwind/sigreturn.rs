//! The code that a signal handler returns to, where no call frame information covers it (musl, for
//! example).
//!
//! Sources: Linux, `arch/x86/include/asm/sigframe.h` (`struct rt_sigframe`) and
//! `arch/x86/include/uapi/asm/sigcontext.h` (`struct sigcontext_64`).

use super::{COUNT, KnownRegisters, Memory, PhysicalFrame, RSP, UnwindEnd, known_in};
use backtrail_pt::Avma;

/// `mov $15, %rax; syscall`, which is `rt_sigreturn`. The kernel and GDB know signal frames by
/// these bytes, too.
const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];

/// The offset of `uc_mcontext` from the `ucontext` at the stack pointer, in bytes.
const CONTEXT: u64 = 40;
/// The DWARF numbers of the words in it, in order: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx,
/// rsp.
const WORDS: [usize; COUNT] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7];

/// Returns the registers that the signal interrupted; `None` if the frame is not signal return
/// code.
pub(super) fn interrupted(
    frame: &mut PhysicalFrame,
    memory: &Memory<'_>,
) -> Option<Result<PhysicalFrame, UnwindEnd>> {
    let mut code = [0; CODE.len()];
    memory.read(frame.pc, &mut code)?;
    if code != CODE {
        return None;
    }
    frame.signal_frame = true;
    let context = known_in(frame, RSP)?.checked_add(CONTEXT)?;
    let word = |number: u64| {
        let at = Avma(context.wrapping_add(8 * number));
        memory.word(at).ok_or(UnwindEnd::Memory(at))
    };
    let mut registers: KnownRegisters = [None; COUNT];
    for (number, register) in (0..).zip(WORDS) {
        if let Some(known) = registers.get_mut(register) {
            *known = word(number).ok();
        }
    }
    Some(word(WORDS.len() as u64).map(|pc| PhysicalFrame {
        pc: Avma(pc),
        cfa: None,
        registers,
        interrupted: true,
        signal_frame: false,
        bad_pointer: false,
    }))
}
