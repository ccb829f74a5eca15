//! Handles signal-delivery-stops of stepped threads: traps of our steps, and signals of the
//! program.

use super::{Hold, Session};
use crate::code;
use crate::error::Result;
use crate::ptrace::{self, RawTid};
use crate::stepped::without_trap_flag;
use crate::thread::FollowMode;
use backtrail_bundle::core::Registers;
use backtrail_process::status::{self, DefaultAction};

/// `si_code` of the stop before the first instruction of a handler: ptrace stores the signal number
/// there.
pub(super) const HANDLER_ENTRY: i32 = libc::SIGTRAP;
/// `si_code` of a breakpoint instruction.
const SI_KERNEL: i32 = 0x80;

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
        let FollowMode::Stepped(stepped) = &mut thread.mode else {
            return Ok(());
        };
        if signal == libc::SIGTRAP {
            let breakpoint = stepped.code.is_some_and(|code| code.is_breakpoint());
            match info.code() {
                HANDLER_ENTRY if stepped.delivered => {
                    ptrace::unblock_trap(tid);
                    stepped.entered_handler(registers.pc());
                    return Ok(());
                }
                libc::TRAP_BRKPT | libc::TRAP_TRACE if !breakpoint => {
                    self.on_step(tid, registers);
                    return Ok(());
                }
                SI_KERNEL | libc::TRAP_BRKPT | libc::TRAP_TRACE if breakpoint => {
                    stepped.hit_breakpoint(registers.pc());
                }
                _ => {}
            }
        }
        stepped.left_by_itself(registers.pc());
        thread.signal = Some(info);
        let fatal = status::default_action(signal) == DefaultAction::Terminate
            && status::is_default_signal(tid, signal);
        if fatal && self.hold == Hold::Nobody {
            self.on_fatal(tid, registers)?;
        }
        Ok(())
    }

    fn on_step(&mut self, tid: RawTid, registers: &Registers) {
        let Some(thread) = self.threads.get_mut(&tid) else {
            return;
        };
        let FollowMode::Stepped(stepped) = &mut thread.mode else {
            return;
        };
        let code = stepped.code;
        stepped.stepped(registers);
        let Some(code) = code else { return };
        if code.pushes_flags() {
            code::hide_pushed_trap_flag(thread.pid, registers.rsp);
        }
        if code.is_syscall() {
            if let Some(clean) = without_trap_flag(registers) {
                let _ = ptrace::set_registers(tid, &clean);
            }
            stepped.restore_cleared();
            let pid = thread.pid;
            if registers.orig_rax as libc::c_long == libc::SYS_munmap {
                let end = registers.rdi.saturating_add(registers.rsi);
                self.copy_unmapped(pid, &(registers.rdi..end));
            }
            if maps_code(registers) {
                self.update_image(pid, Some(mapped_address(registers)));
            }
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
