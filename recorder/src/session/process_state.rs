//! The state of a process that the recorder's work would change, and its restoration.

use super::Session;
use super::translated::{TranslatedThread, translated_thread};
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::signal_state::{
    FORCED, HANDLER_ENTRY, SignalActions, SignalCall, SignalState, bit, has_mask_of_wait, is_sent,
};
use crate::stepped::will_restart;
use crate::thread::FollowMode;
use crate::translate::foreign_calls;
use backtrail_bundle::core::SigInfo;
use backtrail_process::status::{self, Disposition};

/// State that the kernel keeps for a process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessState {
    pub(super) actions: SignalActions,
    /// The dumpable attribute that the process would have, if the recorder keeps it set because it
    /// could not read the memory otherwise.
    pub(super) dumpable: Option<u64>,
    /// The process has called `PTRACE_TRACEME`, and no recorded process traces it.
    pub(super) is_tracee: bool,
    /// A seccomp filter reads the address of a system call instruction. Filters outlive exec.
    pub(super) filters_addresses: bool,
    /// The signals whose dispositions the steps of its threads have reset. Engine `step` only.
    lost: u64,
}

/// Restores the signal mask of a stopped thread.
///
/// While a system call that waits with another mask ends, the kernel still has both, and has not
/// changed the program's own.
fn restore_mask(tid: RawTid, signals: &SignalState) -> Result<()> {
    if signals.blocks_forced() && ptrace::signal_mask(tid)? != signals.mask {
        ptrace::set_signal_mask(tid, signals.mask)?;
    }
    Ok(())
}

