//! Change of flow instructions (COFI): which packet, if any, an instruction gives.
//!
//! Source: SDM volume 3, "Change of Flow Instruction (COFI) Tracing". The recorder uses this to
//! choose packets, the decoder to label what an engine returns, so that both say the same.

use crate::Avma;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// What an instruction does to the flow of control, and so to the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cofi {
    /// None: the next instruction follows in memory, no packet.
    Sequential,
    /// Conditional branch (`Jcc`, `JCXZ`, `LOOP`): one TNT bit.
    Conditional {
        /// Where it goes when taken.
        target: Avma,
    },
    /// Direct jump: no packet.
    Jump {
        /// Where it goes.
        target: Avma,
    },
    /// Direct near call: no packet; pushes a return address that RET compression may match.
    Call {
        /// Where it goes.
        target: Avma,
    },
    /// Indirect near jump: TIP.
    IndirectJump,
    /// Indirect near call: TIP; pushes a return address.
    IndirectCall,
    /// Near return: TIP, or one TNT bit when RET compression matched.
    Return,
    /// Far transfer (`SYSCALL`, `INT n`, `IRET`, far call/jump/return, `SYSRET` …): leaves user
    /// code, TIP.PGD when only user code is traced.
    FarTransfer,
}

/// One instruction of 64-bit code as far as control flow goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeInstruction {
    /// Its length in bytes, 1–15.
    pub len: u8,
    /// Its change of flow.
    pub cofi: Cofi,
    /// A string instruction with a REP prefix: single-stepping stops at each iteration, PT counts
    /// the whole as one.
    pub repeats: bool,
}

impl CodeInstruction {
    /// Reads the first instruction of `code`, which stands at `at`, as 64-bit code.
    ///
    /// `None`: the bytes are no instruction, or too few.
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
            // UD2 and its kin fault; XBEGIN and XABORT fall through, and an abort is an event.
            FlowControl::Exception | FlowControl::XbeginXabortXend => Self::Sequential,
            FlowControl::ConditionalBranch => Self::Conditional { target },
            FlowControl::UnconditionalBranch if is_far(instruction) => Self::FarTransfer,
            FlowControl::UnconditionalBranch => Self::Jump { target },
            FlowControl::Call if is_system(instruction) || is_far(instruction) => Self::FarTransfer,
            FlowControl::Call if instruction.mnemonic() == Mnemonic::Call => Self::Call { target },
            // Hosts of virtual machines and of trust domains, and VMMCALL: no branch that a trace tells.
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

    /// A near call, direct or not.
    #[must_use]
    pub fn is_call(self) -> bool {
        matches!(self, Self::Call { .. } | Self::IndirectCall)
    }

    /// Anything but [`Cofi::Sequential`]: a block ends here.
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

/// Ways back of the system's alone, which events tell of: system-management mode, trust domains,
/// SVM, FRED.
fn is_left_to_events(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Rsm | Mnemonic::Seamret | Mnemonic::Erets | Mnemonic::Eretu | Mnemonic::Skinit
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cofi(code: &[u8]) -> Cofi {
        CodeInstruction::decode(code, Avma(0x1000)).unwrap().cofi
    }

    #[test]
    fn each_kind_is_told_apart() {
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
        ] {
            assert_eq!(cofi(far), Cofi::FarTransfer, "{far:x?}");
        }
        // VMRUN, VMMCALL, RSM.
        for other in [&[0x0f, 0x01, 0xd8][..], &[0x0f, 0x01, 0xd9], &[0x0f, 0xaa]] {
            assert_eq!(cofi(other), Cofi::Sequential, "{other:x?}");
        }
    }

    #[test]
    fn repeats_are_seen_and_rubbish_is_none() {
        let movs = CodeInstruction::decode(&[0xf3, 0x48, 0xa5], Avma(0)).unwrap();
        assert!(movs.repeats && movs.len == 3 && movs.cofi == Cofi::Sequential);
        assert!(!CodeInstruction::decode(&[0xf3, 0xc3], Avma(0)).unwrap().repeats);
        assert_eq!(CodeInstruction::decode(&[0x48], Avma(0)), None);
        assert_eq!(CodeInstruction::decode(&[0x06], Avma(0)), None);
    }
}
