//! The flow of a value through one instruction: from where the instruction moved it.

use super::location::{AnyRegister, RegisterSlice, ValueLocation};
use crate::replay::MemoryRange;
use backtrail_semantics::{State, address_part, flag};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

/// The source of a value that an instruction wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueFlow {
    /// The instruction moved the value from there.
    Copy(ValueLocation),
    /// The instruction has the value.
    Constant,
    /// The instruction computed the value from these.
    Computed(Vec<ValueLocation>),
    /// The value is the address to which a call returns.
    ReturnAddress,
    /// The instruction writes only a part of the value, or the flow is not known.
    Unknown,
}

/// Returns the flow of a value that an instruction wrote to a place. `before` has the registers
/// before the instruction.
pub fn flow(instruction: &Instruction, before: &State, to: ValueLocation) -> ValueFlow {
    if instruction.is_string_instruction() {
        return string_flow(instruction, before, to);
    }
    match instruction.mnemonic() {
        Mnemonic::Push => match operand(instruction, 0, before) {
            Some(source) => moved(source, 0, to.size()),
            None => ValueFlow::Constant,
        },
        Mnemonic::Call => ValueFlow::ReturnAddress,
        Mnemonic::Pop => moved_from_stack(before, 0, to),
        Mnemonic::Leave if is_general(to, 5) => moved_from(before.general[5], to),
        Mnemonic::Cdqe => sign_extended(to, 4),
        Mnemonic::Cwde => sign_extended(to, 2),
        Mnemonic::Cbw => sign_extended(to, 1),
        Mnemonic::Lea => match (instruction.memory_base(), instruction.memory_index()) {
            (Register::RIP | Register::None, Register::None) => ValueFlow::Constant,
            _ => computed(instruction, before),
        },
        Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd
            if is_same_register(instruction, 0, 1) =>
        {
            ValueFlow::Constant
        }
        Mnemonic::Vpxor | Mnemonic::Vxorps | Mnemonic::Vxorpd | Mnemonic::Vpxord | Mnemonic::Vpxorq
            if is_same_register(instruction, 1, 2) =>
        {
            ValueFlow::Constant
        }
        Mnemonic::Xchg => {
            let other = match operand(instruction, 0, before) {
                Some(first) if covers(first, to) => 1,
                _ => 0,
            };
            moved_operand(instruction, (1 - other, other), before, to)
        }
        mnemonic if is_move(mnemonic) && instruction.op_count() == 2 => match instruction.op_kind(1) {
            OpKind::Register | OpKind::Memory => moved_operand(instruction, (0, 1), before, to),
            _ => ValueFlow::Constant,
        },
        mnemonic if is_conditional_move(mnemonic) => ValueFlow::Unknown,
        _ => computed(instruction, before),
    }
}

/// Returns the flow if a conditional move moved the value. `after` has the registers after it.
pub fn conditional_flow(
    instruction: &Instruction,
    before: &State,
    after: &State,
    to: ValueLocation,
) -> Option<ValueFlow> {
    if !is_conditional_move(instruction.mnemonic()) {
        return None;
    }
    let ValueLocation::Register(slice) = to else {
        return None;
    };
    // Where both have the value, either way is true.
    if slice.value(before) == slice.value(after) {
        return Some(ValueFlow::Copy(to));
    }
    Some(moved_operand(instruction, (0, 1), before, to))
}

fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmove
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovne
            | M::Cmovno
            | M::Cmovnp
            | M::Cmovns
            | M::Cmovo
            | M::Cmovp
            | M::Cmovs
    )
}

