//! The stubs of a block: what it logs, and how it leaves.

use super::{Next, Saved, State, Translator, Trap};
use crate::translate::assembler::Scratch;
use crate::translate::event::{self, Event, NO_OUTCOMES};
use crate::translate::layout;

impl Translator {
    /// Traps where the thread's log does not tell of the change that the block comes after.
    pub(super) fn check_version(&mut self, ip: u64) {
        self.before(ip, Saved::NONE);
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, Saved::RCX);
        self.out.load(Scratch::Rcx, layout::VERSION);
        self.out.subtract_from_rcx(self.style.since);
        self.out.sign_of_rcx(layout::NUMBER);
        self.out.skip_if_rcx_is_zero(1);
        self.trap(Trap::Untold { ip });
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
    }

    /// Logs `outcomes` in one byte; none wait then.
    pub(super) fn log_outcomes(&mut self, ip: u64, next: Next, outcomes: u8) {
        self.outcomes = NO_OUTCOMES;
        let event = Event::Outcomes(outcomes);
        let done = |saved, event| State::Done { saved, event, next };
        self.place(ip, done(Saved::NONE, Some(event)));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.place(ip, done(Saved::RCX, Some(event)));
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.log_byte(outcomes);
        self.out.advance_log(1);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.quiet = false;
        if let Next::At(next) = next {
            self.told = next;
        }
        self.place(ip, done(Saved::RCX, None));
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
    }

    /// A FUP means the first time that a decoder comes to its address, and it counts standing there. So the
    /// turn is told twice: before its branch, and behind it, each an address not passed since the other.
    pub(super) fn log_turn(&mut self, ip: u64, target: u64) {
        for at in [ip, target] {
            self.log(ip, Event::Turn(at), Next::At(target), Saved::NONE);
        }
        self.told = target;
    }

    /// Logs a direct call.
    pub(super) fn log_call(&mut self, ip: u64, next: u64, to: u64) {
        let outcomes = self.outcomes;
        self.log(ip, Event::Call { outcomes, next }, Next::At(to), Saved::NONE);
        self.told = to;
    }

    /// Logs an event whose outcomes are those that wait, and whose target, if any, is in RAX, which waits
    /// in its slot then.
    fn log(&mut self, ip: u64, event: Event, next: Next, saved: Saved) {
        let done = |saved, event| State::Done { saved, event, next };
        self.place(ip, done(saved, Some(event)));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        let saved_too = saved.and(Saved::RCX);
        self.place(ip, done(saved_too, Some(event)));
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        // The end first, so that what does not fit faults before anything is written.
        let len = match event {
            Event::Target { outcomes, .. } => {
                self.out.log_rax(2);
                self.out.log_two(event::TARGET, outcomes);
                10
            }
            Event::Return { outcomes, .. } => {
                self.out.log_rax(2);
                self.out.log_two(event::RETURN, outcomes);
                10
            }
            Event::IndirectCall { outcomes, next, .. } => {
                self.out.log_rax(10);
                self.out.log_word(2, next);
                self.out.log_two(event::INDIRECT_CALL, outcomes);
                18
            }
            Event::Call { outcomes, next } => {
                self.out.log_word(2, next);
                self.out.log_two(event::CALL, outcomes);
                10
            }
            Event::Turn(at) => {
                self.out.log_word(1, at);
                self.out.log_byte(event::TURN);
                9
            }
            _ => 0,
        };
        self.out.advance_log(len);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        // A direct call by itself gives no packet.
        self.quiet &= matches!(event, Event::Call { .. }) && self.outcomes == NO_OUTCOMES;
        self.outcomes = NO_OUTCOMES;
        self.place(ip, done(saved_too, None));
        if saved == Saved::NONE {
            self.out.load(Scratch::Rcx, layout::SAVED_RCX);
            self.place(ip, done(saved, None));
        }
    }

    /// Logs an indirect branch to the target in RAX and goes there, by way of the tables.
    pub(super) fn go_to_rax(&mut self, ip: u64, event: Event) {
        self.log(ip, event, Next::InRax, Saved::RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.place(
            ip,
            State::Done {
                saved: Saved::ALL,
                event: None,
                next: Next::InRax,
            },
        );
        self.out.hash();
        self.out.jump_by_table(layout::FIRST);
    }

    pub(super) fn system_call(&mut self, ip: u64, next: u64) {
        if self.outcomes != NO_OUTCOMES {
            self.log_outcomes(ip, Next::At(ip), self.outcomes);
            self.before(ip, Saved::NONE);
        }
        let out = &mut self.out;
        out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.before(ip, Saved::RCX);
        self.out.look_up_syscall(layout::SPECIAL);
        self.out.skip_if_rcx_is_zero(1);
        self.trap(Trap::Special { ip, next });
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rdtsc();
        self.before(ip, Saved::ALL);
        self.out.log_edx(5);
        self.out.log_eax(1);
        self.out.log_byte(event::SYSCALL);
        self.out.advance_log(9);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.place(ip, State::Told(Saved::ALL));
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rax, layout::SAVED_RAX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.place(ip, State::Told(Saved::NONE));
        self.out.bytes(&[0x0f, 0x05]);
        let returned = |saved| State::Returned { saved, next };
        self.place(ip, returned(Saved::NONE));
        self.out.store(Scratch::Rax, layout::SAVED_RAX);
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rdtsc();
        let both = Saved::RAX.and(Saved::RDX);
        self.place(ip, returned(both));
        self.out.log_edx(13);
        self.out.log_eax(9);
        self.out.set(Scratch::Rax, next);
        self.out.log_rax(1);
        self.out.log_byte(event::ENTER);
        self.out.advance_log(17);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.out.rcx_from_rax();
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rax, layout::SAVED_RAX);
        self.told = next;
        self.link(ip, next);
    }
}
