//! Handles the system calls that the recorder makes for a translated program.

use super::Session;
use super::translated::{TranslatedThread, translated_thread};
use crate::attributes::{self, AttributeCall};
use crate::code;
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::syscall_filter;
use crate::thread::RunState;
use crate::translate::foreign_calls;
use backtrail_bundle::core::Registers;

impl Session<'_> {
    /// Handles the completion of a system call of a thread.
    pub(super) fn after_syscall(
        &mut self,
        tid: RawTid,
        number: u64,
        before: &Registers,
        now: &Registers,
    ) -> Result<()> {
        let failed = (now.rax as i64) < 0 && now.rax as i64 >= -4095;
        let Some(TranslatedThread { pid, translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(());
        };
        let is_return = number == libc::SYS_rt_sigreturn as u64;
        if let Some(call) = translated.take_signal_call()
            && (is_return || !failed || call.is_wait())
        {
            self.note_signal_call(tid, call);
        }
        if failed || is_return {
            return Ok(());
        }
        let call = Registers {
            rax: number,
            ..*before
        };
        if let Some(process) = self.processes.get_mut(&pid)
            && self.settings.standard_error
        {
            process.standard_error.add_write(pid, &call, now.rax);
        }
        if syscall_filter::depends_on_addresses(pid, &call) {
            self.make_calls_in_place(tid);
        }
        if let Some(call) = AttributeCall::read(&call) {
            return self.after_attribute_call(tid, call, now);
        }
        self.after_mapping_call(tid, number, before, now)
    }

    /// Makes every system call of a process at its original address, because the kernel's answer
    /// depends on it.
    fn make_calls_in_place(&mut self, tid: RawTid) {
        if let Some(TranslatedThread { pid, translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        {
            translated.space.borrow_mut().intercept_all();
            self.process_states.entry(pid).or_default().filters_addresses = true;
        }
    }

    /// Handles a completed call that sets or reads the dumpable attribute, and corrects its result.
    pub(super) fn after_attribute_call(
        &mut self,
        tid: RawTid,
        call: AttributeCall,
        now: &Registers,
    ) -> Result<()> {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return Ok(());
        };
        if !self.settings.emulates_dumpable {
            return Ok(());
        }
        let state = self.process_states.entry(pid).or_default();
        match call {
            AttributeCall::SetDumpable(0) => {
                if state.dumpable.replace(0).is_none() {
                    self.note_once(attributes::undumpable_note(pid, call));
                }
                Ok(())
            }
            AttributeCall::SetDumpable(_) => {
                state.dumpable = None;
                Ok(())
            }
            AttributeCall::GetDumpable => match state.dumpable {
                Some(rax) => ptrace::set_registers(tid, &Registers { rax, ..*now }),
                None => Ok(()),
            },
            AttributeCall::SetCredentials => {
                if code::read_code(tid, now.rip, &mut [0]) == 0 {
                    self.keep_readable(tid, pid, now);
                }
                Ok(())
            }
        }
    }

    /// Clears the dumpable attribute of a process that the recorder has kept dumpable, when it is
    /// released.
    pub(super) fn restore_dumpable(&mut self, pid: RawTid) {
        let is_kept = self
            .process_states
            .get_mut(&pid)
            .is_some_and(|state| state.dumpable.take().is_some());
        let tid = self.tids(|thread| thread.pid == pid && thread.run == RunState::Stopped);
        let (true, Some(tid)) = (is_kept, tid.first().copied()) else {
            return;
        };
        let cleared = match translated_thread(&mut self.threads, &self.encoders, tid) {
            Some(TranslatedThread { translated, .. }) => translated.clear_dumpable(),
            None => foreign_calls::clear_dumpable(tid),
        };
        if let Err(error) = cleared {
            self.notes.push(format!("process {pid} stays dumpable: {error}"));
        }
    }

    /// Makes a process dumpable again, whose memory cannot be read after a change of credentials.
    fn keep_readable(&mut self, tid: RawTid, pid: RawTid, now: &Registers) {
        let kept = match translated_thread(&mut self.threads, &self.encoders, tid) {
            Some(TranslatedThread { translated, .. }) => translated.keep_dumpable(),
            None => foreign_calls::keep_dumpable(tid, now.rip),
        };
        match kept {
            Ok(dumpable) => {
                self.process_states.entry(pid).or_default().dumpable = Some(dumpable);
                self.note_once(attributes::undumpable_note(pid, AttributeCall::SetCredentials));
            }
            Err(error) => self.note_once(format!(
                "the memory of process {pid} cannot be read after it changed its credentials: {error}"
            )),
        }
    }
}
