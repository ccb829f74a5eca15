//! Instructions on vector registers.

mod form;
mod table;

use super::operands::operand;
use crate::execute::vector::{Arithmetic, Float, Shuffle, Vector, VectorKind};
use crate::operand::Operand;
use form::{Choice, Form};
use iced_x86::{EncodingKind, Instruction, OpKind, Register, RoundingControl};

/// The constants of `vpcmp` for equality and for being greater.
const EQUAL: u8 = 0;
const GREATER: u8 = 6;

/// Returns the operation and the operands of an instruction. `None`: it is not modeled.
pub fn lift(instruction: &Instruction) -> Option<(Vector, [Operand; 4])> {
    let (form, choice, size) = table::find(instruction.mnemonic())?;
    let has_rounding = instruction.rounding_control() != RoundingControl::None;
    let is_wide_broadcast = form == Form::Narrow && instruction.is_broadcast();
    if has_rounding || instruction.suppress_all_exceptions() || is_wide_broadcast {
        return None;
    }
    let (kind, constant) = choose(instruction, choice, size)?;
    let mut lifted = Vector {
        kind,
        size,
        length: length(instruction, form)?,
        constant: constant.or_else(|| constant_of(instruction)).unwrap_or_default(),
        is_scalar: matches!(form, Form::Scalar | Form::Integer | Form::FusedScalar),
        keeps_upper: instruction.encoding() == EncodingKind::Legacy,
        is_broadcast: instruction.is_broadcast(),
        mask: mask(instruction)?,
        zeroes: instruction.zeroing_masking(),
    };
    let operands = arrange(instruction, form, &mut lifted)?;
    is_supported(&lifted, &operands).then_some((lifted, operands))
}

/// Returns the number of the mask register. Zero: there is none.
fn mask(instruction: &Instruction) -> Option<u8> {
    match instruction.op_mask() {
        Register::None => Some(0),
        register => u8::try_from(register.number()).ok(),
    }
}

/// Returns the constant at the end of the operands.
fn constant_of(instruction: &Instruction) -> Option<u8> {
    let last = instruction.op_count().checked_sub(1)?;
    (instruction.op_kind(last) == OpKind::Immediate8).then(|| instruction.immediate8())
}

/// Returns the operation, and its constant if the mnemonic has it.
fn choose(instruction: &Instruction, choice: Choice, size: u8) -> Option<(VectorKind, Option<u8>)> {
    let to_mask = instruction.op0_register().is_k();
    let integer = |at: u32| match instruction.op_kind(at) {
        OpKind::Register => u8::try_from(instruction.op_register(at).size()).ok(),
        _ => u8::try_from(instruction.memory_size().size()).ok(),
    };
    Some(match choice {
        Choice::Fixed(kind) => (kind, None),
        Choice::Equal if to_mask => (VectorKind::CompareToMask(true), Some(EQUAL)),
        Choice::Greater if to_mask => (VectorKind::CompareToMask(true), Some(GREATER)),
        Choice::Equal => (VectorKind::Arithmetic(Arithmetic::Equal), None),
        Choice::Greater => (VectorKind::Arithmetic(Arithmetic::Greater), None),
        Choice::Shift(operation) if constant_of(instruction).is_some() => {
            (VectorKind::ShiftBy(operation), None)
        }
        Choice::Shift(operation) => (VectorKind::ShiftAll(operation), None),
        Choice::Compare => {
            // `vcmp` has 32 relations, and `cmp` has 8. The upper 16 raise other exceptions.
            let bits = if instruction.encoding() == EncodingKind::Legacy {
                7
            } else {
                15
            };
            let constant = constant_of(instruction)? & bits;
            let kind = if to_mask {
                VectorKind::CompareFloatToMask
            } else {
                VectorKind::Float(Float::Compare)
            };
            (kind, Some(constant))
        }
        Choice::FromInteger => (
            VectorKind::FromInteger(integer(instruction.op_count() - 1)?),
            None,
        ),
        Choice::ToInteger(truncates) => {
            let to = integer(0)?;
            // The other registers of the table are not integers.
            (to >= 4 && size >= 4).then_some((VectorKind::ToInteger(to, truncates), None))?
        }
    })
}

