//! Handles signal-delivery-stops of stepped threads: traps of our steps, and signals of the
//! program.

use super::{Hold, Session};
use crate::code;
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::signal_state::{HANDLER_ENTRY, SI_KERNEL, TRAP_FLAG, is_sent};
use crate::stepped::{TrackedCalls, without_trap_flag};
use crate::thread::FollowMode;
use backtrail_bundle::core::Registers;
use backtrail_process::status::{self, DefaultAction};

impl Session<'_> {
    /// Handles a signal-delivery-stop: the trap of a step, or a signal for the program.
    pub(super) fn on_signal(&mut self, tid: RawTid, signal: i32, registers: &Registers) -> Result<()> {
        let Ok(info) = ptrace::siginfo(tid) else {
            return Ok(());
        };
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        if thread.is_closed() {
            let stepped =
                signal == libc::SIGTRAP && (libc::TRAP_BRKPT..=libc::TRAP_TRACE).contains(&info.code());
            thread.signal = Some(info).filter(|_| !stepped);
            return Ok(());
        }
        if !matches!(thread.mode, FollowMode::Stepped(_)) {
            return Ok(());
        }
        if signal == libc::SIGTRAP && self.note_forced(tid, &info) {
            let Some(thread) = self.threads.get_mut(&tid) else {
                return Ok(());
            };
            let FollowMode::Stepped(stepped) = &mut thread.mode else {
                return Ok(());
            };
            let breakpoint = stepped.code.is_some_and(|code| code.is_breakpoint());
            let is_of_step = info.code() <= libc::TRAP_TRACE && !breakpoint;
            match info.code() {
                HANDLER_ENTRY if stepped.delivered => {
                    if !stepped.has_trap_flag {
                        code::hide_frame_trap_flag(thread.pid, registers.rsp);
                    }
                    stepped.entered_handler(registers.pc());
                    self.note_delivered(tid);
                    return Ok(());
                }
                // The trap of a system call that SIGSYS has ended first: a handler is next.
                libc::TRAP_BRKPT if !breakpoint && stepped.is_about_to_execute(registers.pc()) => {
                    return Ok(());
                }
                SI_KERNEL | libc::TRAP_BRKPT | libc::TRAP_TRACE if breakpoint => {
                    stepped.hit_breakpoint(registers.pc());
                }
                _ => {}
            }
            if is_of_step && !self.on_step(tid, registers)? {
                return Ok(());
            }
            self.note_own(tid, signal);
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        let FollowMode::Stepped(stepped) = &mut thread.mode else {
            return Ok(());
        };
        stepped.left_by_itself(registers.pc());
        let pid = thread.pid;
        if is_sent(&info) && self.ignores(pid, signal) {
            return Ok(());
        }
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(());
        };
        thread.signal = Some(info);
        let fatal = status::default_action(signal) == DefaultAction::Terminate
            && status::is_default_signal(tid, signal);
        if fatal && self.hold == Hold::Nobody {
            self.on_fatal(tid, registers)?;
        }
        Ok(())
    }

    /// Handles the trap of a step. Returns whether it is the program's own too, because of its trap
    /// flag.
    fn on_step(&mut self, tid: RawTid, registers: &Registers) -> Result<bool> {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return Ok(false);
        };
        let FollowMode::Stepped(stepped) = &mut thread.mode else {
            return Ok(false);
        };
        let had_trap_flag = stepped.has_trap_flag;
        let code = stepped.code;
        // After a step over IRET, the kernel takes its flag for the program's own.
        let can_have_flag = had_trap_flag || code.is_some_and(|code| code.is_interrupt_return());
        stepped.has_trap_flag = can_have_flag && registers.rflags & TRAP_FLAG != 0;
        stepped.stepped(registers);
        let Some(code) = code else {
            return Ok(had_trap_flag);
        };
        if code.pushes_flags() && !had_trap_flag {
            code::hide_pushed_trap_flag(thread.pid, registers.rsp);
        }
        if code.is_syscall() {
            if !had_trap_flag && let Some(clean) = without_trap_flag(registers) {
                let _ = ptrace::set_registers(tid, &clean);
            }
            stepped.restore_cleared();
            let calls = stepped.take_calls();
            let pid = thread.pid;
            if registers.orig_rax as libc::c_long == libc::SYS_munmap {
                let end = registers.rdi.saturating_add(registers.rsi);
                self.copy_unmapped(pid, &(registers.rdi..end));
            }
            if maps_code(registers) {
                self.update_image(pid, Some(mapped_address(registers)));
            }
            self.after_stepped_call(tid, calls)?;
            // The processor clears the flag before the system call, so the call does not trap.
            return Ok(false);
        }
        Ok(had_trap_flag)
    }

    /// Handles the effects of a system call on the signal state and on attributes, if it succeeded.
    fn after_stepped_call(&mut self, tid: RawTid, calls: TrackedCalls) -> Result<()> {
        if calls == TrackedCalls::default() {
            return Ok(());
        }
        let registers = ptrace::registers(tid)?;
        let failed = (registers.rax as i64) < 0;
        if let Some(call) = calls.signal
            && (calls.is_return || !failed || call.is_wait())
        {
            self.note_signal_call(tid, call);
        }
        match calls.attribute {
            Some(call) if !failed => self.after_attribute_call(tid, call, &registers),
            _ => Ok(()),
        }
    }
}

/// Returns the address of the memory that a completed system call made executable.
fn mapped_address(registers: &Registers) -> u64 {
    match registers.orig_rax as libc::c_long {
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => registers.rdi,
        _ => registers.rax,
    }
}

/// Returns whether a completed system call may have made memory executable.
pub(super) fn maps_code(registers: &Registers) -> bool {
    let with_exec = registers.rdx & libc::PROT_EXEC as u64 != 0;
    match registers.orig_rax as libc::c_long {
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect => with_exec,
        libc::SYS_mremap | libc::SYS_shmat => true,
        _ => false,
    }
}
