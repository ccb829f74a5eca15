//! System calls that concern the recorder itself: they claim its memory, or trace processes.

use super::{SYSCALL_LEN, ThreadState, Translated, TrapAction};
use crate::clock;
use crate::error::Result;
use crate::translate::encoder::EncoderPool;
use crate::translate::event::LogEvent;
use crate::translate::region::Region;
use crate::translate::relocation::claimed_ranges;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::Registers;
use std::sync::Arc;

impl Translated {
    /// Returns whether a system call concerns the recorder.
    fn concerns_recorder(&self, registers: &Registers) -> bool {
        [libc::SYS_ptrace, libc::SYS_wait4].contains(&(registers.rax as libc::c_long))
            || self.claims_areas(registers)
    }

    /// Returns whether a system call needs addresses of the recorder's memory.
    pub(crate) fn claims_areas(&self, registers: &Registers) -> bool {
        self.space.borrow().is_claimed_by(registers)
    }

    /// Begins an intercepted system call, unless the session must handle it first.
    pub(super) fn begin_or_report_syscall(
        &mut self,
        registers: &mut Registers,
        next: u64,
        encoders: &EncoderPool,
    ) -> Result<TrapAction> {
        if !self.concerns_recorder(registers) {
            return self.begin_syscall(registers, next, encoders);
        }
        self.leave(registers)?;
        self.correct_x87_pointer();
        self.state = ThreadState::ProgramState;
        Ok(TrapAction::AtCall)
    }

    /// Completes a system call that the recorder has made. `registers` are those of the call.
    pub(crate) fn complete_call(
        &mut self,
        registers: &Registers,
        result: i64,
        encoders: &EncoderPool,
    ) -> Result<()> {
        let next = registers.rip.wrapping_add(SYSCALL_LEN);
        self.log(LogEvent::Syscall { time: clock::now().0 }, encoders);
        let mut registers = Registers {
            rip: next,
            rax: result as u64,
            rcx: next,
            r11: registers.rflags,
            ..*registers
        };
        self.leave(&mut registers)?;
        self.log_call(&registers);
        self.state = ThreadState::ProgramState;
        Ok(())
    }

    /// Returns whether the thread executes code in the cache, or is stopped there.
    pub(crate) fn is_in_cache(&self) -> bool {
        matches!(self.state, ThreadState::InCache)
    }

    /// Returns the region of the thread.
    pub(crate) fn shared_region(&self) -> SharedRegion {
        SharedRegion(Arc::clone(&self.region))
    }

    /// Moves the recorder's memory away from the addresses that a system call needs. `others` are
    /// the regions of the other threads in this memory.
    pub(crate) fn vacate(&mut self, registers: &Registers, others: Vec<SharedRegion>) -> Result<()> {
        let mut space = self.space.borrow_mut();
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: space.gadget,
            registers: *registers,
            held: &mut self.held,
        };
        let others = others.into_iter().map(|SharedRegion(region)| region);
        let regions: Vec<Arc<Region>> = std::iter::once(Arc::clone(&self.region)).chain(others).collect();
        let moved = space.vacate(&mut tracee, self.memory, &regions, &claimed_ranges(registers));
        drop(space);
        self.leave(&mut registers.clone())?;
        moved
    }
}

/// The region of a thread, as the session sees it.
#[derive(Debug)]
pub(crate) struct SharedRegion(Arc<Region>);