/// Returns the size of the result in bytes. If it has fewer bytes than the source: that of the
/// source.
fn length(instruction: &Instruction, form: Form) -> Option<u8> {
    let vector = |at: u32| {
        let register = instruction.op_register(at);
        let is_vector = at < instruction.op_count()
            && instruction.op_kind(at) == OpKind::Register
            && register.is_vector_register();
        is_vector.then(|| register.size())
    };
    let first = if matches!(form, Form::Narrow) {
        None
    } else {
        vector(0)
    };
    let largest = || {
        let memory = if instruction.is_broadcast() {
            0
        } else {
            instruction.memory_size().size()
        };
        let vectors = (0..4).filter_map(vector);
        vectors.chain([memory, 16]).max().unwrap_or(16)
    };
    u8::try_from(first.unwrap_or_else(largest)).ok()
}

/// Returns the operands by their roles.
fn arrange(instruction: &Instruction, form: Form, lifted: &mut Vector) -> Option<[Operand; 4]> {
    let mut count = instruction.op_count();
    if constant_of(instruction).is_some() {
        count -= 1;
    }
    let at = |number| operand(instruction, number);
    let none = Operand::None;
    let unary = || Some([at(0)?, none, at(count - 1)?, none]);
    let binary = || match count {
        2 => Some([at(0)?, at(0)?, at(1)?, none]),
        3 => Some([at(0)?, at(1)?, at(2)?, none]),
        _ => None,
    };
    let is_memory = |number: u32| instruction.op_kind(number) == OpKind::Memory;
    match form {
        Form::Nothing => Some([none; 4]),
        Form::Unary | Form::Narrow if count == 2 => {
            // The result has fewer bytes than the source.
            if let VectorKind::Shuffle(Shuffle::ExtractPart(_) | Shuffle::Truncate(_)) = lifted.kind {
                lifted.length = u8::try_from(instruction.op1_register().size()).ok()?;
            }
            unary()
        }
        Form::Binary if matches!(lifted.kind, VectorKind::ShiftBy(_)) => unary(),
        Form::Binary | Form::Scalar | Form::Integer => {
            if lifted.kind == VectorKind::Shuffle(Shuffle::InsertFloat) && is_memory(count - 1) {
                // The number in memory is the only one.
                lifted.constant &= 0x3f;
            }
            binary()
        }
        Form::Bytes => unary(),
        Form::Low if count == 3 || !is_memory(0) && !is_memory(1) => {
            lifted.is_scalar = true;
            binary()
        }
        Form::Low => {
            if let Operand::Memory { .. } = at(1)? {
                lifted.kind = VectorKind::Part(lifted.size);
            }
            (lifted.mask == 0).then(unary)?
        }
        Form::Half if is_memory(0) => unary(),
        Form::Half => {
            lifted.is_scalar = true;
            binary()
        }
        Form::High if is_memory(0) => {
            lifted.kind = VectorKind::MoveHighToLow;
            unary()
        }
        Form::High => binary(),
        Form::BlendBySigns if count == 4 => Some([at(0)?, at(1)?, at(2)?, at(3)?]),
        // The short form has xmm0 as its third source.
        Form::BlendBySigns => Some([at(0)?, at(0)?, at(1)?, Operand::Vector(0)]),
        Form::Permute if constant_of(instruction).is_some() => unary(),
        Form::Permute => {
            lifted.kind = VectorKind::Shuffle(Shuffle::Permute);
            binary()
        }
        Form::InLane if constant_of(instruction).is_some() => unary(),
        Form::InLane => {
            lifted.kind = VectorKind::Shuffle(Shuffle::PermuteInLane);
            binary()
        }
        Form::Fused | Form::FusedScalar if count == 3 => Some([at(0)?, at(1)?, at(2)?, at(0)?]),
        Form::Flags if count == 2 => Some([none, at(0)?, at(1)?, none]),
        _ => None,
    }
}

/// Returns whether the model has the masks and the memory of an instruction.
fn is_supported(lifted: &Vector, operands: &[Operand; 4]) -> bool {
    if lifted.mask == 0 {
        return true;
    }
    let [target, ref sources @ ..] = *operands;
    let reads_memory = sources
        .iter()
        .any(|operand| matches!(operand, Operand::Memory { .. }));
    let writes_memory = matches!(target, Operand::Memory { .. });
    match lifted.kind {
        VectorKind::Move
        | VectorKind::Arithmetic(_)
        | VectorKind::Float(_)
        | VectorKind::Fused(_)
        | VectorKind::Ternary
        | VectorKind::CompareToMask(_)
        | VectorKind::CompareFloatToMask
        | VectorKind::TestToMask(_) => true,
        VectorKind::ShiftAll(_) | VectorKind::ShiftBy(_) | VectorKind::Shuffle(Shuffle::Permute) => {
            !reads_memory && !writes_memory
        }
        _ => false,
    }
}
