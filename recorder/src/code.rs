//! Instructions as the single-stepper sees them, and how stepping would become visible to the
//! program.

use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;
use backtrail_process::{memory, status};
use backtrail_pt::Avma;
use backtrail_pt::cofi::{CodeInstruction, Cofi};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The length of the longest instruction, in bytes.
const MAX_LEN: usize = 15;

/// The flags that POPF changes in user code (SDM, "POPF"): all but reserved flags, IF, IOPL, RF and
/// VM.
const POPPED: u64 = 0x24_4dd5;
/// The flags among them that a 16-bit POPF changes.
const POPPED_WORD: u64 = POPPED & 0xffff;

/// An instruction that is about to execute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    bytes: [u8; MAX_LEN],
    pub(crate) instruction: CodeInstruction,
}

impl Code {
    /// Reads the instruction at `ip`, or returns `None` if there is none (executing it will fault).
    ///
    /// Instructions are not cached, because the program may rewrite its code.
    pub(crate) fn read(pid: RawTid, ip: Avma) -> Option<Self> {
        let mut bytes = [0; MAX_LEN];
        let len = read_code(pid, ip.0, &mut bytes);
        let instruction = CodeInstruction::decode(bytes.get(..len)?, ip)?;
        Some(Self { bytes, instruction })
    }

    /// Returns the bytes of the instruction, and those after it.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn opcode(&self) -> &[u8] {
        let prefix = |byte: &u8| {
            matches!(
                byte,
                0x66 | 0x67 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 | 0x40..=0x4f
            )
        };
        let start = self.bytes.iter().position(|byte| !prefix(byte)).unwrap_or(0);
        self.bytes.get(start..).unwrap_or_default()
    }

    /// Returns whether this is PUSHF, which would show the trap flag to the program.
    pub(crate) fn pushes_flags(&self) -> bool {
        self.opcode().first() == Some(&0x9c)
    }

    /// Returns whether this is POPF, which can set the trap flag.
    pub(crate) fn pops_flags(&self) -> bool {
        self.opcode().first() == Some(&0x9d)
    }

    /// Returns whether this is IRET, which can set the trap flag too.
    pub(crate) fn is_interrupt_return(&self) -> bool {
        self.opcode().first() == Some(&0xcf)
    }

    /// Returns whether this is SYSCALL, which saves RFLAGS with the trap flag in R11.
    pub(crate) fn is_syscall(&self) -> bool {
        self.opcode().starts_with(&[0x0f, 0x05])
    }

    /// Returns whether this is INT3, INT 3 or INT1, which raise SIGTRAP themselves.
    pub(crate) fn is_breakpoint(&self) -> bool {
        matches!(self.opcode(), [0xcc | 0xf1, ..] | [0xcd, 3, ..])
    }

    /// Returns whether this is MOV SS or POP SS, after which the processor delays the single-step
    /// trap by one instruction.
    pub(crate) fn delays_trap(&self) -> bool {
        matches!(self.opcode(), [0x8e, modrm, ..] if modrm >> 3 & 7 == 2)
    }

    /// Returns the registers after this instruction, a POPF, or `None` if its operand cannot be
    /// read.
    pub(crate) fn popped(&self, pid: RawTid, registers: &Registers) -> Option<Registers> {
        let (size, mask) = if self.has_word_operand() {
            (2, POPPED_WORD)
        } else {
            (8, POPPED)
        };
        let mut bytes = [0; 8];
        let operand = bytes.get_mut(..size)?;
        (memory::read(pid, registers.rsp, operand) == size).then_some(())?;
        Some(Registers {
            rflags: registers.rflags & !mask | u64::from_le_bytes(bytes) & mask,
            rsp: registers.rsp.wrapping_add(size as u64),
            rip: registers.rip.wrapping_add(u64::from(self.instruction.len)),
            orig_rax: u64::MAX,
            ..*registers
        })
    }

    /// Returns whether an operand-size prefix makes the operands 16 bits wide.
    fn has_word_operand(&self) -> bool {
        let opcode = self.bytes.len() - self.opcode().len();
        self.bytes.iter().take(opcode).any(|byte| *byte == 0x66)
    }

    /// Returns whether this is a far transfer, which leaves user code.
    pub(crate) fn is_far(&self) -> bool {
        self.instruction.cofi == Cofi::FarTransfer
    }
}

