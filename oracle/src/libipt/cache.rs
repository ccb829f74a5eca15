//! Caches the control-flow class of instructions, which libipt reports only roughly.

use super::ffi::PtInsn;
use backtrail_pt::instruction::{self, Mode};
use backtrail_pt::{Avma, Cofi};

/// Slots by address; a power of two.
const SLOTS: usize = 1 << 14;

/// A direct-mapped cache from an address and its bytes to a [`Cofi`].
#[derive(Default)]
pub(super) struct CofiCache {
    slots: Vec<Option<CofiSlot>>,
}

struct CofiSlot {
    pc: Avma,
    bytes: [u8; 15],
    mode: Option<Mode>,
    cofi: Cofi,
}

impl CofiCache {
    pub fn of(&mut self, instruction: &PtInsn) -> Cofi {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, || None);
        }
        let (pc, bytes, mode) = (instruction.pc(), instruction.bytes(), instruction.mode());
        let Some(slot) = self.slots.get_mut(pc.0 as usize % SLOTS) else {
            return Cofi::Sequential;
        };
        match slot {
            Some(slot) if slot.pc == pc && slot.bytes == bytes && slot.mode == mode => slot.cofi,
            _ => {
                let cofi = classify(instruction);
                *slot = Some(CofiSlot {
                    pc,
                    bytes,
                    mode,
                    cofi,
                });
                cofi
            }
        }
    }
}

/// Decodes the instruction. If the two decoders disagree, libipt's coarse class is used, because
/// its flow follows it.
fn classify(instruction: &PtInsn) -> Cofi {
    let bytes = instruction.bytes();
    let code = bytes.get(..usize::from(instruction.len())).unwrap_or(&bytes);
    let read = instruction
        .mode()
        .and_then(|mode| instruction::decode(code, instruction.pc(), mode).ok());
    read.filter(|read| read.len == instruction.len())
        .map_or_else(|| instruction.coarse(), |read| read.cofi)
}
