//! The x87 instruction pointer: in the cache it is the address of a copy, and the program must see
//! that of its own instruction.

use super::{Translated, operands};
use crate::ptrace;
use crate::remote;
use crate::translate::block::x87_pointer;
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use iced_x86::Mnemonic;

/// `NT_PRFPREG` (`linux/elf.h`): the state in the format of FXSAVE64.
const FLOATING_POINT: u32 = 2;
/// The offset of the instruction pointer in this format.
const POINTER: usize = 8;

impl Translated {
    /// Replaces the pointer in the registers of a stopped thread.
    pub(super) fn correct_x87_pointer(&self) {
        let mut state = ptrace::register_set(self.tid, FLOATING_POINT);
        let Some(place) = state.get_mut(POINTER..POINTER + 8) else {
            return;
        };
        let stored = place
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
        if stored == 0 {
            return;
        }
        if let Some(ip) = self.space.borrow().cache.program_address(stored) {
            place.copy_from_slice(&ip.to_le_bytes());
            // A thread that was killed in the meantime needs no registers.
            let _ = ptrace::set_register_set(self.tid, FLOATING_POINT, &state);
        }
    }

    /// Replaces the pointer in the registers if the instruction at `ip` stores it. This instruction
    /// executes at its original address next.
    pub(super) fn correct_x87_pointer_before(&self, ip: u64) {
        if x87_pointer(&operands::decode(self.pid, ip)).is_some() {
            self.correct_x87_pointer();
        }
    }

    /// Replaces the pointer that the instruction at `ip` has stored. `registers` are those of the
    /// program.
    pub(super) fn correct_stored_x87_pointer(&self, ip: u64, registers: &Registers) {
        let instruction = operands::decode(self.pid, ip);
        let Some(place) = x87_pointer(&instruction) else {
            return;
        };
        let is_xsave = !matches!(
            instruction.mnemonic(),
            Mnemonic::Fnstenv
                | Mnemonic::Fnsave
                | Mnemonic::Fstenv
                | Mnemonic::Fsave
                | Mnemonic::Fxsave
                | Mnemonic::Fxsave64
        );
        // XSAVE stores the x87 state only if the lowest bit of EAX is set.
        if is_xsave && registers.rax & 1 == 0 {
            return;
        }
        let address = operands::address(&instruction, registers);
        let Some(at) = address.map(|address| address.wrapping_add(u64::from(place.offset))) else {
            return;
        };
        let mut stored = [0; 8];
        let Some(room) = stored.get_mut(..usize::from(place.size)) else {
            return;
        };
        if memory::read(self.pid, at, room) != room.len() {
            return;
        }
        let stored = u64::from_le_bytes(stored);
        let space = self.space.borrow();
        let found = if place.size == 8 {
            space.cache.program_address(stored)
        } else {
            space.cache.program_address_of_low_half(stored as u32)
        };
        if let Some(ip) = found {
            let bytes = ip.to_le_bytes();
            remote::write(
                self.pid,
                at,
                bytes.get(..usize::from(place.size)).unwrap_or_default(),
            );
        }
    }
}
