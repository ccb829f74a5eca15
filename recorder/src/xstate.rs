//! The registers of a thread, from its general registers and its XSAVE area.

use backtrail_bundle::core::Registers;
use backtrail_semantics::{State, flag};
use std::arch::x86_64::__cpuid_count;

/// The components by their bits in XCR0 (SDM, volume 1, section 13.1).
const AVX: usize = 2;
const MASKS: usize = 5;
const HIGH_256: usize = 6;
const HIGH_16: usize = 7;
/// The control bits of MXCSR. The others say what has happened.
const MXCSR_CONTROL: u32 = 0xffc0;
/// The place of MXCSR, of the vectors of SSE, and of the header with the components.
const MXCSR_AT: usize = 24;
const SSE_AT: usize = 160;
const HEADER_AT: usize = 512;

/// The layout of the XSAVE area of this processor.
#[derive(Clone, Debug)]
pub(crate) struct XState {
    offsets: [usize; 8],
}

impl XState {
    /// The note type of the register set: `NT_X86_XSTATE`.
    pub(crate) const NOTE: u32 = 0x202;

    /// Returns the layout of this processor.
    pub(crate) fn of_this_processor() -> Self {
        Self {
            offsets: std::array::from_fn(|component| {
                let component = u32::try_from(component).unwrap_or_default();
                __cpuid_count(0xd, component).ebx as usize
            }),
        }
    }

    /// Returns the registers. `None`: the area is too short.
    pub(crate) fn state(&self, registers: &Registers, area: &[u8]) -> Option<State> {
        let mut state = State {
            general: [
                registers.rax,
                registers.rcx,
                registers.rdx,
                registers.rbx,
                registers.rsp,
                registers.rbp,
                registers.rsi,
                registers.rdi,
                registers.r8,
                registers.r9,
                registers.r10,
                registers.r11,
                registers.r12,
                registers.r13,
                registers.r14,
                registers.r15,
            ],
            flags: registers.rflags & (flag::STATUS | flag::DIRECTION),
            bases: [registers.fs_base, registers.gs_base],
            ..State::default()
        };
        let number = |at: usize| Some(u64::from_le_bytes(*area.get(at..)?.first_chunk()?));
        let components = number(HEADER_AT)?;
        let mxcsr = u32::from_le_bytes(*area.get(MXCSR_AT..)?.first_chunk()?);
        state.mxcsr = mxcsr & MXCSR_CONTROL;
        let mut copy =
            |component: usize, start: usize, first: usize, count: usize, part: usize, size: usize| {
                // A component in its initial state is zero.
                if component > 1 && components >> component & 1 == 0 {
                    return Some(());
                }
                for number in 0..count {
                    let bytes = area.get(start + size * number..)?.get(..size)?;
                    state.vectors[first + number][part..part + size].copy_from_slice(bytes);
                }
                Some(())
            };
        copy(1, SSE_AT, 0, 16, 0, 16)?;
        copy(AVX, self.offsets[AVX], 0, 16, 16, 16)?;
        copy(HIGH_256, self.offsets[HIGH_256], 0, 16, 32, 32)?;
        copy(HIGH_16, self.offsets[HIGH_16], 16, 16, 0, 64)?;
        if components >> MASKS & 1 != 0 {
            for (at, mask) in state.masks.iter_mut().enumerate() {
                *mask = number(self.offsets[MASKS] + 8 * at)?;
            }
        }
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_found_by_their_offsets() {
        let xstate = XState {
            offsets: [0, 0, 576, 0, 0, 832, 896, 1408],
        };
        let mut area = vec![0; 2432];
        area[MXCSR_AT..MXCSR_AT + 4].copy_from_slice(&0x1fa1_u32.to_le_bytes());
        area[HEADER_AT] = 0xe7;
        area[SSE_AT + 16] = 1;
        area[576 + 16] = 2;
        area[832 + 8] = 3;
        area[896 + 32] = 4;
        area[1408] = 5;
        let registers = Registers {
            r9: 6,
            rflags: 0x346,
            ..Registers::default()
        };
        let state = xstate.state(&registers, &area).unwrap();
        let vector = &state.vectors[1];
        assert_eq!((vector[0], vector[16], vector[32]), (1, 2, 4));
        assert_eq!((state.masks[1], state.vectors[16][0]), (3, 5));
        assert_eq!((state.general[9], state.flags), (6, flag::ZERO | flag::PARITY));
        assert_eq!(state.mxcsr, 0x1f80);
        area[HEADER_AT] = 1;
        assert_eq!(xstate.state(&registers, &area).unwrap().masks[1], 0);
        area[HEADER_AT] = 0xe7;
        assert_eq!(xstate.state(&registers, &area[..600]), None);
    }
}
