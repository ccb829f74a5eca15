//! Handles self-modifying code: writes of the program to translated code.

use super::{ThreadState, Translated, TrapAction};
use crate::PAGE;
use crate::error::Result;
use crate::ptrace;
use crate::translate::encoder::EncoderPool;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::{Registers, SigInfo};

impl Translated {
    /// Handles the fault of a write to translated code. Returns `None` for other faults.
    pub(crate) fn on_write(
        &mut self,
        info: &SigInfo,
        registers: &Registers,
        encoders: &EncoderPool,
    ) -> Result<Option<TrapAction>> {
        /// The maximum distance between a store and the rest of its block.
        const NEAR: u64 = 2 * PAGE;
        /// `si_code`: the protection of the mapping does not allow the access
        /// (`asm-generic/siginfo.h`).
        const SEGV_ACCERR: i32 = 2;
        let address = info.address().filter(|_| info.code() == SEGV_ACCERR);
        let mut space = self.space.borrow_mut();
        let Some(address) = address else {
            return Ok(None);
        };
        if space.is_protected(address.0) {
            let mut tracee = Tracee {
                tid: self.tid,
                gadget: space.gadget,
                registers: *registers,
                held: &mut self.held,
            };
            space.unprotect(&mut tracee, address.0)?;
            let registers = Registers {
                orig_rax: u64::MAX,
                ..*registers
            };
            ptrace::set_registers(self.tid, &registers)?;
        } else if !space.is_unprotected(address.0) {
            return Ok(None);
        }
        // The write may change the rest of its own block, so that code is translated again after
        // the write.
        let ip = match self.state {
            ThreadState::InCache => space.cache.translation_at(registers.rip).map(|entry| entry.ip),
            _ => None,
        };
        drop(space);
        let near = |ip: u64| (ip & !(PAGE - 1)..ip.saturating_add(NEAR)).contains(&address.0);
        if ip.is_some_and(near) {
            let mut registers = self.restore_program_state(registers, encoders)?;
            let ip = registers.rip;
            return self.step_natively(ip, &mut registers).map(Some);
        }
        Ok(Some(match self.state {
            ThreadState::Native { .. } | ThreadState::InSyscall { .. } => TrapAction::Step,
            ThreadState::ProgramState => TrapAction::InProgramState,
            ThreadState::InCache | ThreadState::Closed => TrapAction::Continue,
        }))
    }

    /// Handles a new mapping that may be a writable alias of translated code.
    pub(crate) fn protect_new_aliases(&mut self, registers: &Registers) -> Result<()> {
        let mut space = self.space.borrow_mut();
        if !space.may_be_mapped_twice() {
            return Ok(());
        }
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        space.protect_new_aliases(&mut tracee, self.pid)?;
        drop(space);
        let registers = Registers {
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)
    }

    /// Returns whether [`Self::on_write`] handles a fault.
    pub(crate) fn is_write(&self, info: &SigInfo) -> bool {
        info.address()
            .is_some_and(|address| self.space.borrow().is_protected(address.0))
    }
}
