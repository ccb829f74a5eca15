//! Change of flow instructions (COFI): the packet, if any, that each instruction produces.
//!
//! Source: SDM volume 3, "Change of Flow Instruction (COFI) Tracing". The recorder uses this to
//! choose packets, and the decoder to classify instructions.

use crate::Avma;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// The effect of an instruction on the control flow, and on the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cofi {
    /// None: the next instruction in memory follows, without a packet.
    Sequential,
    /// Conditional branch (`Jcc`, `JCXZ`, `LOOP`): one TNT bit.
    Conditional {
        /// The target if taken.
        target: Avma,
    },
    /// Direct jump: no packet.
    Jump {
        /// The target.
        target: Avma,
    },
    /// Direct near call: no packet; pushes a return address that RET compression may match.
    Call {
        /// The target.
        target: Avma,
    },
    /// Indirect near jump: TIP.
    IndirectJump,
    /// Indirect near call: TIP; pushes a return address.
    IndirectCall,
    /// Near return: TIP, or one TNT bit if RET compression matches.
    Return,
    /// Far transfer (`SYSCALL`, `INT n`, `IRET`, far call/jump/return, `SYSRET` …): leaves user
    /// code. TIP.PGD if only user code is traced.
    FarTransfer,
}

/// The length and control flow of one instruction of 64-bit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeInstruction {
    /// The length in bytes, 1–15.
    pub len: u8,
    /// The change of flow.
    pub cofi: Cofi,
    /// Whether this is a string instruction with a REP prefix. Single-stepping stops at each
    /// iteration, and PT counts it once.
    pub repeats: bool,
}

impl CodeInstruction {
    /// Decodes the first instruction of `code`, at address `at`, as 64-bit code.
    ///
    /// Returns `None` if the bytes are not an instruction, or are incomplete.
    #[must_use]
    pub fn decode(code: &[u8], at: Avma) -> Option<Self> {
        let mut decoder = Decoder::with_ip(64, code, at.0, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then(|| Self {
            len: instruction.len() as u8,
            cofi: Cofi::of(&instruction),
            repeats: (instruction.has_rep_prefix() || instruction.has_repne_prefix())
                && instruction.is_string_instruction(),
        })
    }
}

impl Cofi {
    /// Classifies a decoded instruction.
    #[must_use]
    pub fn of(instruction: &Instruction) -> Self {
        let target = Avma(instruction.near_branch_target());
        match instruction.flow_control() {
            FlowControl::Next => Self::Sequential,
            // UD2 and similar instructions fault. XBEGIN and XABORT fall through, and an abort is
            // an event.
            FlowControl::Exception | FlowControl::XbeginXabortXend => Self::Sequential,
            FlowControl::ConditionalBranch => Self::Conditional { target },
            FlowControl::UnconditionalBranch if is_far(instruction) => Self::FarTransfer,
            FlowControl::UnconditionalBranch => Self::Jump { target },
            FlowControl::Call if is_system(instruction) || is_far(instruction) => Self::FarTransfer,
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Self::Call { target },
            // Calls to hypervisors and trust domains, and VMMCALL: a trace reports no branch.
            FlowControl::Call => Self::Sequential,
            FlowControl::IndirectBranch if instruction.is_jmp_far_indirect() => Self::FarTransfer,
            FlowControl::IndirectBranch => Self::IndirectJump,
            FlowControl::IndirectCall if instruction.is_call_far_indirect() => Self::FarTransfer,
            FlowControl::IndirectCall => Self::IndirectCall,
            FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Self::Return,
            FlowControl::Return if is_left_to_events(instruction) => Self::Sequential,
            FlowControl::Return | FlowControl::Interrupt => Self::FarTransfer,
        }
    }

    /// Returns whether this is a near call, direct or indirect.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Self::Call { .. } | Self::IndirectCall)
    }

    /// Returns whether this ends a block, which all but [`Cofi::Sequential`] do.
    #[must_use]
    pub fn ends_block(self) -> bool {
        self != Self::Sequential
    }
}

fn is_far(instruction: &Instruction) -> bool {
    matches!(
        instruction.code(),
        Code::Jmp_ptr1616 | Code::Jmp_ptr1632 | Code::Call_ptr1616 | Code::Call_ptr1632
    )
}

fn is_system(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Vmcall | Mnemonic::Vmlaunch | Mnemonic::Vmresume
    )
}

/// Returns whether only events report this return to another context: system-management mode, trust
/// domains, SVM.
fn is_left_to_events(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Rsm | Mnemonic::Seamret | Mnemonic::Skinit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cofi(code: &[u8]) -> Cofi {
        CodeInstruction::decode(code, Avma(0x1000)).unwrap().cofi
    }

    #[test]
    fn each_cofi_kind_is_recognized() {
        assert_eq!(cofi(&[0x90]), Cofi::Sequential);
        assert_eq!(cofi(&[0x0f, 0x0b]), Cofi::Sequential);
        assert_eq!(cofi(&[0x74, 0x10]), Cofi::Conditional { target: Avma(0x1012) });
        assert_eq!(cofi(&[0xe2, 0xfe]), Cofi::Conditional { target: Avma(0x1000) });
        assert_eq!(cofi(&[0xeb, 0x00]), Cofi::Jump { target: Avma(0x1002) });
        assert_eq!(cofi(&[0xe8, 0, 0, 0, 0]), Cofi::Call { target: Avma(0x1005) });
        assert_eq!(cofi(&[0xff, 0xe0]), Cofi::IndirectJump);
        assert_eq!(cofi(&[0xff, 0xd0]), Cofi::IndirectCall);
        assert_eq!(cofi(&[0xc3]), Cofi::Return);
        assert_eq!(cofi(&[0xc2, 8, 0]), Cofi::Return);
        for far in [
            &[0x0f, 0x05][..],
            &[0x0f, 0x34],
            &[0xcc],
            &[0xcd, 0x80],
            &[0x48, 0xcf],
            &[0xcb],
            &[0xf2, 0x0f, 0x01, 0xca],
            &[0xf3, 0x0f, 0x01, 0xca],
        ] {
            assert_eq!(cofi(far), Cofi::FarTransfer, "{far:x?}");
        }
        // VMRUN, VMMCALL, RSM.
        for other in [&[0x0f, 0x01, 0xd8][..], &[0x0f, 0x01, 0xd9], &[0x0f, 0xaa]] {
            assert_eq!(cofi(other), Cofi::Sequential, "{other:x?}");
        }
    }

    #[test]
    fn repeat_prefixes_and_invalid_bytes_are_recognized() {
        let movs = CodeInstruction::decode(&[0xf3, 0x48, 0xa5], Avma(0)).unwrap();
        assert!(movs.repeats && movs.len == 3 && movs.cofi == Cofi::Sequential);
        assert!(!CodeInstruction::decode(&[0xf3, 0xc3], Avma(0)).unwrap().repeats);
        assert_eq!(CodeInstruction::decode(&[0x48], Avma(0)), None);
        assert_eq!(CodeInstruction::decode(&[0x06], Avma(0)), None);
    }
}