fn is_move(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        mnemonic,
        M::Mov
            | M::Movzx
            | M::Movsx
            | M::Movsxd
            | M::Movd
            | M::Movq
            | M::Movss
            | M::Movsd
            | M::Movaps
            | M::Movups
            | M::Movapd
            | M::Movupd
            | M::Movdqa
            | M::Movdqu
            | M::Lddqu
            | M::Movnti
            | M::Movntdq
            | M::Movntps
            | M::Movntpd
            | M::Vmovd
            | M::Vmovq
            | M::Vmovss
            | M::Vmovsd
            | M::Vmovaps
            | M::Vmovups
            | M::Vmovapd
            | M::Vmovupd
            | M::Vmovdqa
            | M::Vmovdqu
            | M::Vlddqu
            | M::Vmovntdq
            | M::Vmovntps
            | M::Vmovntpd
    )
}

/// Returns the flow from one operand to another.
fn moved_operand(
    instruction: &Instruction,
    (to_operand, from): (u32, u32),
    before: &State,
    to: ValueLocation,
) -> ValueFlow {
    let (Some(target), Some(source)) = (
        operand(instruction, to_operand, before),
        operand(instruction, from, before),
    ) else {
        return ValueFlow::Unknown;
    };
    if let (ValueLocation::Register(written), ValueLocation::Register(slice)) = (target, to)
        && matches!(written.register, AnyRegister::General(_))
        && written.size == 4
        && written.register == slice.register
        && slice.offset == 0
    {
        // The upper half becomes zero.
        return moved(source, 0, slice.size.min(4));
    }
    let Some(offset) = offset_in(target, to) else {
        // The rest of a register is zero, or as it was.
        return match (target, to) {
            (ValueLocation::Register(target), ValueLocation::Register(slice))
                if target.size >= 4 && slice.offset >= target.offset + target.size =>
            {
                ValueFlow::Constant
            }
            _ => ValueFlow::Unknown,
        };
    };
    moved(source, offset, to.size())
}

/// Returns a part of a place as the source. Beyond its end, the source is extended.
fn moved(source: ValueLocation, offset: u64, size: u64) -> ValueFlow {
    if offset >= source.size() {
        return ValueFlow::Constant;
    }
    let size = size.min(source.size() - offset);
    ValueFlow::Copy(match source {
        ValueLocation::Register(slice) => ValueLocation::Register(RegisterSlice {
            offset: slice.offset + offset,
            size,
            ..slice
        }),
        ValueLocation::Memory(range) => ValueLocation::Memory(MemoryRange {
            address: range.address.wrapping_add(offset),
            size,
        }),
    })
}

fn moved_from(address: u64, to: ValueLocation) -> ValueFlow {
    let offset = match to {
        ValueLocation::Register(slice) => slice.offset,
        ValueLocation::Memory(_) => 0,
    };
    ValueFlow::Copy(ValueLocation::Memory(MemoryRange {
        address: address.wrapping_add(offset),
        size: to.size(),
    }))
}

fn moved_from_stack(before: &State, offset: u64, to: ValueLocation) -> ValueFlow {
    moved_from(before.general[4].wrapping_add(offset), to)
}

/// Returns the low part of `rax`, which an instruction extends.
fn sign_extended(to: ValueLocation, size: u64) -> ValueFlow {
    match to {
        ValueLocation::Register(slice) if slice.offset < size => moved(
            ValueLocation::Register(RegisterSlice {
                register: slice.register,
                offset: 0,
                size,
            }),
            slice.offset,
            slice.size,
        ),
        _ => ValueFlow::Unknown,
    }
}

/// Returns the flow of a string instruction, repeated or not.
fn string_flow(instruction: &Instruction, before: &State, to: ValueLocation) -> ValueFlow {
    use Mnemonic as M;
    if before.flags & flag::DIRECTION != 0 {
        return ValueFlow::Unknown;
    }
    let (rsi, rdi) = (before.general[6], before.general[7]);
    let offset = match to {
        ValueLocation::Memory(range) => range.address.wrapping_sub(rdi),
        ValueLocation::Register(_) => 0,
    };
    match (instruction.mnemonic(), to) {
        (M::Movsb | M::Movsw | M::Movsd | M::Movsq, ValueLocation::Memory(_)) => {
            moved_from(rsi.wrapping_add(offset), to)
        }
        (M::Stosb | M::Stosw | M::Stosd | M::Stosq, ValueLocation::Memory(range)) => {
            let element = instruction.memory_size().size() as u64;
            let within = offset % element.max(1);
            match within + range.size <= element {
                true => ValueFlow::Copy(ValueLocation::Register(RegisterSlice {
                    register: AnyRegister::General(0),
                    offset: within,
                    size: range.size,
                })),
                false => ValueFlow::Unknown,
            }
        }
        (M::Lodsb | M::Lodsw | M::Lodsd | M::Lodsq, ValueLocation::Register(slice))
            if slice.is_general(0) =>
        {
            moved_from(rsi, to)
        }
        _ => computed(instruction, before),
    }
}

