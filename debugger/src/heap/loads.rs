//! The memory that a thread accessed last before its end, where the registers at the end determine
//! the addresses.

use crate::fault::register_value;
use crate::session::{Session, Thread};
use backtrail_bundle::core::Registers;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

/// The number of instructions that are searched.
const SEARCHED: u64 = 400;
/// The maximum number of accesses.
const MAX_ACCESSES: usize = 64;

/// An access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryAccess {
    /// The instruction.
    pub index: u64,
    /// The first accessed address.
    pub address: u64,
}

/// Returns the last accesses of a thread before its end, the newest first. They used registers that
/// have not changed since.
pub(super) fn last_accesses(session: &Session, thread: &Thread) -> Vec<MemoryAccess> {
    let history = &thread.history;
    let (Some(registers), Some(process)) = (session.end_registers(thread.tid), session.process(thread))
    else {
        return Vec::new();
    };
    if history.pc(history.len()) != Some(registers.pc()) {
        return Vec::new();
    }
    let mut factory = InstructionInfoFactory::new();
    let mut unchanged = Unchanged::default();
    let mut found = Vec::new();
    let first = history.len().saturating_sub(SEARCHED);
    let mut walker = history.walk(history.len());
    while walker.index() > first && found.len() < MAX_ACCESSES {
        // A signal handler or missing history changes registers.
        let after = walker.index();
        if !history.marks_in(after..after.saturating_add(1)).is_empty() && after < history.len() {
            break;
        }
        let Some(executed) = walker.prev() else { break };
        let index = walker.index();
        let version = history.version(index);
        let Some(instruction) = process.decoded_at(version, executed.pc, executed.len) else {
            break;
        };
        unchanged.pass(&mut factory, &instruction);
        let address = unchanged.address(&mut factory, &instruction, registers);
        found.extend(address.map(|address| MemoryAccess { index, address }));
    }
    found
}

/// The registers that no instruction has changed since.
struct Unchanged(Vec<Register>);

impl Default for Unchanged {
    fn default() -> Self {
        Self(vec![
            Register::RAX,
            Register::RBX,
            Register::RCX,
            Register::RDX,
            Register::RSI,
            Register::RDI,
            Register::RBP,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
            Register::R12,
            Register::R13,
            Register::R14,
            Register::R15,
        ])
    }
}

impl Unchanged {
    /// Removes the registers that an instruction may write.
    fn pass(&mut self, factory: &mut InstructionInfoFactory, instruction: &Instruction) {
        for used in factory.info(instruction).used_registers() {
            if !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            ) {
                let written = used.register().full_register();
                self.0.retain(|register| *register != written);
            }
        }
        if instruction.mnemonic() == Mnemonic::Syscall {
            let changed = [Register::RAX, Register::RCX, Register::R11];
            self.0.retain(|register| !changed.contains(register));
        }
    }

    /// Returns the address of the memory operand of an instruction, if it accesses memory and its
    /// registers are unchanged.
    fn address(
        &self,
        factory: &mut InstructionInfoFactory,
        instruction: &Instruction,
        registers: &Registers,
    ) -> Option<u64> {
        let mut used = factory.info(instruction).used_memory().iter();
        let memory = used.find(|memory| {
            let is_accessed = !matches!(memory.access(), OpAccess::NoMemAccess | OpAccess::None);
            is_accessed && memory.segment() != Register::FS && memory.segment() != Register::GS
        })?;
        let value = |register: Register| {
            let is_known = register.is_gpr64() && self.0.contains(&register);
            is_known.then(|| register_value(registers, register)).flatten()
        };
        // An address without a register is no heap block.
        if memory.base() == Register::None {
            return None;
        }
        memory.virtual_address(0, |register, _, _| match register {
            Register::DS | Register::ES | Register::SS | Register::CS => Some(0),
            register => value(register),
        })
    }
}

/// Returns the general registers that can point to a block, with their values.
pub(super) fn pointers(registers: &Registers) -> impl Iterator<Item = (String, u64)> {
    Unchanged::default().0.into_iter().filter_map(|register| {
        let value = register_value(registers, register)?;
        Some((format!("{register:?}").to_lowercase(), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).decode()
    }

    #[test]
    fn changed_registers_give_no_address() {
        let mut registers = Registers::from_array([0; 27]);
        (registers.rbx, registers.rax) = (0x5000, 0x77);
        let mut factory = InstructionInfoFactory::new();
        let mut unchanged = Unchanged::default();
        // mov rax, [rax+8]: changes its own base.
        let load = decoded(&[0x48, 0x8b, 0x40, 0x08]);
        unchanged.pass(&mut factory, &load);
        assert_eq!(unchanged.address(&mut factory, &load, &registers), None);
        // mov rax, [rbx+16]
        let before = decoded(&[0x48, 0x8b, 0x43, 0x10]);
        unchanged.pass(&mut factory, &before);
        assert_eq!(unchanged.address(&mut factory, &before, &registers), Some(0x5010));
        // lea rcx, [rbx+16]
        let lea = decoded(&[0x48, 0x8d, 0x4b, 0x10]);
        assert_eq!(unchanged.address(&mut factory, &lea, &registers), None);
        // mov ebx, 1
        unchanged.pass(&mut factory, &decoded(&[0xbb, 1, 0, 0, 0]));
        assert_eq!(unchanged.address(&mut factory, &before, &registers), None);
    }
}
