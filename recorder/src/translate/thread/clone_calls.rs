//! System calls that start threads: their arguments, and the registers of the new thread.

use super::{ParentState, ThreadState, Translated};
use crate::clone_flags::{CloneCall, HIDING};
use crate::ptrace::RawTid;
use crate::signal_state::TRAP_FLAG;
use crate::translate::address_space::{AddressSpaceSharing, MemoryId, address_space_sharing};
use crate::translate::layout;
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use std::rc::Rc;

impl Translated {
    /// Clears flags that would hide a new thread from the recorder. `registers` are those of the
    /// call.
    ///
    /// The program's `struct clone_args` is not changed: other threads may read it, and it may be
    /// constant.
    pub(super) fn clear_hiding(&self, number: u64, registers: &mut Registers) {
        let Some(call) = CloneCall::of(number) else { return };
        let flags = call.flags(self.pid, registers.rdi);
        if flags & HIDING == 0 {
            return;
        }
        match call {
            CloneCall::Clone => registers.rdi = flags & !HIDING,
            CloneCall::Clone3 => {
                // The kernel refuses structures that exceed a page, and unknown fields that are not
                // zero.
                let size = registers.rsi.min(crate::PAGE) as usize;
                let mut arguments = vec![0; size];
                if memory::read(self.pid, registers.rdi, &mut arguments) != size {
                    return;
                }
                let room = layout::ARGUMENTS_SIZE as usize;
                let Some(head) = arguments.get_mut(..8) else {
                    return;
                };
                head.copy_from_slice(&(flags & !HIDING).to_le_bytes());
                let is_known = arguments.iter().skip(room).all(|byte| *byte == 0);
                if is_known && registers.rsi <= crate::PAGE {
                    arguments.truncate(room);
                    registers.rdi = self.region.set_arguments(&arguments);
                    registers.rsi = arguments.len() as u64;
                }
            }
        }
    }

    /// Returns the state that a thread created by the current system call inherits.
    pub(crate) fn parent_state(&self, child: RawTid) -> Option<ParentState> {
        let ThreadState::InSyscall {
            number,
            next,
            registers,
        } = &self.state
        else {
            return None;
        };
        let shares = address_space_sharing(self.pid, *number, registers.rdi) == AddressSpaceSharing::Shared;
        Some(ParentState {
            pid: self.pid,
            space: Rc::clone(&self.space),
            next: *next,
            gs_base: self.gs_base,
            arguments: [registers.rdi, registers.rsi],
            memory: if shares { self.memory } else { MemoryId(child) },
        })
    }

    /// Returns the program's registers of a new thread.
    pub(crate) fn child_registers(parent: &ParentState, registers: &Registers) -> Registers {
        Registers {
            rip: parent.next,
            rcx: parent.next,
            // SYSCALL has saved the trap flag of the step.
            r11: registers.r11 & !TRAP_FLAG,
            rdi: parent.arguments[0],
            rsi: parent.arguments[1],
            gs_base: parent.gs_base,
            ..*registers
        }
    }
}

/// Returns whether a system call starts a thread or a process.
pub(super) fn starts_thread(number: u64) -> bool {
    CloneCall::of(number).is_some() || [libc::SYS_fork, libc::SYS_vfork].contains(&(number as libc::c_long))
}

/// Restores the arguments that the recorder may have changed.
pub(super) fn restore_arguments(number: u64, before: &Registers, now: &mut Registers) {
    if CloneCall::of(number).is_some() || number == libc::SYS_prctl as u64 {
        (now.rdi, now.rsi) = (before.rdi, before.rsi);
    }
}
