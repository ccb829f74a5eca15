//! The layout of a frame, found from the instructions that its function executed since it was entered: where code has no
//! call frame information, as what a compiler made at run time.
//!
//! Assumed of callees is what call frame information assumes, too: they preserve what they have to, and nobody writes over
//! what a function saved. Sources: Intel SDM, volume 2; System V ABI AMD64, section 3.2.1.

use super::{COUNT, PC, RSP, is_preserved};
use backtrail_symbolizer::{CfaRule, RegisterRule, UnwindRow};
use iced_x86::{Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

const RBP: u16 = 6;

/// What a register holds, in terms of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// What a register, by its DWARF number, held when the function was entered.
    Entry(u16),
    /// The canonical frame address and so many bytes.
    Frame(i64),
    Unknown,
}

/// What is known of a frame while its function runs.
pub(crate) struct Layout {
    /// By DWARF number.
    registers: [Holds; COUNT],
    /// The entry values that were saved, by how many bytes from the canonical frame address.
    saved: BTreeMap<i64, u16>,
    info: InstructionInfoFactory,
}

impl Layout {
    /// Before the first instruction of a function.
    pub fn at_entry() -> Self {
        let mut registers = [Holds::Unknown; COUNT];
        for (number, holds) in (0..).zip(&mut registers) {
            *holds = match number {
                // The return address was put below the frame.
                RSP => Holds::Frame(-8),
                number => Holds::Entry(number),
            };
        }
        Self {
            registers,
            saved: BTreeMap::new(),
            info: InstructionInfoFactory::new(),
        }
    }

    /// An instruction of the function itself ran; `None`: it is one that no function's body has.
    pub fn step(&mut self, instruction: &Instruction) -> Option<()> {
        match instruction.mnemonic() {
            Mnemonic::Ret | Mnemonic::Retf | Mnemonic::Iretq | Mnemonic::Enter => return None,
            Mnemonic::Push if word(instruction) => {
                let value = self.operand(instruction, 0);
                self.push(value);
            }
            Mnemonic::Pop if instruction.op0_kind() == OpKind::Register && word(instruction) => {
                let value = self.pop();
                self.set(instruction.op0_register(), value);
            }
            Mnemonic::Leave => {
                self.put(RSP, self.get(RBP));
                let value = self.pop();
                self.put(RBP, value);
            }
            Mnemonic::Mov if is_whole(instruction, 1) && instruction.op0_kind() == OpKind::Memory => {
                let value = self.operand(instruction, 1);
                self.store(self.address(instruction), 8, value);
            }
            Mnemonic::Mov if is_whole(instruction, 0) => {
                let value = self.operand(instruction, 1);
                self.set(instruction.op0_register(), value);
            }
            Mnemonic::Lea if is_whole(instruction, 0) => {
                let value = self.address(instruction).map_or(Holds::Unknown, Holds::Frame);
                self.set(instruction.op0_register(), value);
            }
            mnemonic @ (Mnemonic::Add | Mnemonic::Sub) if is_whole(instruction, 0) => {
                let by = instruction.try_immediate(1).ok().map(|by| by as i64);
                let by = if mnemonic == Mnemonic::Sub {
                    by.map(i64::wrapping_neg)
                } else {
                    by
                };
                let value = match (self.operand(instruction, 0), by) {
                    (Holds::Frame(at), Some(by)) => Holds::Frame(at.wrapping_add(by)),
                    _ => Holds::Unknown,
                };
                self.set(instruction.op0_register(), value);
            }
            _ => self.other(instruction),
        }
        Some(())
    }

    /// A callee ran, and returned.
    pub fn called(&mut self) {
        for (number, holds) in (0..).zip(&mut self.registers) {
            if !is_preserved(number) {
                *holds = Holds::Unknown;
            }
        }
    }

    /// How the caller's registers are found from those that the frame has now; `None`: its address is not known.
    pub fn row(&self) -> Option<UnwindRow> {
        let at = |register: u16| match self.get(register) {
            Holds::Frame(at) => Some((register, at)),
            _ => None,
        };
        let (register, from) = at(RSP).or_else(|| {
            (0..COUNT as u16)
                .filter(|&number| is_preserved(number))
                .find_map(at)
        })?;
        let preserved = (0..COUNT as u16).filter(|&register| is_preserved(register) && register != RSP);
        let mut registers: Vec<(u16, RegisterRule)> = preserved
            .map(|register| (register, self.rule(register)))
            .collect();
        registers.push((PC, RegisterRule::Offset(-8)));
        Some(UnwindRow {
            cfa: CfaRule::Register {
                register,
                offset: from.wrapping_neg(),
            },
            registers,
            return_address: PC,
            signal_frame: false,
        })
    }

    /// Where what a register held at the function's entry is now.
    fn rule(&self, register: u16) -> RegisterRule {
        if self.get(register) == Holds::Entry(register) {
            return RegisterRule::SameValue;
        }
        let slot = self.saved.iter().find(|(_, saved)| **saved == register);
        let copy = || {
            (0..COUNT as u16).find(|&other| is_preserved(other) && self.get(other) == Holds::Entry(register))
        };
        match slot {
            Some((&at, _)) => RegisterRule::Offset(at),
            None => copy().map_or(RegisterRule::Undefined, RegisterRule::Register),
        }
    }

