//! Writes of the program to code that was translated.

use super::{State, Translated, Trapped};
use crate::PAGE;
use crate::error::Result;
use crate::ptrace;
use crate::translate::scribe::Scribe;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::{Registers, SigInfo};

impl Translated {
    /// Handles the fault of a write to code that was translated; `None`: it was no such fault.
    pub(crate) fn on_write(
        &mut self,
        info: &SigInfo,
        registers: &Registers,
        scribe: &Scribe,
    ) -> Result<Option<Trapped>> {
        /// What follows a store in its block lies this near.
        const NEAR: u64 = 2 * PAGE;
        /// `si_code`: the mapping does not allow it (`asm-generic/siginfo.h`).
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
            space.expose(&mut tracee, address.0)?;
            let registers = Registers {
                orig_rax: u64::MAX,
                ..*registers
            };
            ptrace::set_registers(self.tid, &registers)?;
        } else if !space.is_exposed(address.0) {
            return Ok(None);
        }
        // It may have been about to change what comes next in its own block: that is looked at anew behind it.
        let ip = match self.state {
            State::Cached => space.cache.place(registers.rip).map(|place| place.ip),
            _ => None,
        };
        drop(space);
        let near = |ip: u64| (ip & !(PAGE - 1)..ip.saturating_add(NEAR)).contains(&address.0);
        if ip.is_some_and(near) {
            let mut registers = self.settle(registers, scribe)?;
            let ip = registers.rip;
            return self.stand_at(ip, &mut registers).map(Some);
        }
        Ok(Some(match self.state {
            State::Native { .. } | State::Special { .. } => Trapped::Step,
            State::True => Trapped::True,
            State::Cached | State::Closed => Trapped::GoOn,
        }))
    }

    /// Something was mapped, which may be code that was translated, to be written at another place.
    pub(crate) fn close_ways(&mut self, registers: &Registers) -> Result<()> {
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
        space.close_new(&mut tracee, self.pid)?;
        drop(space);
        let registers = Registers {
            orig_rax: u64::MAX,
            ..*registers
        };
        ptrace::set_registers(self.tid, &registers)
    }

    /// Whether a fault is one that [`Self::on_write`] handles.
    pub(crate) fn is_write(&self, info: &SigInfo) -> bool {
        info.address()
            .is_some_and(|address| self.space.borrow().is_protected(address.0))
    }
}
