//! Sets of registers, and the registers that an instruction reads and writes.

use crate::state::flag;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register, RflagsBits};

/// A set of registers and flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegisterSet {
    /// Bit n is general register n.
    pub general: u16,
    /// Bit n is vector register n.
    pub vectors: u32,
    /// Bit n is mask register n.
    pub masks: u8,
    /// Flags, as bits of `rflags`.
    pub flags: u64,
}

/// The registers that an instruction reads and writes, with or without a model.
///
/// # Example
/// ```
/// use backtrail_semantics::Registers;
/// use iced_x86::{Decoder, DecoderOptions};
///
/// // cpuid
/// let instruction = Decoder::with_ip(64, &[0x0f, 0xa2], 0, DecoderOptions::NONE).decode();
/// let registers = Registers::of(&instruction);
/// assert_eq!(registers.written.general, 0b1111);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The registers that the results depend on. A register of which a part is written is not read
    /// for the rest.
    pub read: RegisterSet,
    /// The registers that may change.
    pub written: RegisterSet,
    /// Whether other registers may change, such as those of x87 or MXCSR.
    pub writes_others: bool,
}

/// Flags of the library, and of the processor.
const FLAGS: [(u32, u64); 7] = [
    (RflagsBits::OF, flag::OVERFLOW),
    (RflagsBits::SF, flag::SIGN),
    (RflagsBits::ZF, flag::ZERO),
    (RflagsBits::AF, flag::ADJUST),
    (RflagsBits::CF, flag::CARRY),
    (RflagsBits::PF, flag::PARITY),
    (RflagsBits::DF, flag::DIRECTION),
];

impl Registers {
    /// Returns the registers of an instruction.
    #[must_use]
    pub fn of(instruction: &Instruction) -> Self {
        let mut registers = Self::default();
        let mut factory = InstructionInfoFactory::new();
        for used in factory.info(instruction).used_registers() {
            let (is_read, is_written) = match used.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                _ => (false, false),
            };
            if is_read {
                registers.read.add(used.register());
            }
            if is_written && !registers.written.add(used.register()) {
                registers.writes_others = true;
            }
        }
        // The library lists neither registers of x87 nor MXCSR.
        registers.writes_others |= instruction.fpu_stack_increment_info().writes_top()
            || matches!(
                instruction.mnemonic(),
                Mnemonic::Ldmxcsr
                    | Mnemonic::Vldmxcsr
                    | Mnemonic::Fxrstor
                    | Mnemonic::Fxrstor64
                    | Mnemonic::Xrstor
                    | Mnemonic::Xrstor64
            );
        registers.read.flags = flags(instruction.rflags_read());
        registers.written.flags = flags(instruction.rflags_modified());
        if matches!(instruction.mnemonic(), Mnemonic::Rcl | Mnemonic::Rcr) {
            // A whole turn changes OF, which the library leaves out.
            registers.written.flags |= flag::CARRY | flag::OVERFLOW;
        }
        registers
    }
}

impl RegisterSet {
    /// Adds a register. Returns whether the set has registers of its kind.
    fn add(&mut self, register: Register) -> bool {
        let full = register.full_register();
        let number = full.number();
        if full.is_gpr() {
            self.general |= 1 << number;
        } else if full.is_vector_register() {
            self.vectors |= 1 << number;
        } else if full.is_k() {
            self.masks |= 1 << number;
        } else {
            return matches!(full, Register::RIP);
        }
        true
    }

    /// Returns whether the set has no register and no flag.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns flags as bits of `rflags`.
fn flags(bits: u32) -> u64 {
    let set = FLAGS.iter().filter(|(library, _)| bits & library != 0);
    set.map(|(_, flag)| flag).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn of(bytes: &[u8]) -> Registers {
        Registers::of(&Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode())
    }

    #[test]
    fn registers_of_a_sum_are_found() {
        // adc eax, [rbx + rcx]
        let registers = of(&[0x13, 0x04, 0x0b]);
        assert_eq!(registers.read.general, 0b1011);
        assert_eq!(registers.written.general, 1);
        assert_eq!(registers.read.flags, flag::CARRY);
        assert_eq!(registers.written.flags, flag::STATUS);
        assert!(!registers.writes_others);
    }

    #[test]
    fn registers_without_a_model_are_others() {
        // fld1, and ldmxcsr [rax]
        assert!(of(&[0xd9, 0xe8]).writes_others);
        assert!(of(&[0x0f, 0xae, 0x10]).writes_others);
        // syscall
        let registers = of(&[0x0f, 0x05]);
        assert_eq!(registers.written.general, 1 << 1 | 1 << 11);
    }
}