impl Session<'_> {
    /// Initializes the state of a new process, or of a program that a known process has executed.
    pub(super) fn init_state(&mut self, pid: RawTid, is_known: bool) {
        let before = self.process_states.get(&pid).copied();
        let parent = status::parent_and_owner(pid)[0] as RawTid;
        let parent = self.process_states.get(&parent).copied();
        let mut state = ProcessState {
            actions: SignalActions::of(pid),
            ..ProcessState::default()
        };
        match (is_known, before, parent) {
            (true, Some(before), _) => {
                state.filters_addresses = before.filters_addresses;
                state.is_tracee = before.is_tracee;
            }
            (false, _, Some(parent)) => {
                state.filters_addresses = parent.filters_addresses;
                state.dumpable = parent.dumpable;
                for (signal, disposition) in FORCED.into_iter().zip(status::dispositions(pid, FORCED)) {
                    if disposition == Disposition::Handled {
                        state.actions.set(signal, parent.actions.of_signal(signal));
                    }
                }
            }
            _ => {}
        }
        self.process_states.insert(pid, state);
    }

    /// Reads the handlers that an attached process has installed.
    pub(super) fn read_actions(&mut self, tid: RawTid) -> Result<()> {
        let Some(pid) = self.threads.get(&tid).map(|thread| thread.pid) else {
            return Ok(());
        };
        for (signal, disposition) in FORCED.into_iter().zip(status::dispositions(tid, FORCED)) {
            if disposition == Disposition::Handled {
                let action = match translated_thread(&mut self.threads, &self.encoders, tid) {
                    Some(TranslatedThread { translated, .. }) => translated.read_action(signal)?,
                    None => foreign_calls::read_action(tid, signal)?,
                };
                self.process_states
                    .entry(pid)
                    .or_default()
                    .actions
                    .set(signal, action);
            }
        }
        Ok(())
    }

    /// Records that the recorder may have caused a signal. Returns `false` if it cannot have.
    pub(super) fn note_forced(&mut self, tid: RawTid, info: &SigInfo) -> bool {
        let signal = info.signal();
        let Some(thread) = self.threads.get_mut(&tid) else {
            return false;
        };
        if !FORCED.contains(&signal) {
            return false;
        }
        if signal == libc::SIGTRAP && info.code() == HANDLER_ENTRY {
            return true;
        }
        if is_sent(info) {
            // A forced signal is not queued if the program has sent the same one to the thread
            // before. The kernel has then unblocked it. A call that waits with another mask can
            // receive it too, and keeps the mask.
            let is_unblocked = || ptrace::signal_mask(tid).is_ok_and(|mask| mask & bit(signal) == 0);
            if !thread.signals.blocks(signal) || !is_unblocked() {
                return false;
            }
            thread.signals.replaced = Some(*info);
        }
        thread.signals.forced |= bit(signal);
        true
    }

    /// Records the signal mask of the system call that a translated thread waits in.
    pub(super) fn note_wait(&mut self, tid: RawTid) {
        let wait = translated_thread(&mut self.threads, &self.encoders, tid)
            .and_then(|TranslatedThread { translated, .. }| translated.current_wait());
        if let Some(call) = wait {
            self.note_signal_call(tid, call);
        }
    }

    /// Withdraws [`Self::note_forced`]: the signal is the program's own.
    pub(super) fn note_own(&mut self, tid: RawTid, signal: i32) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.signals.forced &= !bit(signal);
            let is_other = |info: &SigInfo| info.signal() != signal;
            thread.signals.replaced = thread.signals.replaced.filter(is_other);
        }
    }

    /// Handles the delivery of a signal to its handler, at whose start the thread is stopped.
    pub(super) fn note_delivered(&mut self, tid: RawTid) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let signal = std::mem::take(&mut thread.signals.delivered);
        if let Ok(mask) = ptrace::signal_mask(tid) {
            thread.signals.mask = mask;
        }
        if let Some(state) = self.process_states.get_mut(&thread.pid) {
            state.actions.delivered(signal);
        }
    }

    /// Restores the signal mask and the dispositions that the recorder's traps have reset, before a
    /// stopped thread is resumed, or released (`is_last`).
    pub(super) fn restore_signals(&mut self, tid: RawTid, is_last: bool) -> Result<()> {
        let Some(thread) = self.threads.get(&tid) else {
            return Ok(());
        };
        if let FollowMode::Stepped(_) = thread.mode {
            self.restore_stepped_signals(tid, is_last);
            return Ok(());
        }
        let (signals, pid) = (thread.signals, thread.pid);
        if signals.forced == 0 {
            return Ok(());
        }
        let actions = self.process_states.get(&pid).copied().unwrap_or_default().actions;
        let lost = signals.lost_actions(&actions);
        // The mask is first: pending signals must not be delivered during the calls.
        restore_mask(tid, &signals)?;
        let needs_calls = !lost.is_empty() || signals.replaced.is_some();
        if needs_calls && !is_last && (will_restart(&ptrace::registers(tid)?) || has_mask_of_wait(tid)) {
            // A handler or the restart of the interrupted system call is next. Other calls would
            // prevent that.
            return Ok(());
        }
        if let Some(TranslatedThread { translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        {
            for (signal, action) in &lost {
                translated.restore_action(*signal, action)?;
            }
        }
        if let Some(info) = &signals.replaced
            && let Some(TranslatedThread { translated, .. }) =
                translated_thread(&mut self.threads, &self.encoders, tid)
        {
            translated.queue(info)?;
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.signals.restored();
        }
        Ok(())
    }

    /// Restores the signal mask of a single-stepped thread.
    ///
    /// Dispositions are restored if the program may notice their change at the next instruction, or
    /// if the thread is released (`is_last`). A failure means that the thread was killed.
    pub(super) fn restore_stepped_signals(&mut self, tid: RawTid, is_last: bool) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let FollowMode::Stepped(stepped) = &thread.mode else {
            return;
        };
        let (signals, pid, signal) = (thread.signals, thread.pid, thread.signal);
        thread.signals.restored();
        let _ = restore_mask(tid, &signals);
        let state = self.process_states.entry(pid).or_default();
        for (signal, _) in signals.lost_actions(&state.actions) {
            state.lost |= bit(signal);
        }
        let is_noticed = match signal {
            Some(info) => is_sent(&info) && state.lost & bit(info.signal()) != 0,
            None => state.lost != 0 && (is_last || stepped.is_at_syscall()),
        };
        if is_noticed {
            let is_interrupted = signal.is_some() && has_mask_of_wait(tid);
            let lost = std::mem::take(&mut state.lost);
            for signal in FORCED.into_iter().filter(|signal| lost & bit(*signal) != 0) {
                let _ = foreign_calls::set_action(tid, signal, &state.actions.of_signal(signal));
            }
            // The calls have ended the stop for the signal.
            if let Some(info) = thread.signal.take() {
                let _ = foreign_calls::queue(tid, pid, &info);
            }
            if is_interrupted && let FollowMode::Stepped(stepped) = &mut thread.mode {
                stepped.repeat_call();
            }
        }
        if let Some(info) = &signals.replaced {
            let _ = foreign_calls::queue(tid, pid, info);
        }
    }

    /// Restores the disposition of a sent signal, if a trap in another thread has just reset it.
    /// Returns whether the signal needs no delivery now: it is ignored, or comes again.
    pub(super) fn restore_lost_action(&mut self, tid: RawTid, info: &SigInfo) -> Result<bool> {
        let signal = info.signal();
        if !is_sent(info) || !FORCED.contains(&signal) || !status::is_default_signal(tid, signal) {
            return Ok(false);
        }
        let Some(TranslatedThread { pid, translated, .. }) =
            translated_thread(&mut self.threads, &self.encoders, tid)
        else {
            return Ok(false);
        };
        let state = self.process_states.get(&pid);
        let action = state.map(|state| state.actions.of_signal(signal));
        let Some(action) = action.filter(|action| !action.is_default()) else {
            return Ok(false);
        };
        translated.restore_action(signal, &action)?;
        if !action.is_ignored() {
            translated.queue(info)?;
        }
        Ok(true)
    }

    /// Returns whether the program ignores a signal, even if a trap has reset the disposition.
    pub(super) fn ignores(&self, pid: RawTid, signal: i32) -> bool {
        let state = self.process_states.get(&pid);
        state.is_some_and(|state| state.actions.of_signal(signal).is_ignored())
    }

    /// Records the effects of a successful system call on the signal state.
    pub(super) fn note_signal_call(&mut self, tid: RawTid, call: SignalCall) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        thread.signals.apply(call);
        if let SignalCall::SetAction(signal, action) = call {
            self.process_states
                .entry(thread.pid)
                .or_default()
                .actions
                .set(signal, action);
        }
    }
}
