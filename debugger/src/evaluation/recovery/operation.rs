//! The effect of one instruction on registers (Intel SDM, volume 2).

use super::part::RegisterPart;
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

/// The known state before an instruction.
pub(super) trait InstructionInputs {
    /// Its bits; `None`: not known.
    fn part(&mut self, part: RegisterPart) -> Option<u64>;

    /// Reads `size` bytes at `at`, at most 8, zero-extended; `None` if they are unknown.
    fn memory(&mut self, at: u64, size: usize) -> Option<u64>;
}

/// Returns the value that an instruction writes to a part of a register, if its inputs are known.
pub(super) fn result(
    instruction: &Instruction,
    wanted: RegisterPart,
    inputs: &mut dyn InstructionInputs,
) -> Option<u64> {
    let (to, value) = match instruction.mnemonic() {
        Mnemonic::Cdqe => (64, extended(Register::EAX, inputs)?),
        Mnemonic::Cwde => (32, extended(Register::AX, inputs)?),
        _ => {
            let to = RegisterPart::operand(instruction, 0).filter(|to| to.register == wanted.register)?;
            (to.bits, RegisterPart::of(to, operation(instruction, to, inputs)?))
        }
    };
    let written = match to {
        // The upper half becomes zero.
        32 => 64,
        bits => bits,
    };
    let to = RegisterPart { bits: to, ..wanted };
    (written >= wanted.bits).then(|| wanted.of(to.of(value)))
}

/// The sign extension of a part of the accumulator.
fn extended(from: Register, inputs: &mut dyn InstructionInputs) -> Option<u64> {
    let from = RegisterPart::named(from)?;
    Some(RegisterPart::signed(from.bits, inputs.part(from)?))
}

fn operation(instruction: &Instruction, to: RegisterPart, inputs: &mut dyn InstructionInputs) -> Option<u64> {
    let immediate = instruction.try_immediate(1).ok();
    let of_itself = instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let source_bits = || match instruction.op1_kind() {
        OpKind::Register => RegisterPart::operand(instruction, 1).map(|part| part.bits),
        OpKind::Memory => Some(instruction.memory_size().size() as u32 * 8),
        _ => None,
    };
    let mut operand = |number| operand(instruction, number, inputs);
    Some(match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movzx => operand(1)?,
        Mnemonic::Movsx | Mnemonic::Movsxd => RegisterPart::signed(source_bits()?, operand(1)?),
        Mnemonic::Lea => address(instruction, inputs)?,
        Mnemonic::Xor | Mnemonic::Sub if of_itself => 0,
        Mnemonic::And if immediate == Some(0) => 0,
        Mnemonic::Or if immediate.is_some_and(|immediate| to.of(!immediate) == 0) => u64::MAX,
        Mnemonic::Add => operand(0)?.wrapping_add(operand(1)?),
        Mnemonic::Sub => operand(0)?.wrapping_sub(operand(1)?),
        Mnemonic::And => operand(0)? & operand(1)?,
        Mnemonic::Or => operand(0)? | operand(1)?,
        Mnemonic::Xor => operand(0)? ^ operand(1)?,
        Mnemonic::Inc => operand(0)?.wrapping_add(1),
        Mnemonic::Dec => operand(0)?.wrapping_sub(1),
        Mnemonic::Neg => operand(0)?.wrapping_neg(),
        Mnemonic::Not => !operand(0)?,
        Mnemonic::Imul if instruction.op_count() == 2 => operand(0)?.wrapping_mul(operand(1)?),
        Mnemonic::Imul if instruction.op_count() == 3 => operand(1)?.wrapping_mul(operand(2)?),
        Mnemonic::Shl => operand(0)?.wrapping_shl(count(to, operand(1)?)),
        Mnemonic::Shr => operand(0)?.wrapping_shr(count(to, operand(1)?)),
        Mnemonic::Sar => (RegisterPart::signed(to.bits, operand(0)?) as i64 >> count(to, operand(1)?)) as u64,
        _ => return None,
    })
}

/// By how much a shift shifts.
fn count(to: RegisterPart, operand: u64) -> u32 {
    let mask = if to.bits == 64 { 63 } else { 31 };
    (operand & mask) as u32
}

fn operand(instruction: &Instruction, number: u32, inputs: &mut dyn InstructionInputs) -> Option<u64> {
    match instruction.op_kind(number) {
        OpKind::Register => inputs.part(RegisterPart::operand(instruction, number)?),
        OpKind::Memory if instruction.segment_prefix() == Register::None => {
            let at = address(instruction, inputs)?;
            let size = instruction.memory_size().size();
            (1..=8).contains(&size).then(|| inputs.memory(at, size))?
        }
        _ => instruction.try_immediate(number).ok(),
    }
}

