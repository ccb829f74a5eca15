//! The access of a faulting instruction to the fault address.

use crate::session::Session;
use backtrail_bundle::core::Registers;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};

/// The signals that have a fault address: SIGBUS and SIGSEGV.
const WITH_ADDRESS: [i32; 2] = [7, 11];
/// `si_code` of a general protection fault (`SI_KERNEL`). The processor reports no address then.
const GENERAL_PROTECTION: i32 = 0x80;
/// The longest instruction, in bytes.
const LONGEST: usize = 15;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The instruction reads.
    Read,
    /// The instruction writes.
    Write,
    /// The instruction reads and writes the same memory.
    ReadWrite,
    /// The address is that of the instruction itself.
    Execute,
}

/// Returns the access to the fault address by the instruction that crashed.
///
/// `None`: the signal has no fault address, or the instruction and its registers in the core do not
/// determine the access.
#[must_use]
pub fn access(session: &Session) -> Option<Access> {
    let crash = session.crash()?;
    if !WITH_ADDRESS.contains(&crash.signal) || crash.code <= 0 || crash.code == GENERAL_PROTECTION {
        return None;
    }
    let address = crash.fault_address?;
    if crash.pc == address {
        return Some(Access::Execute);
    }
    let registers = session.end_registers(crash.tid)?;
    if registers.pc() != crash.pc {
        return None;
    }
    let thread = session.thread(crash.tid).ok().or_else(|| session.main_thread())?;
    let process = session.process(thread)?;
    let mut code = [0; LONGEST];
    let version = thread.history.version(thread.history.len());
    let known = process.read(version, crash.pc, &mut code);
    access_of(code.get(..known)?, process.mode.bits(), registers, address.0)
}

/// Returns the access of an instruction to an address.
fn access_of(code: &[u8], bits: u32, registers: &Registers, address: u64) -> Option<Access> {
    if bits != 64 {
        return None;
    }
    let instruction = Decoder::with_ip(bits, code, registers.rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let mut found = None;
    for used in factory.info(&instruction).used_memory() {
        let start = used.virtual_address(0, |register, _, _| register_value(registers, register))?;
        let size = (used.memory_size().size() as u64).max(1);
        if address.wrapping_sub(start) >= size {
            continue;
        }
        let access = match used.access() {
            OpAccess::Read | OpAccess::CondRead => Access::Read,
            OpAccess::Write | OpAccess::CondWrite => Access::Write,
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => Access::ReadWrite,
            _ => continue,
        };
        if found.is_some_and(|found| found != access) {
            return None;
        }
        found = Some(access);
    }
    found
}

/// Returns the value of a register, or the base of a segment. `None`: vector registers.
pub(crate) fn register_value(registers: &Registers, register: Register) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(match register.size() {
        4 => full & 0xffff_ffff,
        2 if register.is_gpr16() => full & 0xffff,
        _ => full,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers() -> Registers {
        let mut registers = Registers::from_array([0; 27]);
        registers.rip = 0x1000;
        registers.rax = 0x28;
        registers.rbx = 0x5000;
        registers.rsp = 0x7000;
        registers.fs_base = 0x9000;
        registers
    }

    fn of(code: &[u8], address: u64) -> Option<Access> {
        access_of(code, 64, &registers(), address)
    }

    #[test]
    fn operand_at_the_fault_address_decides() {
        assert_eq!(of(&[0x8b, 0x40, 0x08], 0x30), Some(Access::Read)); // mov eax, [rax+8]
        assert_eq!(of(&[0xc7, 0x00, 1, 0, 0, 0], 0x28), Some(Access::Write)); // mov dword [rax], 1
        assert_eq!(of(&[0xff, 0x00], 0x2b), Some(Access::ReadWrite)); // inc dword [rax]
        assert_eq!(of(&[0xff, 0x00], 0x2c), None);
        assert_eq!(of(&[0x64, 0x8b, 0x00], 0x9028), Some(Access::Read)); // mov eax, fs:[rax]
        assert_eq!(of(&[0x53], 0x6ff8), Some(Access::Write)); // push rbx
        assert_eq!(of(&[0x8d, 0x00], 0x28), None); // lea eax, [rax]
    }

    #[test]
    fn call_through_memory_reads_and_pushes() {
        // call [rax]: reads the target, and writes the return address.
        assert_eq!(of(&[0xff, 0x10], 0x28), Some(Access::Read));
        assert_eq!(of(&[0xff, 0x10], 0x6ff8), Some(Access::Write));
    }

    #[test]
    fn incomplete_instruction_has_no_access() {
        assert_eq!(of(&[0x8b], 0x28), None);
        assert_eq!(of(&[], 0x28), None);
    }
}
