//! System calls that the recorder makes in a stopped thread, to restore or read its state.

use super::Translated;
use crate::error::Result;
use crate::ptrace;
use crate::signal_state::{SIGNAL_SET_SIZE, SignalAction};
use crate::stepped::restarted;
use crate::translate::tracee::Tracee;
use backtrail_bundle::core::SigInfo;
use backtrail_process::status;

impl Translated {
    /// Restores a disposition. The registers of the stopped thread stay as they are.
    pub(crate) fn restore_action(&mut self, signal: i32, action: &SignalAction) -> Result<()> {
        let at = self.region.set_action(action);
        self.call(
            libc::SYS_rt_sigaction,
            [signal as u64, at, 0, SIGNAL_SET_SIZE, 0, 0],
        )
        .map(drop)
    }

    /// Returns the disposition of a signal.
    pub(crate) fn read_action(&mut self, signal: i32) -> Result<SignalAction> {
        let at = self.region.set_action(&SignalAction::default());
        self.call(
            libc::SYS_rt_sigaction,
            [signal as u64, 0, at, SIGNAL_SET_SIZE, 0, 0],
        )?;
        Ok(self.region.action())
    }

    /// Sends a signal to the thread again, with the same information.
    pub(crate) fn queue(&mut self, info: &SigInfo) -> Result<()> {
        let at = self.region.set_signal(info);
        let [pid, tid] = status::own_ids(self.pid, self.tid);
        self.call(
            libc::SYS_rt_tgsigqueueinfo,
            [pid, tid, info.signal() as u64, at, 0, 0],
        )
        .map(drop)
    }

    /// Sets the dumpable attribute, and returns its value before.
    pub(crate) fn keep_dumpable(&mut self) -> Result<u64> {
        let dumpable = self.call(libc::SYS_prctl, [libc::PR_GET_DUMPABLE as u64, 0, 0, 0, 0, 0])?;
        self.call(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0, 0])?;
        Ok(dumpable)
    }

    /// Clears the dumpable attribute.
    pub(crate) fn clear_dumpable(&mut self) -> Result<()> {
        self.call(libc::SYS_prctl, [libc::PR_SET_DUMPABLE as u64, 0, 0, 0, 0, 0])
            .map(drop)
    }

    /// Makes a system call in the stopped thread, and restores its registers.
    fn call(&mut self, number: libc::c_long, arguments: [u64; 6]) -> Result<u64> {
        let registers = ptrace::registers(self.tid)?;
        let mut tracee = Tracee {
            tid: self.tid,
            gadget: self.region.gadget(),
            registers,
            held: &mut self.held,
        };
        let called = tracee.call(number, arguments);
        ptrace::set_registers(self.tid, &restarted(&registers))?;
        called
    }
}