/// The address of the memory operand, without what a segment adds.
fn address(instruction: &Instruction, inputs: &mut dyn InstructionInputs) -> Option<u64> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let mut part = |register: Register| match register {
        Register::None => Some(0),
        register => inputs.part(RegisterPart::named(register).filter(|part| part.bits == 64)?),
    };
    let index = part(instruction.memory_index())?.wrapping_mul(instruction.memory_index_scale().into());
    Some(
        part(instruction.memory_base())?
            .wrapping_add(index)
            .wrapping_add(instruction.memory_displacement64()),
    )
}

/// The values of a part of a register before and after an instruction, if the instruction sets the
/// zero flag.
pub(super) struct ZeroFlagValues {
    pub before: Option<u64>,
    pub after: Option<u64>,
}

/// Returns the values of a part of a register for which an instruction sets the zero flag.
pub(super) fn if_zero(instruction: &Instruction, wanted: RegisterPart) -> ZeroFlagValues {
    let none = ZeroFlagValues {
        before: None,
        after: None,
    };
    let Some(part) = RegisterPart::operand(instruction, 0)
        .filter(|part| part.register == wanted.register && instruction.op0_kind() == OpKind::Register)
    else {
        return none;
    };
    let immediate = instruction.try_immediate(1).ok();
    let of_itself = instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register();
    let (before, writes) = match instruction.mnemonic() {
        Mnemonic::Cmp => (immediate, false),
        Mnemonic::Test => (of_itself.then_some(0), false),
        Mnemonic::And | Mnemonic::Or if of_itself => (Some(0), true),
        Mnemonic::Sub => (immediate, true),
        Mnemonic::Add => (immediate.map(u64::wrapping_neg), true),
        Mnemonic::Dec => (Some(1), true),
        Mnemonic::Inc => (Some(u64::MAX), true),
        Mnemonic::Neg => (Some(0), true),
        Mnemonic::Xor => (immediate, true),
        Mnemonic::And | Mnemonic::Or => (None, true),
        _ => return none,
    };
    let after = match writes {
        true if part.bits == 32 || part.bits >= wanted.bits => Some(0),
        true => None,
        false => before.filter(|_| part.bits >= wanted.bits),
    };
    ZeroFlagValues {
        before: before
            .filter(|_| part.bits >= wanted.bits)
            .map(|value| wanted.of(value)),
        after: after.map(|value| wanted.of(value)),
    }
}

