//! Execution outside the cache: system calls that the recorder makes, and single instructions at
//! their original addresses.

use super::clone_calls::{self, restore_arguments};
use super::{SYSCALL_LEN, ThreadState, Translated, TrapAction};
use crate::attributes::AttributeCall;
use crate::clock;
use crate::code::{hide_frame_trap_flag, hide_pushed_trap_flag};
use crate::error::Result;
use crate::ptrace;
use crate::signal_state::{self, SignalCall, TRAP_FLAG};
use crate::stepped::will_restart;
use crate::translate::encoder::EncoderPool;
use crate::translate::event::{LogEvent, NO_OUTCOMES};
use backtrail_bundle::core::Registers;
use backtrail_pt::cofi::Cofi;

impl Translated {
    /// Starts an intercepted system call, whose next instruction is at `next`.
    pub(crate) fn begin_syscall(
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
            self.log_call(&registers);
            self.state = ThreadState::ProgramState;
            return Ok(TrapAction::InProgramState);
        }
        let before = Box::new(registers);
        self.signal_call = SignalCall::read(self.pid, &registers);
        self.restores_trap_flag = signal_state::restores_trap_flag(self.pid, &registers);
        self.clear_hiding(number, &mut registers);
        if self.space.borrow().keeps_dumpable {
            AttributeCall::keep_dumpable(&mut registers);
        }
        self.leave(&mut registers)?;
        if clone_calls::starts_thread(number) {
            // The cache of a child has other addresses.
            self.correct_x87_pointer();
        }
        self.state = ThreadState::InSyscall {
            number,
            next,
            registers: before,
        };
        Ok(TrapAction::Step)
    }

    /// Handles the completion of an intercepted system call. Returns its number, and the registers
    /// before and after it.
    ///
    /// The kernel first delivers a signal that has interrupted the call, or restarts it.
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
        if will_restart(registers) {
            return Ok(None);
        }
        let (number, mut now) = (*number, *registers);
        self.space.borrow_mut().call_ended(self.tid);
        if number != libc::SYS_rt_sigreturn as u64 {
            if registers.rip != *next {
                return Ok(None);
            }
            now.rcx = *next;
            // SYSCALL has saved the trap flag of the step.
            now.r11 &= !TRAP_FLAG | before.rflags;
        }
        if std::mem::take(&mut self.restores_trap_flag) {
            // The kernel takes the restored flag for that of the step, and hides it.
            now.rflags |= TRAP_FLAG;
        }
        restore_arguments(number, before, &mut now);
        let call = (number, **before, now);
        self.gs_base = now.gs_base;
        ptrace::set_registers(self.tid, &now)?;
        if number != libc::SYS_rt_sigreturn as u64 {
            self.log_call(&now);
        }
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
        let ThreadState::Native {
            ip,
            code,
            has_trap_flag,
        } = self.state
        else {
            return false;
        };
        self.state = ThreadState::ProgramState;
        self.gs_base = registers.gs_base;
        let to = registers.rip;
        if handler {
            self.end_values(encoders);
            if !has_trap_flag {
                // The kernel may have taken the flag of the step for the program's own.
                hide_frame_trap_flag(self.pid, registers.rsp);
            }
            return true;
        }
        self.has_own_trap = has_trap_flag;
        let time = clock::now().0;
        // The stream may have been interrupted for a signal that was then dropped.
        self.log(LogEvent::Enter { ip, time }, encoders);
        let Some(code) = code else {
            self.end_values(encoders);
            self.log(LogEvent::Lost(to), encoders);
            return true;
        };
        if code.pushes_flags() && !has_trap_flag {
            hide_pushed_trap_flag(self.pid, registers.rsp);
        }
        self.end_step(registers, encoders);
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
        let ThreadState::Native {
            ip, code: Some(code), ..
        } = self.state
        else {
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
