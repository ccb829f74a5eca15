//! Signals of the program that arrived while the recorder used the thread.

use super::{ThreadState, Translated, operands};
use crate::ptrace;
use crate::signal_state::SignalCall;
use backtrail_bundle::core::{Registers, SigInfo};
use backtrail_pt::Avma;

impl Translated {
    /// Sends held signals again, so that they arrive before the thread executes anything else.
    pub(crate) fn resend_held(&mut self) {
        for info in self.held.drain(..) {
            ptrace::send(self.pid, self.tid, info.signal());
            self.sent.push(info);
        }
    }

    /// Returns the original siginfo of a signal that was held and sent again.
    pub(crate) fn original_info(&mut self, info: SigInfo) -> SigInfo {
        let Some(first) = self.sent.iter().position(|sent| sent.signal() == info.signal()) else {
            return info;
        };
        let came = self.sent.remove(first);
        // An earlier signal with this number was pending, and represents both.
        if info.code() != libc::SI_TKILL || ptrace::set_siginfo(self.tid, &came).is_err() {
            return info;
        }
        came
    }

    /// Returns the information of a fault whose own was not queued, because the program had sent
    /// SIGSEGV to the thread before.
    pub(crate) fn fault_info(&self, sent: &SigInfo, registers: &Registers) -> SigInfo {
        /// `si_code` of an access that a mapping does not permit.
        const SEGV_ACCERR: i32 = 2;
        let instruction = operands::decode(self.pid, registers.rip);
        match operands::address(&instruction, registers) {
            Some(address) => SigInfo::new(libc::SIGSEGV, SEGV_ACCERR, Avma(address)),
            None => *sent,
        }
    }

    /// Returns the current system call if it waits with another signal mask.
    pub(crate) fn current_wait(&self) -> Option<SignalCall> {
        let is_in_call = matches!(self.state, ThreadState::InSyscall { .. });
        self.signal_call.filter(|call| is_in_call && call.is_wait())
    }

    /// Returns and clears the effect of the last system call on the signal state.
    pub(crate) fn take_signal_call(&mut self) -> Option<SignalCall> {
        self.signal_call.take()
    }
}
