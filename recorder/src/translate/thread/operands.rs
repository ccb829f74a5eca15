//! Addresses of memory operands.

use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind, Register};

/// Returns the instruction at `ip`. It is invalid if the code cannot be read.
pub(super) fn decode(pid: RawTid, ip: u64) -> Instruction {
    let mut code = [0; 15];
    let len = memory::read(pid, ip, &mut code);
    let bytes = code.get(..len).unwrap_or_default();
    Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

/// Returns the address of the memory operand of an instruction that is about to execute.
pub(super) fn address(instruction: &Instruction, registers: &Registers) -> Option<u64> {
    let operand = (0..instruction.op_count()).find(|index| instruction.op_kind(*index) == OpKind::Memory)?;
    instruction.virtual_address(operand, 0, |register, _, _| value_of(register, registers))
}

/// Returns the value of a 64-bit register that an address contains.
fn value_of(register: Register, registers: &Registers) -> Option<u64> {
    Some(match register {
        Register::RAX => registers.rax,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RBX => registers.rbx,
        Register::RSP => registers.rsp,
        Register::RBP => registers.rbp,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_a_store_is_computed_from_registers() {
        // mov [rcx+rax*2+9], dl
        let store = [0x88, 0x54, 0x41, 0x09];
        let instruction = Decoder::with_ip(64, &store, 0x1000, DecoderOptions::NONE).decode();
        let registers = Registers {
            rcx: 0x5000,
            rax: 0x10,
            ..Registers::default()
        };
        assert_eq!(address(&instruction, &registers), Some(0x5029));
        let none = Decoder::with_ip(64, &[0x90], 0x1000, DecoderOptions::NONE).decode();
        assert_eq!(address(&none, &registers), None);
    }
}
