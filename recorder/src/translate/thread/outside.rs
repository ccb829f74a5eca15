//! What a thread does outside the cache: system calls that the recorder makes for it, and single
//! instructions where the program has them.

use super::births::restore_arguments;
use super::{SYSCALL_LEN, State, Translated, Trapped};
use crate::clock;
use crate::error::Result;
use crate::ptrace;
use crate::translate::event::{Event, NO_OUTCOMES};
use crate::translate::scribe::Scribe;
use backtrail_bundle::core::Registers;
use backtrail_pt::cofi::Cofi;

impl Translated {
    /// The recorder makes the system call before `next`.
    pub(super) fn begin_call(
        &mut self,
        registers: &Registers,
        next: u64,
        scribe: &Scribe,
    ) -> Result<Trapped> {
        let number = registers.rax;
        let mut registers = Registers {
            rip: next - SYSCALL_LEN,
            ..*registers
        };
        self.log(Event::Syscall { time: clock::now().0 }, scribe);
        if number == libc::SYS_rseq as u64 {
            // Restartable sequences name addresses that nobody executes here: libraries do without.
            registers.rax = (-i64::from(libc::ENOSYS)) as u64;
            (registers.rip, registers.rcx, registers.r11) = (next, next, registers.rflags);
            self.leave(&mut registers)?;
            self.state = State::True;
            return Ok(Trapped::True);
        }
        let before = Box::new(registers);
        registers.rip = self.space.borrow().gadget.syscall;
        self.clear_hiding(number, &mut registers);
        self.leave(&mut registers)?;
        self.state = State::Special {
            number,
            next,
            registers: before,
        };
        Ok(Trapped::Step)
    }

    /// The system call that the recorder made has come back: the thread is in its true state, and this
    /// was the call.
    pub(crate) fn end_call(&mut self, registers: &Registers) -> Result<Option<(u64, Registers, Registers)>> {
        let State::Special {
            number,
            next,
            registers: before,
        } = &self.state
        else {
            return Ok(None);
        };
        let behind = self.space.borrow().gadget.behind();
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
        self.state = State::True;
        Ok(Some(call))
    }

    /// A native step, or the delivery of a signal, is through. `handler`: the thread stands at a handler.
    pub(crate) fn on_stepped(&mut self, registers: &Registers, handler: bool, scribe: &Scribe) -> bool {
        let State::Native { ip, code } = self.state else {
            return false;
        };
        self.state = State::True;
        self.gs_base = registers.gs_base;
        let to = registers.rip;
        if handler {
            return true;
        }
        let time = clock::now().0;
        // Executed where the stream may have been interrupted for a signal that was dropped then.
        self.log(Event::Enter { ip, time }, scribe);
        let Some(code) = code else {
            self.log(Event::Lost(to), scribe);
            return true;
        };
        let next = ip + u64::from(code.instruction.len);
        match code.instruction.cofi {
            Cofi::FarTransfer => self.log(Event::Leave { time }, scribe),
            Cofi::Conditional { target } if to == target.0 || to == next => {
                self.log(Event::Outcomes(0b10 | u8::from(to == target.0)), scribe);
            }
            Cofi::Sequential if to == next => {}
            Cofi::Sequential if code.instruction.repeats && to == ip => {}
            Cofi::Jump { target } | Cofi::Call { target } if to == target.0 => {}
            Cofi::IndirectJump | Cofi::IndirectCall | Cofi::Return => {
                let outcomes = NO_OUTCOMES;
                self.log(Event::Target { outcomes, target: to }, scribe);
            }
            _ => self.log(Event::Lost(to), scribe),
        }
        true
    }

    /// A breakpoint instruction of the program was executed.
    pub(crate) fn on_breakpoint(&mut self, registers: &Registers, scribe: &Scribe) -> bool {
        let State::Native { ip, code: Some(code) } = self.state else {
            return false;
        };
        if !code.is_breakpoint() || registers.rip == ip {
            return false;
        }
        self.log(Event::Leave { time: clock::now().0 }, scribe);
        self.state = State::True;
        true
    }
}
