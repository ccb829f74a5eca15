//! The stubs of a block: what it logs, and how it leaves.

use super::{Next, Saved, State, Translator, Trap};
use crate::translate::assembler::Scratch;
use crate::translate::event::{self, Event, NO_OUTCOMES};
use crate::translate::layout;

impl Translator {
    /// Logs `self.outcomes` (the event) in one byte.
    pub(super) fn log_outcomes(&mut self, ip: u64, next: Next, event: Event) {
        let Event::Outcomes(outcomes) = event else { return };
        self.outcomes = NO_OUTCOMES;
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
            self.log_word(
                ip,
                event::TURN,
                at,
                Event::Turn(at),
                Next::At(target),
                Saved::NONE,
            );
        }
        self.told = target;
    }

    /// Logs a tag and a constant; RAX may be in use already.
    pub(super) fn log_word(&mut self, ip: u64, tag: u8, word: u64, event: Event, next: Next, saved: Saved) {
        let done = |saved, event| State::Done { saved, event, next };
        self.place(ip, done(saved, Some(event)));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.place(ip, done(saved.and(Saved::RCX), Some(event)));
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        // RDX holds the word by halves: `mov [rcx+5], edx` first, for the end must fit first.
        self.out.set(Scratch::Rdx, word >> 32);
        let both = saved.and(Saved::RCX).and(Saved::RDX);
        self.place(ip, done(both, Some(event)));
        self.out.log_edx(5);
        self.out.set(Scratch::Rdx, word & 0xffff_ffff);
        self.out.log_edx(1);
        self.out.log_byte(tag);
        self.out.advance_log(9);
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.place(ip, done(both, None));
        self.out.load(Scratch::Rdx, layout::SAVED_RDX);
        self.out.load(Scratch::Rcx, layout::SAVED_RCX);
        self.place(ip, done(saved, None));
    }

    /// Logs the call, when calls are.
    pub(super) fn told_call(&mut self, ip: u64, next: u64, to: Next, saved: Saved) {
        if !self.style.calls {
            return;
        }
        if self.outcomes != NO_OUTCOMES {
            // In order: outcomes first.
            let event = Event::Outcomes(self.outcomes);
            let told = self.told;
            self.log_outcomes_under(ip, to, event, saved);
            if to == Next::InRax {
                self.told = told;
            }
        }
        self.log_word(ip, event::CALL, next, Event::Call { next }, to, saved);
        if let Next::At(to) = to {
            self.told = to;
        }
    }

    /// [`Self::log_outcomes`] while other registers wait too.
    pub(super) fn log_outcomes_under(&mut self, ip: u64, next: Next, event: Event, saved: Saved) {
        let from = self.block.places.len();
        self.log_outcomes(ip, next, event);
        for place in self.block.places.iter_mut().skip(from) {
            if let State::Done { saved: held, .. } = &mut place.state {
                *held = held.and(saved);
            }
        }
    }

    /// Logs the target in RAX and goes there, by way of the tables.
    pub(super) fn go_to_rax(&mut self, ip: u64, tag: u8) {
        let outcomes = self.outcomes;
        let done = |saved, event| State::Done {
            saved,
            event,
            next: Next::InRax,
        };
        // The event's target is RAX itself.
        let event = Some(if tag == event::RETURN {
            Event::Return(0)
        } else {
            Event::Target(0)
        });
        self.place(ip, done(Saved::RAX, event));
        self.out.store(Scratch::Rcx, layout::SAVED_RCX);
        self.place(ip, done(Saved::RAX.and(Saved::RCX), event));
        self.out.load(Scratch::Rcx, layout::LOG_POINTER);
        if outcomes == NO_OUTCOMES {
            self.out.log_rax(1);
            self.out.log_byte(tag);
            self.out.advance_log(9);
        } else {
            self.out.log_rax(2);
            self.out.log_two(outcomes, tag);
            self.out.advance_log(10);
        }
        self.out.store(Scratch::Rcx, layout::LOG_POINTER);
        self.outcomes = NO_OUTCOMES;
        self.place(ip, done(Saved::RAX.and(Saved::RCX), None));
        self.out.store(Scratch::Rdx, layout::SAVED_RDX);
        self.place(ip, done(Saved::ALL, None));
        self.out.hash();
        self.out.jump_by_table(layout::FIRST);
    }

    pub(super) fn system_call(&mut self, ip: u64, next: u64) {
        if self.outcomes != NO_OUTCOMES {
            let event = Event::Outcomes(self.outcomes);
            self.log_outcomes(ip, Next::At(ip), event);
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
