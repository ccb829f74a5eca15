//! System calls that start threads: what the call is given, and what the new thread gets.

use super::{Kin, State, Translated};
use crate::clone_flags::{CloneCall, HIDING};
use crate::ptrace::RawTid;
use crate::translate::layout;
use crate::translate::space::{Kinship, kinship};
use backtrail_bundle::core::Registers;
use backtrail_process::memory;
use std::rc::Rc;

impl Translated {
    /// Clears the flags that would hide a new thread from us; `registers` are those of the call.
    ///
    /// The program's `struct clone_args` is not changed: others may read it, and it may be constant.
    pub(super) fn clear_hiding(&self, number: u64, registers: &mut Registers) {
        let Some(call) = CloneCall::of(number) else { return };
        let flags = call.flags(self.pid, registers.rdi);
        if flags & HIDING == 0 {
            return;
        }
        match call {
            CloneCall::Clone => registers.rdi = flags & !HIDING,
            CloneCall::Clone3 => {
                // What is larger than a page is refused by the kernel, and so is what it does not know and is not zero.
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

    /// What is known of the thread that this one starts in its system call.
    pub(crate) fn kin(&self, child: RawTid) -> Option<Kin> {
        let State::Special {
            number,
            next,
            registers,
        } = &self.state
        else {
            return None;
        };
        let shares = kinship(self.pid, *number, registers.rdi) == Kinship::Shares;
        Some(Kin {
            space: Rc::clone(&self.space),
            next: *next,
            gs_base: self.gs_base,
            arguments: [registers.rdi, registers.rsi],
            memory: if shares { self.memory } else { child as u64 },
        })
    }

    /// The registers that a started thread has in the program's eyes.
    pub(crate) fn born(kin: &Kin, registers: &Registers) -> Registers {
        Registers {
            rip: kin.next,
            rcx: kin.next,
            rdi: kin.arguments[0],
            rsi: kin.arguments[1],
            gs_base: kin.gs_base,
            ..*registers
        }
    }
}

/// Gives a thread that has made such a call its arguments back.
pub(super) fn restore_arguments(number: u64, before: &Registers, now: &mut Registers) {
    if CloneCall::of(number).is_some() {
        (now.rdi, now.rsi) = (before.rdi, before.rsi);
    }
}
