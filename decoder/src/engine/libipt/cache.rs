//! Remembers the change of flow of instructions, which libipt tells only roughly.

use super::ffi::Instruction;
use backtrail_pt::instruction::{self, Mode};
use backtrail_pt::{Avma, Cofi};

/// Slots by address; a power of two.
const SLOTS: usize = 1 << 14;

/// A direct-mapped cache from an address and the bytes there to a [`Cofi`].
#[derive(Default)]
pub(super) struct CofiCache {
    slots: Vec<Option<Slot>>,
}

struct Slot {
    pc: Avma,
    bytes: [u8; 15],
    mode: Option<Mode>,
    cofi: Cofi,
}

impl CofiCache {
    pub fn of(&mut self, instruction: &Instruction) -> Cofi {
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
                *slot = Some(Slot {
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

/// Reads the instruction itself; where the two decoders see different instructions, libipt's coarse class
/// decides, for it is what the flow follows.
fn classify(instruction: &Instruction) -> Cofi {
    let bytes = instruction.bytes();
    let code = bytes.get(..usize::from(instruction.len())).unwrap_or(&bytes);
    let read = instruction
        .mode()
        .and_then(|mode| instruction::decode(code, instruction.pc(), mode).ok());
    read.filter(|read| read.len == instruction.len())
        .map_or_else(|| instruction.coarse(), |read| read.cofi)
}