/// Returns the operands from which an instruction computes its results, or else the registers that
/// it reads. Constants are left out, and so are registers of addresses.
fn computed(instruction: &Instruction, before: &State) -> ValueFlow {
    let read = backtrail_semantics::Registers::of(instruction).read;
    let is_read = |location: &ValueLocation| match location {
        ValueLocation::Register(slice) => match slice.register {
            AnyRegister::General(number) => read.general >> number & 1 != 0,
            AnyRegister::Vector(number) => read.vectors >> number & 1 != 0,
        },
        ValueLocation::Memory(_) => true,
    };
    let operands = (0..instruction.op_count()).filter_map(|number| operand(instruction, number, before));
    let mut inputs: Vec<ValueLocation> = operands.filter(is_read).collect();
    if instruction.mnemonic() == Mnemonic::Lea {
        inputs.clear();
    }
    if inputs.is_empty() {
        let general = (0..16_u8).filter(|number| read.general >> number & 1 != 0 && *number != 4);
        inputs.extend(general.map(|number| {
            ValueLocation::Register(RegisterSlice {
                register: AnyRegister::General(number),
                offset: 0,
                size: 8,
            })
        }));
    }
    ValueFlow::Computed(inputs)
}

/// Returns the place of an operand. `None`: it is a constant, or of another kind.
pub fn operand(instruction: &Instruction, number: u32, before: &State) -> Option<ValueLocation> {
    match instruction.op_kind(number) {
        OpKind::Register => Some(ValueLocation::Register(slice_of(
            instruction.op_register(number),
        )?)),
        OpKind::Memory => {
            let address =
                instruction.virtual_address(number, 0, |register, _, _| address_part(register, before))?;
            Some(ValueLocation::Memory(MemoryRange {
                address,
                size: instruction.memory_size().size() as u64,
            }))
        }
        _ => None,
    }
}

/// Returns the part of a general or vector register that a name means.
fn slice_of(register: Register) -> Option<RegisterSlice> {
    let size = register.size() as u64;
    if register.is_gpr() {
        let number = u8::try_from(register.full_register().number()).ok()?;
        let is_high = matches!(
            register,
            Register::AH | Register::BH | Register::CH | Register::DH
        );
        return Some(RegisterSlice {
            register: AnyRegister::General(number),
            offset: u64::from(is_high),
            size,
        });
    }
    register.is_vector_register().then(|| RegisterSlice {
        register: AnyRegister::Vector(register.number() as u8),
        offset: 0,
        size,
    })
}

impl RegisterSlice {
    fn is_general(&self, number: u8) -> bool {
        self.register == AnyRegister::General(number)
    }
}

fn is_general(location: ValueLocation, number: u8) -> bool {
    matches!(location, ValueLocation::Register(slice) if slice.is_general(number))
}

fn is_same_register(instruction: &Instruction, one: u32, other: u32) -> bool {
    instruction.op_kind(one) == OpKind::Register
        && instruction.op_kind(other) == OpKind::Register
        && instruction.op_register(one) == instruction.op_register(other)
}

