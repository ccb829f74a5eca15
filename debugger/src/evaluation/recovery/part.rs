//! Low parts of general registers.

use iced_x86::{Instruction, Register};
use std::fmt;

/// General registers by their DWARF numbers (System V ABI AMD64, section 3.6.2).
const REGISTERS: [Register; 16] = [
    Register::RAX,
    Register::RDX,
    Register::RCX,
    Register::RBX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// The low 8, 16, 32 or 64 bits of a general register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegisterPart {
    /// The whole register.
    pub register: Register,
    pub bits: u32,
}

impl RegisterPart {
    /// The whole stack pointer.
    pub const STACK_POINTER: Self = Self {
        register: Register::RSP,
        bits: 64,
    };

    /// As an instruction names it; `None`: it is no low part of a general register.
    pub fn named(register: Register) -> Option<Self> {
        let high = matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        (register.is_gpr() && !high).then(|| Self {
            register: register.full_register(),
            bits: register.size() as u32 * 8,
        })
    }

    /// The whole register of a DWARF number.
    pub fn of_dwarf(number: u16) -> Option<Self> {
        let register = *REGISTERS.get(usize::from(number))?;
        Some(Self { register, bits: 64 })
    }

    /// The operand of an instruction, if it is one.
    pub fn operand(instruction: &Instruction, number: u32) -> Option<Self> {
        Self::named(instruction.op_register(number))
    }

    /// Its bits of a value.
    pub fn of(self, value: u64) -> u64 {
        match self.bits {
            64.. => value,
            bits => value & ((1 << bits) - 1),
        }
    }

    /// Sign-extends a value of this number of bits.
    pub fn signed(bits: u32, value: u64) -> u64 {
        let unused = 64u32.saturating_sub(bits);
        ((value << unused) as i64 >> unused) as u64
    }

    /// Calls preserve it (System V ABI AMD64, section 3.2.1).
    pub fn is_preserved(self) -> bool {
        matches!(
            self.register,
            Register::RBX | Register::RBP | Register::R12 | Register::R13 | Register::R14 | Register::R15
        )
    }

    /// The DWARF number of the whole register.
    pub fn number(self) -> Option<usize> {
        REGISTERS.iter().position(|register| *register == self.register)
    }

    /// One bit of sixteen, for a set of whole registers.
    pub fn bit(self) -> u16 {
        self.number().map_or(0, |number| 1 << number)
    }
}

impl fmt::Display for RegisterPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |register: Register| format!("{register:?}").to_lowercase();
        match self.bits {
            64 => write!(f, "{}", name(self.register)),
            32 => write!(f, "{}", name(self.register.full_register32())),
            bits => write!(f, "{} (its low {bits} bits)", name(self.register)),
        }
    }
}
