//! Operands of a decoded instruction.

use crate::operand::{Address, Operand};
use crate::state::{Segment, sign_extend};
use iced_x86::{Instruction, OpKind, Register};

/// Returns an operand. `None`: the kind of operand is not modeled.
pub fn operand(instruction: &Instruction, at: u32) -> Option<Operand> {
    if at >= instruction.op_count() {
        return Some(Operand::None);
    }
    let immediate = |value: u64, size| Some(Operand::Immediate(sign_extend(value, size)));
    match instruction.op_kind(at) {
        OpKind::Register => register(instruction.op_register(at)),
        OpKind::Memory => {
            let size = u8::try_from(instruction.memory_size().size()).ok()?;
            let address = address(instruction)?;
            Some(Operand::Memory { address, size })
        }
        OpKind::Immediate8 => immediate(instruction.immediate8().into(), 1),
        OpKind::Immediate16 => immediate(instruction.immediate16().into(), 2),
        OpKind::Immediate32 => immediate(instruction.immediate32().into(), 4),
        OpKind::Immediate64 => Some(Operand::Immediate(instruction.immediate64())),
        OpKind::Immediate8to16 => immediate(instruction.immediate8to16().cast_unsigned().into(), 2),
        OpKind::Immediate8to32 => immediate(instruction.immediate8to32().cast_unsigned().into(), 4),
        OpKind::Immediate8to64 => Some(Operand::Immediate(instruction.immediate8to64().cast_unsigned())),
        OpKind::Immediate32to64 => Some(Operand::Immediate(instruction.immediate32to64().cast_unsigned())),
        OpKind::NearBranch64 => Some(Operand::Immediate(instruction.near_branch64())),
        _ => None,
    }
}

/// Returns a register as an operand.
pub fn register(register: Register) -> Option<Operand> {
    let number = u8::try_from(register.number()).ok()?;
    if register.is_gpr() {
        let is_high = matches!(
            register,
            Register::AH | Register::CH | Register::DH | Register::BH
        );
        return Some(Operand::General {
            number: u8::try_from(register.full_register().number()).ok()?,
            shift: if is_high { 8 } else { 0 },
            size: u8::try_from(register.size()).ok()?,
        });
    }
    if register.is_vector_register() {
        return Some(Operand::Vector(number));
    }
    register.is_k().then_some(Operand::Mask(number))
}

/// Returns the address expression of the operand in memory.
pub fn address(instruction: &Instruction) -> Option<Address> {
    let general = |register: Register| match register {
        Register::None => Some(None),
        _ if register.is_gpr() => u8::try_from(register.number()).ok().map(Some),
        _ => None,
    };
    let base = instruction.memory_base();
    let is_relative = matches!(base, Register::RIP | Register::EIP);
    let index = instruction.memory_index();
    let is_short = [base, index]
        .iter()
        .any(|register| matches!(register, Register::EIP) || register.is_gpr32());
    // Without registers, the displacement says by its size which addresses are meant.
    let is_bare = base == Register::None && index == Register::None;
    let size = if is_short || is_bare && instruction.memory_displ_size() == 4 {
        4
    } else {
        8
    };
    Some(Address {
        base: if is_relative { None } else { general(base)? },
        index: general(index)?,
        scale: u8::try_from(instruction.memory_index_scale()).ok()?,
        size,
        displacement: instruction.memory_displacement64(),
        segment: match instruction.memory_segment() {
            Register::FS => Some(Segment::Fs),
            Register::GS => Some(Segment::Gs),
            _ => None,
        },
    })
}