/// Returns the first byte of a place within another, if it is whole in there.
fn offset_in(outer: ValueLocation, inner: ValueLocation) -> Option<u64> {
    match (outer, inner) {
        (ValueLocation::Register(outer), ValueLocation::Register(inner)) => {
            let is_inside = outer.register == inner.register
                && outer.offset <= inner.offset
                && inner.offset + inner.size <= outer.offset + outer.size;
            is_inside.then(|| inner.offset - outer.offset)
        }
        (ValueLocation::Memory(outer), ValueLocation::Memory(inner)) => {
            let offset = inner.address.wrapping_sub(outer.address);
            (offset < outer.size && inner.size <= outer.size - offset).then_some(offset)
        }
        _ => None,
    }
}

/// Returns the slices of registers that an instruction writes. A write of four bytes of a general
/// register is one of eight.
pub fn written(instruction: &Instruction) -> Vec<RegisterSlice> {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers().iter();
    let mut slices: Vec<RegisterSlice> = used
        .filter(|used| {
            !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None
            )
        })
        .filter_map(|used| slice_of(used.register()))
        .collect();
    if instruction.mnemonic() == Mnemonic::Syscall {
        slices.push(RegisterSlice {
            register: AnyRegister::General(0),
            offset: 0,
            size: 8,
        });
    }
    for slice in &mut slices {
        if matches!(slice.register, AnyRegister::General(_)) && slice.size == 4 {
            slice.size = 8;
        }
    }
    slices
}

fn covers(outer: ValueLocation, inner: ValueLocation) -> bool {
    offset_in(outer, inner).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE).decode()
    }

    fn general(number: u8, offset: u64, size: u64) -> ValueLocation {
        ValueLocation::Register(RegisterSlice {
            register: AnyRegister::General(number),
            offset,
            size,
        })
    }

    fn memory(address: u64, size: u64) -> ValueLocation {
        ValueLocation::Memory(MemoryRange { address, size })
    }

    fn state() -> State {
        let mut state = State::default();
        state.general[3] = 0x2000;
        state.general[6] = 0x3000;
        state.general[7] = 0x4000;
        state
    }

    #[test]
    fn moves_lead_to_their_source() {
        // mov eax, [rbx+8]
        let load = decoded(&[0x8b, 0x43, 0x08]);
        assert_eq!(
            flow(&load, &state(), general(0, 0, 4)),
            ValueFlow::Copy(memory(0x2008, 4))
        );
        assert_eq!(
            flow(&load, &state(), general(0, 4, 4)),
            ValueFlow::Constant,
            "the upper half is zero"
        );
        // mov [rbx], rcx
        let store = decoded(&[0x48, 0x89, 0x0b]);
        assert_eq!(
            flow(&store, &state(), memory(0x2004, 4)),
            ValueFlow::Copy(general(1, 4, 4))
        );
        // push rdx
        assert_eq!(
            flow(&decoded(&[0x52]), &state(), memory(0x1ff8, 8)),
            ValueFlow::Copy(general(2, 0, 8))
        );
    }

    #[test]
    fn constants_and_sums_end_a_chain() {
        // mov eax, 5; xor eax, eax
        for code in [&[0xb8, 5, 0, 0, 0][..], &[0x31, 0xc0]] {
            assert_eq!(
                flow(&decoded(code), &state(), general(0, 0, 8)),
                ValueFlow::Constant
            );
        }
        // add rax, rcx
        let sum = flow(&decoded(&[0x48, 0x01, 0xc8]), &state(), general(0, 0, 8));
        assert!(matches!(sum, ValueFlow::Computed(inputs) if inputs.len() == 2));
    }

    #[test]
    fn string_moves_lead_to_the_same_offset() {
        // rep movsb
        let copy = decoded(&[0xf3, 0xa4]);
        assert_eq!(
            flow(&copy, &state(), memory(0x4010, 8)),
            ValueFlow::Copy(memory(0x3010, 8))
        );
        // rep stosq
        let fill = decoded(&[0xf3, 0x48, 0xab]);
        assert_eq!(
            flow(&fill, &state(), memory(0x400c, 4)),
            ValueFlow::Copy(general(0, 4, 4))
        );
    }
}
