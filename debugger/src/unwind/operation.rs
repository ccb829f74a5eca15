//! The effect of an instruction on a frame (Intel SDM, volume 2).

use super::{COUNT, RSP};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// The effect of an instruction on the general registers, by their DWARF numbers, and on memory.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// The instruction does not occur in the body of a function.
    Foreign,
    Push(Operand),
    Pop(u16),
    Leave,
    /// A register gets a value.
    Set(u16, Operand),
    /// 64 bits of memory get a value.
    Store(MemoryOperand, Operand),
    /// A register gets an address.
    Address(u16, MemoryOperand),
    /// A number is added to a register.
    Add(u16, i64),
    /// Anything else.
    Other {
        /// The amount added to the stack pointer, if that is the only change to it.
        stack: Option<i64>,
        /// The registers that it changes, a bit each.
        changes: u16,
        /// The memory that it writes, with its size.
        stores: Vec<(MemoryOperand, i64)>,
    },
}

/// A value of 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Register(u16),
    Memory(MemoryOperand),
    Other,
}

/// An address in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryOperand {
    /// The register that it counts from; `None`: it is not that simple.
    pub base: Option<u16>,
    pub displacement: i64,
}

impl Operation {
    pub fn of(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        let operand = |number| Operand::of(instruction, number);
        let register = |at| whole(instruction, at);
        let pushes = instruction.stack_pointer_increment().abs() == 8;
        let added = || {
            let by = instruction.try_immediate(1).ok()? as i64;
            match instruction.mnemonic() {
                Mnemonic::Sub => by.checked_neg(),
                _ => Some(by),
            }
        };
        match (instruction.mnemonic(), register(0)) {
            (Mnemonic::Ret | Mnemonic::Retf | Mnemonic::Iretq | Mnemonic::Enter, _) => Self::Foreign,
            (Mnemonic::Push, _) if pushes => Self::Push(operand(0)),
            (Mnemonic::Pop, Some(to)) if pushes => Self::Pop(to),
            (Mnemonic::Leave, _) => Self::Leave,
            (Mnemonic::Mov, Some(to)) => Self::Set(to, operand(1)),
            (Mnemonic::Mov, None) if instruction.op0_kind() == OpKind::Memory && register(1).is_some() => {
                Self::Store(MemoryOperand::of(instruction), operand(1))
            }
            (Mnemonic::Lea, Some(to)) => Self::Address(to, MemoryOperand::of(instruction)),
            (Mnemonic::Add | Mnemonic::Sub, Some(to)) if added().is_some() => {
                Self::Add(to, added().unwrap_or_default())
            }
            _ => Self::other(instruction, info),
        }
    }

    /// By which registers and which memory it changes.
    fn other(instruction: &Instruction, info: &mut InstructionInfoFactory) -> Self {
        let info = info.info(instruction);
        let changes = |access: OpAccess| {
            matches!(
                access,
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
        };
        let changed = info.used_registers().iter().filter(|used| changes(used.access()));
        let changed = changed.filter_map(|used| number(used.register().full_register()));
        let stored = info.used_memory().iter().filter(|used| changes(used.access()));
        let stores = stored.map(|used| {
            let place = MemoryOperand::new(used.base(), used.index(), used.displacement());
            (place, used.memory_size().size() as i64)
        });
        let moves = instruction.is_stack_instruction();
        Self::Other {
            stack: moves.then(|| instruction.stack_pointer_increment().into()),
            changes: changed.fold(0, |all, register| all | 1 << register),
            stores: stores.collect(),
        }
    }

    /// The registers of a set.
    pub fn registers(set: u16) -> impl Iterator<Item = u16> {
        (0..COUNT as u16).filter(move |register| set >> register & 1 != 0)
    }
}

impl Operand {
    fn of(instruction: &Instruction, number: u32) -> Self {
        match instruction.op_kind(number) {
            OpKind::Register => whole(instruction, number).map_or(Self::Other, Self::Register),
            OpKind::Memory => Self::Memory(MemoryOperand::of(instruction)),
            _ => Self::Other,
        }
    }
}

impl MemoryOperand {
    fn of(instruction: &Instruction) -> Self {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        Self::new(base, index, instruction.memory_displacement64())
    }

    fn new(base: Register, index: Register, displacement: u64) -> Self {
        Self {
            base: number(base).filter(|_| index == Register::None),
            displacement: displacement as i64,
        }
    }
}

/// The register that an operand is, if it is one of 64 bits.
fn whole(instruction: &Instruction, operand: u32) -> Option<u16> {
    let is_register = operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Register;
    number(instruction.op_register(operand)).filter(|_| is_register)
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
        Register::RBP => 6,
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
