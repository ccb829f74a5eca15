//! The program's own trap flag: while it is set, the program gets a SIGTRAP after each instruction.

use super::{SYSCALL_LEN, ThreadState, Translated, TrapAction};
use crate::code::Code;
use crate::error::Result;
use crate::signal_state::TRAP_FLAG;
use crate::translate::encoder::EncoderPool;
use backtrail_bundle::core::Registers;
use backtrail_pt::Avma;

impl Translated {
    /// Executes the next instruction at its original address. The thread has the program's
    /// registers, and is logged in user code.
    pub(super) fn execute_outside(
        &mut self,
        registers: &mut Registers,
        encoders: &EncoderPool,
    ) -> Result<TrapAction> {
        let ip = registers.rip;
        match Code::read(self.pid, Avma(ip)) {
            // The processor clears the trap flag before the system call, so the call does not trap.
            Some(code) if code.is_syscall() => {
                self.begin_or_report_syscall(registers, ip.wrapping_add(SYSCALL_LEN), encoders)
            }
            // After a step over POPF, the kernel takes the flag of the step for the program's own.
            Some(code) if code.pops_flags() && registers.rflags & TRAP_FLAG == 0 => self.pop_flags(registers),
            _ => self.step_natively(ip, registers),
        }
    }

    /// Executes a POPF that sets the trap flag.
    ///
    /// The first trap follows the next instruction. A step over POPF would trap before it.
    pub(super) fn pop_flags(&mut self, registers: &mut Registers) -> Result<TrapAction> {
        let ip = registers.rip;
        let code = Code::read(self.pid, Avma(ip));
        let Some(popped) = code.and_then(|code| code.popped(self.pid, registers)) else {
            return self.step_natively(ip, registers);
        };
        *registers = popped;
        self.leave(registers)?;
        self.state = ThreadState::ProgramState;
        Ok(TrapAction::InProgramState)
    }

    /// Returns and clears whether the trap of the last step is the program's own.
    pub(crate) fn take_own_trap(&mut self) -> bool {
        std::mem::take(&mut self.has_own_trap)
    }
}