    /// Any instruction, by which operands it changes.
    fn other(&mut self, instruction: &Instruction) {
        let moved = match self.get(RSP) {
            Holds::Frame(at) if instruction.is_stack_instruction() => {
                Holds::Frame(at.wrapping_add(instruction.stack_pointer_increment().into()))
            }
            _ => Holds::Unknown,
        };
        let info = self.info.info(instruction);
        let changes = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
        };
        let written = info.used_registers().iter().filter(|used| changes(used.access()));
        let written: Vec<Register> = written.map(|used| used.register().full_register()).collect();
        let stored = info.used_memory().iter().filter(|used| changes(used.access()));
        let stored: Vec<(Register, Register, u64, MemorySize)> = stored
            .map(|used| (used.base(), used.index(), used.displacement(), used.memory_size()))
            .collect();
        for (base, index, displacement, size) in stored {
            let at = self.place(base, index, displacement);
            self.store(at, size.size() as i64, Holds::Unknown);
        }
        for register in written {
            let value = if number(register) == Some(RSP) {
                moved
            } else {
                Holds::Unknown
            };
            self.set(register, value);
        }
    }

    fn push(&mut self, value: Holds) {
        let below = match self.get(RSP) {
            Holds::Frame(at) => Some(at.wrapping_sub(8)),
            _ => None,
        };
        self.put(RSP, below.map_or(Holds::Unknown, Holds::Frame));
        self.store(below, 8, value);
    }

    fn pop(&mut self) -> Holds {
        let Holds::Frame(at) = self.get(RSP) else {
            return Holds::Unknown;
        };
        self.put(RSP, Holds::Frame(at.wrapping_add(8)));
        self.load(at)
    }

    /// The 64 bits of an operand.
    fn operand(&self, instruction: &Instruction, operand: u32) -> Holds {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                number(instruction.op_register(operand)).map_or(Holds::Unknown, |number| self.get(number))
            }
            OpKind::Memory => self
                .address(instruction)
                .map_or(Holds::Unknown, |at| self.load(at)),
            _ => Holds::Unknown,
        }
    }

    /// The memory operand's place in the frame; `None`: not known, or elsewhere.
    fn address(&self, instruction: &Instruction) -> Option<i64> {
        self.place(
            instruction.memory_base(),
            instruction.memory_index(),
            instruction.memory_displacement64(),
        )
    }

    fn place(&self, base: Register, index: Register, displacement: u64) -> Option<i64> {
        match self.get(number(base).filter(|_| index == Register::None)?) {
            Holds::Frame(at) => Some(at.wrapping_add(displacement as i64)),
            _ => None,
        }
    }

    fn load(&self, at: i64) -> Holds {
        self.saved
            .get(&at)
            .map_or(Holds::Unknown, |&register| Holds::Entry(register))
    }

    /// Writes `size` bytes; nowhere in particular for `None`.
    fn store(&mut self, at: Option<i64>, size: i64, value: Holds) {
        let Some(at) = at else { return };
        let over = self
            .saved
            .range(at.saturating_sub(7)..at.saturating_add(size.max(1)));
        let over: Vec<i64> = over.map(|(&at, _)| at).collect();
        for at in over {
            self.saved.remove(&at);
        }
        if let Holds::Entry(register) = value {
            self.saved.insert(at, register);
        }
    }

    fn get(&self, register: u16) -> Holds {
        self.registers
            .get(usize::from(register))
            .copied()
            .unwrap_or(Holds::Unknown)
    }

    fn put(&mut self, register: u16, value: Holds) {
        if let Some(holds) = self.registers.get_mut(usize::from(register)) {
            *holds = value;
        }
    }

    fn set(&mut self, register: Register, value: Holds) {
        if let Some(number) = number(register) {
            self.put(number, value);
        }
    }
}

/// It pushes or pops 64 bits.
fn word(instruction: &Instruction) -> bool {
    instruction.stack_pointer_increment().abs() == 8
}

/// An operand is a register of 64 bits.
fn is_whole(instruction: &Instruction, operand: u32) -> bool {
    instruction.op_kind(operand) == OpKind::Register && number(instruction.op_register(operand)).is_some()
}

/// The DWARF number of a whole general register (System V ABI AMD64, section 3.6.2).
fn number(register: Register) -> Option<u16> {
    Some(match register {
        Register::RAX => 0,
        Register::RDX => 1,
        Register::RCX => 2,
        Register::RBX => 3,
        Register::RSI => 4,
        Register::RDI => 5,
        Register::RBP => RBP,
        Register::RSP => RSP,
        Register::R8 => 8,
        Register::R9 => 9,
        Register::R10 => 10,
        Register::R11 => 11,
        Register::R12 => 12,
        Register::R13 => 13,
        Register::R14 => 14,
        Register::R15 => 15,
        _ => return None,
    })
}