/// Returns whether a conditional branch that continued at `next` implies that the zero flag was
/// set.
pub(super) fn was_zero(branch: &Instruction, next: u64) -> bool {
    if !branch.is_jcc_short_or_near() {
        return false;
    }
    let (there, after) = (branch.near_branch_target(), branch.next_ip());
    match branch.condition_code() {
        ConditionCode::e => there != after && next == there,
        ConditionCode::ne => there != after && next == after,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// Known: ecx, r12, and the four bytes at 0x2000.
    struct Some2;

    impl InstructionInputs for Some2 {
        fn part(&mut self, part: RegisterPart) -> Option<u64> {
            let value = match part.register {
                Register::RCX if part.bits <= 32 => 0xffff_fff0,
                Register::R12 => 0x1000,
                _ => return None,
            };
            Some(part.of(value))
        }

        fn memory(&mut self, at: u64, size: usize) -> Option<u64> {
            (at == 0x2000 && size <= 4).then_some(0x8765_4321 & ((1u64 << (8 * size)) - 1))
        }
    }

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::with_ip(64, code, 0x1ff0, DecoderOptions::NONE).decode()
    }

    fn part(register: Register) -> RegisterPart {
        RegisterPart::named(register).expect("a low part")
    }

    #[test]
    fn results_are_those_of_the_processor() {
        use Register::{AL, EAX, ECX, RAX, RCX, RDX};
        let cases: &[(&[u8], Register, Option<u64>)] = &[
            (&[0xb8, 7, 0, 0, 0], RAX, Some(7)), // mov $7,%eax
            (&[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff], RAX, Some(u64::MAX)), // mov $-1,%rax
            (&[0xb0, 7], AL, Some(7)),           // mov $7,%al
            (&[0xb0, 7], EAX, None),
            (&[0x89, 0xc8], RAX, Some(0xffff_fff0)), // mov %ecx,%eax
            (&[0x48, 0x89, 0xc8], EAX, None),        // mov %rcx,%rax: all of it is asked for
            (&[0x48, 0x63, 0xc1], RAX, Some(0xffff_ffff_ffff_fff0)), // movslq %ecx,%rax
            (&[0x0f, 0xb6, 0xc1], RAX, Some(0xf0)),  // movzbl %cl,%eax
            (&[0x0f, 0xbe, 0xc1], RAX, Some(0xffff_fff0)), // movsbl %cl,%eax
            (&[0x31, 0xd2], RDX, Some(0)),           // xor %edx,%edx
            (&[0x49, 0x8d, 0x44, 0x24, 0x08], RAX, Some(0x1008)), // lea 8(%r12),%rax
            (&[0xc1, 0xf9, 0x02], ECX, Some(0xffff_fffc)), // sar $2,%ecx
            (&[0xc1, 0xe9, 0x1c], RCX, Some(0xf)),   // shr $28,%ecx
            (&[0x83, 0xe1, 0x3f], RCX, Some(0x30)),  // and $0x3f,%ecx
            (&[0x83, 0xe0, 0x00], RAX, Some(0)),     // and $0,%eax
            (&[0x48, 0x83, 0xc8, 0xff], RAX, Some(u64::MAX)), // or $-1,%rax
            (&[0x83, 0xe0, 0x01], RAX, None),        // and $1,%eax
            (&[0x6b, 0xc1, 0x03], RAX, Some(0xffff_ffd0)), // imul $3,%ecx,%eax
            (&[0x8b, 0x05, 0x0a, 0, 0, 0], RAX, Some(0x8765_4321)), // mov 10(%rip),%eax
            (&[0x64, 0x8b, 0x04, 0x25, 0, 0x20, 0, 0], RAX, None), // mov %fs:0x2000,%eax
            (&[0x41, 0x8b, 0x84, 0x24, 0, 0x10, 0, 0], RAX, Some(0x8765_4321)), // mov 0x1000(%r12),%eax
            (&[0xf7, 0xe1], RAX, None),              // mul %ecx
        ];
        for (code, register, value) in cases {
            let instruction = decoded(code);
            assert_eq!(
                result(&instruction, part(*register), &mut Some2),
                *value,
                "{instruction} to {register:?}"
            );
        }
    }

    #[test]
    fn comparisons_tell_where_the_branch_went_as_for_equal_values() {
        let zero_flag_values = |code: &[u8], register| {
            let values = if_zero(&decoded(code), part(register));
            (values.before, values.after)
        };
        assert_eq!(
            zero_flag_values(&[0x83, 0xff, 5], Register::EDI),
            (Some(5), Some(5))
        ); // cmp $5,%edi
        assert_eq!(zero_flag_values(&[0x83, 0xff, 5], Register::RDI), (None, None));
        assert_eq!(
            zero_flag_values(&[0x83, 0xff, 0xff], Register::EDI),
            (Some(0xffff_ffff), Some(0xffff_ffff))
        );
        assert_eq!(
            zero_flag_values(&[0x48, 0x85, 0xff], Register::RDI),
            (Some(0), Some(0))
        ); // test %rdi,%rdi
        assert_eq!(zero_flag_values(&[0x85, 0xf7], Register::RDI), (None, None)); // test %esi,%edi
        assert_eq!(
            zero_flag_values(&[0x83, 0xef, 5], Register::EDI),
            (Some(5), Some(0))
        ); // sub $5,%edi
        assert_eq!(zero_flag_values(&[0x83, 0xef, 5], Register::RDI), (None, Some(0)));
        assert_eq!(zero_flag_values(&[0x39, 0xf7], Register::EDI), (None, None)); // cmp %esi,%edi
        assert_eq!(zero_flag_values(&[0x83, 0x3f, 5], Register::RDI), (None, None)); // cmpl $5,(%rdi)
        let equal = decoded(&[0x74, 0x10]); // je
        assert!(was_zero(&equal, 0x2002) && !was_zero(&equal, 0x1ff2));
        let unequal = decoded(&[0x75, 0x10]);
        assert!(was_zero(&unequal, 0x1ff2) && !was_zero(&unequal, 0x2002));
        assert!(!was_zero(&decoded(&[0x75, 0x00]), 0x1ff2)); // both ways are one
        assert!(!was_zero(&decoded(&[0x7e, 0x10]), 0x2002)); // jle
    }
}
