//! Execution outside the cache: system calls that the recorder makes, and single instructions at
//! their original addresses.

use super::clone_calls::restore_arguments;
use super::{SYSCALL_LEN, ThreadState, Translated, TrapAction};
use crate::clock;
use crate::error::Result;
use crate::ptrace;
use crate::translate::encoder::EncoderPool;
use crate::translate::event::{LogEvent, NO_OUTCOMES};
use backtrail_bundle::core::Registers;
use backtrail_pt::cofi::Cofi;

impl Translated {
    /// Starts an intercepted system call, whose next instruction is at `next`.
    pub(super) fn begin_syscall(
        &mut self,
        registers: &Registers,
        next: u64,
        encoders: &EncoderPool,
    ) -> Result<TrapAction> {
        let number = registers.rax;
        let mut registers = Registers {
            rip: next - SYSCALL_LEN,
            ..*registers
        };
        self.log(LogEvent::Syscall { time: clock::now().0 }, encoders);
        if number == libc::SYS_rseq as u64 {
            // Restartable sequences name addresses that do not execute in the cache. Libraries work
            // without them.
            registers.rax = (-i64::from(libc::ENOSYS)) as u64;
            (registers.rip, registers.rcx, registers.r11) = (next, next, registers.rflags);
            self.leave(&mut registers)?;
            self.state = ThreadState::ProgramState;
            return Ok(TrapAction::InProgramState);
        }
        let before = Box::new(registers);
        registers.rip = self.space.borrow().gadget.syscall;
        self.clear_hiding(number, &mut registers);
        self.leave(&mut registers)?;
        self.state = ThreadState::InSyscall {
            number,
            next,
            registers: before,
        };
        Ok(TrapAction::Step)
    }

    /// Handles the completion of an intercepted system call. Returns its number, and the registers
    /// before and after it.
    pub(crate) fn end_syscall(
        &mut self,
        registers: &Registers,
    ) -> Result<Option<(u64, Registers, Registers)>> {
        let ThreadState::InSyscall {
            number,
            next,
            registers: before,
        } = &self.state
        else {
            return Ok(None);
        };
        let behind = self.space.borrow().gadget.after_syscall();
        let (number, mut now) = (*number, *registers);
        if number != libc::SYS_rt_sigreturn as u64 {
            if registers.rip != behind {
                return Ok(None);
            }
            (now.rip, now.rcx) = (*next, *next);
        }
        restore_arguments(number, before, &mut now);
        let call = (number, **before, now);
        self.gs_base = now.gs_base;
        ptrace::set_registers(self.tid, &now)?;
        self.state = ThreadState::ProgramState;
        Ok(Some(call))
    }

    /// Handles the end of a native step or of a signal delivery. `handler` says that the thread is
    /// at the start of a handler.
    pub(crate) fn on_stepped(
        &mut self,
        registers: &Registers,
        handler: bool,
        encoders: &EncoderPool,
    ) -> bool {
        let ThreadState::Native { ip, code } = self.state else {
            return false;
        };
        self.state = ThreadState::ProgramState;
        self.gs_base = registers.gs_base;
        let to = registers.rip;
        if handler {
            return true;
        }
        let time = clock::now().0;
        // The stream may have been interrupted for a signal that was then dropped.
        self.log(LogEvent::Enter { ip, time }, encoders);
        let Some(code) = code else {
            self.log(LogEvent::Lost(to), encoders);
            return true;
        };
        let next = ip + u64::from(code.instruction.len);
        match code.instruction.cofi {
            Cofi::FarTransfer => self.log(LogEvent::Leave { time }, encoders),
            Cofi::Conditional { target } if to == target.0 || to == next => {
                self.log(LogEvent::Outcomes(0b10 | u8::from(to == target.0)), encoders);
            }
            Cofi::Sequential if to == next => {}
            Cofi::Sequential if code.instruction.repeats && to == ip => {}
            Cofi::Jump { target } | Cofi::Call { target } if to == target.0 => {}
            Cofi::IndirectJump | Cofi::IndirectCall | Cofi::Return => {
                let outcomes = NO_OUTCOMES;
                self.log(LogEvent::Target { outcomes, target: to }, encoders);
            }
            _ => self.log(LogEvent::Lost(to), encoders),
        }
        true
    }

    /// Handles the trap of a breakpoint instruction of the program.
    pub(crate) fn on_breakpoint(&mut self, registers: &Registers, encoders: &EncoderPool) -> bool {
        let ThreadState::Native { ip, code: Some(code) } = self.state else {
            return false;
        };
        if !code.is_breakpoint() || registers.rip == ip {
            return false;
        }
        self.log(LogEvent::Leave { time: clock::now().0 }, encoders);
        self.state = ThreadState::ProgramState;
        true
    }
}
