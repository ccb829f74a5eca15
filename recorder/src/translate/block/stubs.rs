//! The stubs of a block, which log events and leave the block.

use super::{BlockTrap, InstructionState, NextIp, SpilledRegisters, Translator};
use crate::translate::assembler::{Scratch, TRAP_LEN};
use crate::translate::event::{self, LogEvent, NO_OUTCOMES};
use crate::translate::layout;
use crate::translate::staged::{Staged, Unstaged};
use std::num::NonZeroU32;

impl Translator<'_> {
    /// Traps if the thread has not logged the code version of the block.
    pub(super) fn check_version(&mut self, ip: u64, version: NonZeroU32) {
        self.before(ip, SpilledRegisters::NONE);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RCX);
        self.out.load(Scratch::Rcx, layout::VERSION);
        self.out.subtract_from_rcx(version.get());
        self.out.sign_of_rcx(layout::NUMBER);
        self.out.skip_if_rcx_is_zero(TRAP_LEN);
        self.trap(BlockTrap::StaleVersion { ip });
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
    }

    /// Traps if the POPF at `ip` sets the trap flag.
    pub(super) fn check_popped_trap_flag(&mut self, ip: u64) {
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RCX);
        // The trap flag is bit 8.
        self.out.second_byte_on_stack();
        self.out.look_up_byte(layout::ODD);
        self.out.skip_if_rcx_is_zero(1);
        let outcomes = self.outcomes;
        self.trap(BlockTrap::SetsTrapFlag { ip, outcomes });
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::NONE);
    }

    /// Logs `outcomes` in one byte. No outcome is pending afterward.
    pub(super) fn log_outcomes(&mut self, ip: u64, next: NextIp, outcomes: u8) {
        self.outcomes = NO_OUTCOMES;
        let event = LogEvent::Outcomes(outcomes);
        let done = |spilled, event| InstructionState::Done { spilled, event, next };
        self.record(ip, done(SpilledRegisters::NONE, Some(event)));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.record(ip, done(SpilledRegisters::RCX, Some(event)));
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.log_byte(outcomes);
        self.out.advance_log(1);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.packetless = false;
        if let NextIp::At(next) = next {
            self.logged_ip = next;
        }
        self.record(ip, done(SpilledRegisters::RCX, None));
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
    }

    /// A decoder binds a FUP to the first time that it reaches the address, including its current
    /// position. The loop is therefore logged twice: before its branch and after it. Each address
    /// was not reached since the other.
    pub(super) fn log_loop_marker(&mut self, ip: u64, target: u64) {
        for at in [ip, target] {
            self.log(
                ip,
                LogEvent::LoopMarker(at),
                NextIp::At(target),
                SpilledRegisters::NONE,
            );
        }
        self.logged_ip = target;
    }

    /// Logs a direct call.
    pub(super) fn log_call(&mut self, ip: u64, next: u64, to: u64) {
        let outcomes = self.outcomes;
        self.log(
            ip,
            LogEvent::Call { outcomes, next },
            NextIp::At(to),
            SpilledRegisters::NONE,
        );
        self.logged_ip = to;
    }

    /// Logs an event with the pending outcomes. Its target, if any, is in RAX, which is then
    /// spilled.
    fn log(&mut self, ip: u64, event: LogEvent, next: NextIp, spilled: SpilledRegisters) {
        let done = |spilled, event| InstructionState::Done { spilled, event, next };
        self.record(ip, done(spilled, Some(event)));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        let spilled_too = spilled.and(SpilledRegisters::RCX);
        self.record(ip, done(spilled_too, Some(event)));
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        // Write the last bytes first, so that a full chunk faults before anything is written.
        let len = match event {
            LogEvent::Target { outcomes, .. } => {
                self.out.log_rax(2);
                self.out.log_bytes(event::TARGET, outcomes);
                10
            }
            LogEvent::Return { outcomes, .. } => {
                self.out.log_rax(2);
                self.out.log_bytes(event::RETURN, outcomes);
                10
            }
            LogEvent::IndirectCall { outcomes, next, .. } => {
                self.out.log_rax(10);
                self.out.log_word(2, next);
                self.out.log_bytes(event::INDIRECT_CALL, outcomes);
                18
            }
            LogEvent::Call { outcomes, next } => {
                self.out.log_word(2, next);
                self.out.log_bytes(event::CALL, outcomes);
                10
            }
            LogEvent::LoopMarker(at) => {
                self.out.log_word(1, at);
                self.out.log_byte(event::LOOP_MARKER);
                9
            }
            _ => 0,
        };
        self.out.advance_log(len);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        // A direct call alone produces no packet.
        self.packetless &= matches!(event, LogEvent::Call { .. }) && self.outcomes == NO_OUTCOMES;
        self.outcomes = NO_OUTCOMES;
        self.record(ip, done(spilled_too, None));
        if spilled == SpilledRegisters::NONE {
            self.out.load(Scratch::Rcx, layout::SAVED_RCX);
            self.record(ip, done(spilled, None));
        }
    }

    /// Logs an indirect branch to the target in RAX, and jumps there through the lookup tables.
    /// `loaded` are the values on the stage, if the target was loaded from memory.
    pub(super) fn go_to_rax(&mut self, ip: u64, event: LogEvent, loaded: Option<Staged>) {
        self.staged = loaded.unwrap_or(self.staged);
        self.flush_values(SpilledRegisters::RAX, &|translator, spilled| {
            translator.record(
                ip,
                InstructionState::Done {
                    spilled,
                    event: Some(event),
                    next: NextIp::InRax,
                },
            );
        });
        self.log(ip, event, NextIp::InRax, SpilledRegisters::RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.record(
            ip,
            InstructionState::Done {
                spilled: SpilledRegisters::ALL,
                event: None,
                next: NextIp::InRax,
            },
        );
        self.out.hash();
        self.out.jump_by_table(layout::FIRST);
    }

    pub(super) fn system_call(&mut self, ip: u64, next: u64) {
        self.flush_values_before(ip);
        if self.outcomes != NO_OUTCOMES {
            self.log_outcomes(ip, NextIp::At(ip), self.outcomes);
            self.before(ip, SpilledRegisters::NONE);
        }
        let out = &mut self.out;
        out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, SpilledRegisters::RCX);
        self.out.look_up_syscall(layout::INTERCEPTED);
        self.out.row_and_argument_to_rcx();
        // The flags are the program's, so no instruction compares.
        self.out.look_up_byte(layout::BY_ARGUMENT);
        self.out.skip_if_rcx_is_zero(1);
        self.trap(BlockTrap::InterceptedSyscall { ip, next });
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rdtsc();
        self.before(ip, SpilledRegisters::ALL);
        self.out.log_edx(5);
        self.out.log_eax(1);
        self.out.log_byte(event::SYSCALL);
        self.out.advance_log(9);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.record(ip, InstructionState::Logged(SpilledRegisters::ALL));
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rax, layout::SAVED_RAX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.record(ip, InstructionState::Logged(SpilledRegisters::NONE));
        self.out.bytes(&[0x0f, 0x05]);
        let returned = |spilled| InstructionState::Returned { spilled, next };
        if self.options.values {
            self.unstaged = Unstaged::SystemCall;
        }
        self.record(ip, returned(SpilledRegisters::NONE));
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rdtsc();
        let both = SpilledRegisters::RAX.and(SpilledRegisters::RDX);
        self.record(ip, returned(both));
        self.out.log_edx(13);
        self.out.log_eax(9);
        self.out.set_address(Scratch::Rax, next);
        self.out.log_rax(1);
        self.out.log_byte(event::ENTER);
        self.out.advance_log(17);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rcx_from_rax();
        let staged = self.stage_call_results();
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rax, layout::SAVED_RAX);
        (self.staged, self.unstaged) = (staged, Unstaged::Nothing);
        self.logged_ip = next;
        self.link(ip, next);
    }
}
