//! Instructions at the end of a function, which load the registers of its caller.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// The effect of an instruction before a return, read backward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EpilogueStep {
    /// The register that it loads from the stack; `None`: none.
    pub register: Register,
    /// The slot that it loads, as an offset from the canonical frame address; `None`: not known.
    pub slot: Option<i64>,
    /// The stack pointer before the instruction, as an offset from the canonical frame address;
    /// `None`: not known.
    pub stack_pointer: Option<i64>,
}

impl EpilogueStep {
    /// Reads an instruction; `None`: it is of another kind. `after` is the stack pointer after it.
    pub fn of(instruction: &Instruction, after: Option<i64>) -> Option<Self> {
        let to = instruction.op_register(0);
        match instruction.mnemonic() {
            Mnemonic::Pop if to.is_gpr64() => {
                let before = after.and_then(|after| after.checked_sub(8));
                Some(Self {
                    register: to,
                    slot: before,
                    stack_pointer: before,
                })
            }
            // The stack pointer was anywhere below the frame pointer.
            Mnemonic::Leave => Some(Self {
                register: Register::RBP,
                slot: after.and_then(|after| after.checked_sub(8)),
                stack_pointer: None,
            }),
            Mnemonic::Add if to == Register::RSP && is_immediate(instruction) => {
                let added = instruction.immediate(1) as i64;
                Some(Self {
                    register: Register::None,
                    slot: None,
                    stack_pointer: after.and_then(|after| after.checked_sub(added)),
                })
            }
            Mnemonic::Mov if to.is_gpr64() && instruction.op1_kind() == OpKind::Memory => {
                let is_stack = instruction.memory_base() == Register::RSP
                    && instruction.memory_index() == Register::None;
                let offset = instruction.memory_displacement64() as i64;
                let slot = after.filter(|_| is_stack && to != Register::RSP);
                Some(Self {
                    register: to,
                    slot: slot.and_then(|at| at.checked_add(offset)),
                    stack_pointer: after.filter(|_| to != Register::RSP),
                })
            }
            _ => None,
        }
    }
}

fn is_immediate(instruction: &Instruction) -> bool {
    matches!(
        instruction.op1_kind(),
        OpKind::Immediate8 | OpKind::Immediate32 | OpKind::Immediate8to64 | OpKind::Immediate32to64
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn step(bytes: &[u8], after: Option<i64>) -> Option<EpilogueStep> {
        EpilogueStep::of(
            &Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE).decode(),
            after,
        )
    }

    #[test]
    fn slots_are_offsets_from_the_canonical_frame_address() {
        let loaded = |register, slot, stack_pointer| {
            Some(EpilogueStep {
                register,
                slot,
                stack_pointer,
            })
        };
        // pop r12; pop rbx
        assert_eq!(
            step(&[0x41, 0x5c], Some(-8)),
            loaded(Register::R12, Some(-16), Some(-16))
        );
        assert_eq!(
            step(&[0x5b], Some(-16)),
            loaded(Register::RBX, Some(-24), Some(-24))
        );
        // leave
        assert_eq!(step(&[0xc9], Some(-8)), loaded(Register::RBP, Some(-16), None));
        // add rsp, 0x28
        assert_eq!(
            step(&[0x48, 0x83, 0xc4, 0x28], Some(-8)),
            loaded(Register::None, None, Some(-48))
        );
        // mov rbx, [rsp + 0x10]
        assert_eq!(
            step(&[0x48, 0x8b, 0x5c, 0x24, 0x10], Some(-48)),
            loaded(Register::RBX, Some(-32), Some(-48))
        );
        // mov rbx, [rdi]; pop rbx without a known stack pointer
        assert_eq!(
            step(&[0x48, 0x8b, 0x1f], Some(-48)),
            loaded(Register::RBX, None, Some(-48))
        );
        assert_eq!(step(&[0x5b], None), loaded(Register::RBX, None, None));
        // mov eax, 1; pop ax
        assert_eq!(step(&[0xb8, 1, 0, 0, 0], Some(-8)), None);
        assert_eq!(step(&[0x66, 0x58], Some(-8)), None);
    }
}