/// Reads code, including execute-only memory, up to the end of a mapping.
pub(crate) fn read_code(pid: RawTid, address: u64, out: &mut [u8]) -> usize {
    let read = memory::read(pid, address, out);
    if read > 0 {
        return read;
    }
    let to_page_end = (crate::PAGE - address % crate::PAGE).min(out.len() as u64) as usize;
    let Some(out) = out.get_mut(..to_page_end) else {
        return 0;
    };
    let read = memory::read(pid, address, out);
    if read > 0 {
        return read;
    }
    // Through /proc/PID/mem, a tracer may also read memory that has no read permission.
    File::open(format!("/proc/{}/mem", status::thread_with_memory(pid)))
        .and_then(|memory| memory.read_at(out, address))
        .unwrap_or(0)
}

/// Clears the trap flag in the RFLAGS value that was just pushed at `stack`.
pub(crate) fn hide_pushed_trap_flag(pid: RawTid, stack: u64) {
    // The trap flag is bit 8, the lowest bit of the second byte.
    let at = stack.wrapping_add(1);
    let mut byte = [0];
    if memory::read(pid, at, &mut byte) == 1 && byte[0] & 1 != 0 {
        let path = format!("/proc/{}/mem", status::thread_with_memory(pid));
        let memory = File::options().write(true).open(path);
        // If the write fails, the program may see the trap flag, which programs rarely check.
        let _ = memory.and_then(|memory| memory.write_at(&[byte[0] & !1], at));
    }
}

/// Clears the trap flag in the context that a handler gets, whose first instruction is next.
/// `stack` is its stack pointer.
pub(crate) fn hide_frame_trap_flag(pid: RawTid, stack: u64) {
    /// The offset of the flags from the stack pointer (`struct rt_sigframe`).
    const FLAGS: u64 = 184;
    hide_pushed_trap_flag(pid, stack.wrapping_add(FLAGS));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(bytes: &[u8]) -> Code {
        let mut room = [0x90; MAX_LEN];
        room[..bytes.len()].copy_from_slice(bytes);
        Code {
            bytes: room,
            instruction: CodeInstruction::decode(&room, Avma(0)).unwrap(),
        }
    }

    #[test]
    fn instructions_that_expose_stepping_are_recognized() {
        assert!(code(&[0x9c]).pushes_flags() && code(&[0x66, 0x9c]).pushes_flags());
        assert!(!code(&[0x9d]).pushes_flags() && code(&[0x9d]).pops_flags());
        assert!(code(&[0x48, 0xcf]).is_interrupt_return() && !code(&[0x9d]).is_interrupt_return());
        assert!(code(&[0x66, 0x9d]).has_word_operand() && !code(&[0x9d]).has_word_operand());
        assert!(code(&[0x0f, 0x05]).is_syscall() && code(&[0x0f, 0x05]).is_far());
        assert!(code(&[0xcc]).is_breakpoint() && code(&[0xcd, 3]).is_breakpoint());
        assert!(!code(&[0xcd, 0x80]).is_breakpoint());
        assert!(code(&[0x8e, 0xd0]).delays_trap() && !code(&[0x8e, 0xd8]).delays_trap());
    }

    #[test]
    fn own_code_is_readable() {
        let pid = std::process::id() as RawTid;
        let here = Avma(own_function as *const () as u64);
        assert!(Code::read(pid, here).is_some());
        assert!(Code::read(pid, Avma(0)).is_none());
    }

    fn own_function() {}
}
