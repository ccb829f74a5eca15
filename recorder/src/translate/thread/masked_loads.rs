//! Loads under a mask whose operand translated code cannot copy.

use super::{InstructionState, SpilledRegisters, ThreadState, Translated, TrapAction, operands};
use crate::error::Result;
use crate::translate::encoder::EncoderPool;
use backtrail_bundle::core::Registers;
use iced_x86::Register;

impl Translated {
    /// Steps a load under a mask natively that has faulted in the stub that copies its operand.
    /// The program's fault has the address of an enabled lane. Returns `None` for other faults.
    pub(crate) fn on_masked_fault(
        &mut self,
        registers: &Registers,
        encoders: &EncoderPool,
    ) -> Result<Option<TrapAction>> {
        if self.values.is_none() || !matches!(self.state, ThreadState::InCache) {
            return Ok(None);
        }
        let entry = self.space.borrow().cache.translation_at(registers.rip);
        let Some(entry) = entry else { return Ok(None) };
        let is_in_stub =
            matches!(entry.state, InstructionState::Before(spilled) if spilled != SpilledRegisters::NONE);
        if !is_in_stub || operands::decode(self.pid, entry.ip).op_mask() == Register::None {
            return Ok(None);
        }
        let mut registers = self.restore_program_state(registers, encoders)?;
        let ip = registers.rip;
        self.step_natively(ip, &mut registers).map(Some)
    }

    /// Stores the operand under a mask of the instruction at `ip` on the stage.
    pub(super) fn stage_masked(&mut self, ip: u64, slot: u32, registers: &Registers, encoders: &EncoderPool) {
        match self.predict(ip, registers) {
            Some(loaded) => self.region.write_stage(slot, &loaded),
            None => self.end_values(encoders),
        }
    }
}
