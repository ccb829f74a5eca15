//! The rules by which instructions become calls.
//!
//! Where a history begins, after a gap, and in code without symbols, not all is known; each rule
//! says what then holds, and the next return that matches an open call puts the rest right.

use crate::forest::effects::Op;
use crate::forest::places::{Place, Places};
use crate::forest::stack::{Entry, Log, NONE, Signal, Stack};
use crate::forest::{Functions, Left, Tag};
use crate::{Instruction, Mark, MarkKind, Resumed};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::FxHashSet;

pub(super) struct Rules<'a> {
    pub places: Places<'a>,
    stack: Stack,
    /// The places where functions go on that were left for another stack, by their numbers.
    suspended: FxHashSet<u32>,
}

/// An instruction that flow goes on from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// The number of the place behind it, where a call returns to.
    behind: u32,
    len: u8,
    pub way: Way,
    /// It lies between a call and the function meant.
    pub glue: bool,
}

/// A [`Cofi`] without its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Sequential,
    Conditional,
    Jump,
    Call,
    IndirectJump,
    IndirectCall,
    Return,
    Far,
}

impl Source {
    /// The number of the place behind it.
    pub fn behind(&self) -> u32 {
        self.behind
    }

    /// It goes on at the next instruction: nothing is called, nor left.
    #[inline]
    pub fn falls(&self, to: Place) -> bool {
        self.falls_to() == Some(to.id)
    }

    /// The number of the place where it may go on so.
    #[inline]
    pub fn falls_to(&self) -> Option<u32> {
        // `call next`: how position-independent code reads its own address; nothing returns.
        let may = matches!(
            self.way,
            Way::Sequential | Way::Conditional | Way::Call | Way::IndirectCall
        );
        may.then_some(self.behind)
    }
}

impl<'a> Rules<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            places: Places::new(functions),
            stack: Stack::default(),
            suspended: FxHashSet::default(),
        }
    }

    /// An instruction that flow goes on from, looked up.
    pub fn source(&mut self, last: Instruction) -> Source {
        let way = match last.cofi {
            Cofi::Sequential => Way::Sequential,
            Cofi::Conditional { .. } => Way::Conditional,
            Cofi::Jump { .. } => Way::Jump,
            Cofi::Call { .. } => Way::Call,
            Cofi::IndirectJump => Way::IndirectJump,
            Cofi::IndirectCall => Way::IndirectCall,
            Cofi::Return => Way::Return,
            Cofi::FarTransfer => Way::Far,
        };
        let behind = self.places.of(last.next()).id;
        if matches!(way, Way::Call | Way::IndirectCall) {
            self.places.is_returned_to(behind);
        }
        let jumps = !matches!(way, Way::Sequential | Way::Call | Way::IndirectCall | Way::Far);
        Source {
            behind,
            len: last.len,
            way,
            glue: jumps && self.places.is_glue(last.pc),
        }
    }

    /// The address behind an instruction.
    fn next(&self, from: &Source) -> Avma {
        self.places.address(from.behind)
    }

    /// The address of an instruction.
    fn pc(&self, from: &Source) -> Avma {
        Avma(self.next(from).0.wrapping_sub(u64::from(from.len)))
    }

    /// The innermost open call is one of this function; [`Place::UNKNOWN`]: of one that is not known.
    #[inline]
    pub fn runs(&self, function: u32) -> bool {
        self.stack.top().is_some_and(|top| top.function == function)
    }

    /// The innermost call returns to a place.
    pub fn returns(&self, to: Place) -> bool {
        let base = self.stack.frame(self.stack.base());
        base.is_some_and(|frame| frame.returns_to == to.id)
    }

    /// An open call returns to the place of this number.
    #[inline]
    pub fn expects(&mut self, place: u32) -> bool {
        self.places.may_be_returned_to(place) && self.stack.expecting(place).is_some()
    }

    /// How many calls are open.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Exchanges the open calls for others.
    pub fn exchange(&mut self, stack: &mut Stack) {
        std::mem::swap(&mut self.stack, stack);
    }

    /// The open calls, and the places.
    #[inline]
    pub fn parts(&mut self) -> (&mut Stack, &Places<'a>) {
        (&mut self.stack, &self.places)
    }

    /// See [`Stack::begin_log`].
    pub fn begin_log(&mut self, execution: u64, index: u64) {
        self.stack.begin_log(execution, index);
    }

    /// See [`Stack::end_log`].
    pub fn end_log(&mut self) -> &[Op] {
        self.stack.end_log()
    }

    /// See [`Stack::take_lowest`].
    pub fn take_lowest(&mut self) -> i32 {
        self.stack.take_lowest()
    }

    /// See [`Stack::is_full`].
    pub fn is_full(&self) -> bool {
        self.stack.is_full()
    }

    /// How many calls began.
    pub fn began(&self) -> u32 {
        self.stack.began()
    }

    /// Opens a call that stands for any of a function.
    pub fn stand_in(&mut self, function: u32) {
        self.stack.stand_in(function);
    }

    /// The function of the innermost call.
    #[inline]
    pub fn inside(&self) -> u32 {
        self.stack.top().map_or(Place::UNKNOWN, |top| top.function)
    }

    /// The position of the call whose return the innermost one shares.
    pub fn base(&self) -> usize {
        self.stack.base()
    }

    /// A call of the function that a place is in is open.
    pub fn is_running(&mut self, place: Place) -> bool {
        self.stack.running(place).is_some()
    }

    /// All open calls end by one return.
    pub fn leave_all(&mut self, index: u64) {
        self.leave(0, index, Left::Return);
    }

    /// Goes from the instruction `last` over `marks` to the one at `to`, which has number `index`.
    pub fn between<'m>(
        &mut self,
        last: Option<&Source>,
        mut marks: impl Iterator<Item = &'m Mark>,
        to: Place,
        index: u64,
    ) {
        let Some(last) = last.filter(|_| !self.stack.is_empty()) else {
            marks.by_ref().for_each(drop);
            return self.root(index, to, Tag::HistoryStart);
        };
        let mut gap = false;
        // Where the thread stood when it was taken away, and has not been since.
        let mut stood = None;
        let mut moved = false;
        for mark in marks {
            match mark.kind {
                MarkKind::Gap(_) => gap = true,
                _ if gap => {}
                MarkKind::Interrupted { from, .. } => {
                    match stood {
                        Some(stood) => {
                            let from = self.places.of(from);
                            self.taken_away(index, from, stood, None);
                        }
                        None if !moved => {
                            let from = self.places.of(from);
                            self.transfer(last, from, index);
                        }
                        None => {}
                    }
                    (stood, moved) = (Some(from), true);
                }
                MarkKind::LeftUser { resumed, .. } => {
                    if let Resumed::Elsewhere(at) = resumed {
                        let at = self.places.of(at);
                        self.back(last, at, index);
                    }
                    moved = true;
                }
                MarkKind::Descheduled { .. } | MarkKind::Ptwrite(_) => {}
            }
        }
        match stood {
            _ if gap => {
                self.stack.truncate(0, index, Left::Gap);
                self.root(index, to, Tag::AfterGap);
            }
            Some(stood) => self.taken_away(index, to, stood, None),
            None if moved => {}
            None => self.transfer(last, to, index),
        }
    }

    /// History ends with these marks, behind the instruction `last`. Calls end by them, but none begins: it would have no
    /// instruction.
    pub fn behind(&mut self, last: Option<&Source>, marks: &[Mark], index: u64) {
        if marks.iter().any(|mark| matches!(mark.kind, MarkKind::Gap(_))) {
            return self.stack.truncate(0, index, Left::Gap);
        }
        // The last instruction may be the `rt_sigreturn` of a handler, and what it went back to fault at once.
        let mut places = marks.iter().filter_map(|mark| match mark.kind {
            MarkKind::Interrupted { from, .. } => Some(from),
            MarkKind::LeftUser {
                resumed: Resumed::Elsewhere(at),
                ..
            } => Some(at),
            _ => None,
        });
        if last.is_some_and(|last| last.way == Way::Far)
            && let Some(to) = places.next()
        {
            self.handled(to, index);
        }
    }

    /// The innermost handler that interrupted the thread at `to` went back there; gives whether there is one.
    fn handled(&mut self, to: Avma, index: u64) -> bool {
        let Some(at) = self.stack.interrupted_at(to) else {
            return false;
        };
        self.stack.truncate(at + 1, index, Left::Unwound);
        self.stack.pop(index, Left::SignalReturn);
        true
    }

    /// The places by number, how many calls began, and what else has happened.
    pub fn finish(self) -> (Vec<Avma>, u32, Log) {
        let (began, log) = self.stack.finish();
        (self.places.into_addresses(), began, log)
    }

    /// Opens a call.
    #[inline]
    fn open(&mut self, index: u64, to: Place, tag: Tag, returns_to: u32, signal: Option<Signal>) {
        let entry = Entry {
            to,
            tag,
            returns_to,
            signal,
        };
        self.stack.push(index, entry);
    }

    /// Opens a call that is inside of no other.
    fn root(&mut self, index: u64, to: Place, tag: Tag) {
        self.open(index, to, tag, NONE, None);
    }

    /// The innermost call turns out to be one of another function.
    fn rename(&mut self, to: Place) {
        self.stack.rename(to);
    }

    /// An instruction and what follows it, nothing between.
    #[inline]
    pub fn transfer(&mut self, from: &Source, to: Place, index: u64) {
        // Most are jumps inside of a function.
        let jumps = matches!(from.way, Way::Conditional | Way::Jump);
        if !(jumps && self.runs(to.function) && (to.is_known() || !from.glue)) {
            self.pass(from, to, index);
        }
    }

    /// The same, where it may be more than a jump inside of a function.
    fn pass(&mut self, from: &Source, to: Place, index: u64) {
        if from.falls(to) {
            return;
        }
        match from.way {
            Way::Return if self.stack.pop_called(to.id, index) => {}
            Way::Call | Way::IndirectCall => self.open(index, to, Tag::Call, from.behind, None),
            Way::Return => self.returned(from, to, index),
            // A return made by hand: `pop %rcx; jmp *%rcx`.
            Way::IndirectJump if self.expects(to.id) => self.returned(from, to, index),
            Way::Conditional | Way::Jump | Way::IndirectJump => self.jump(from, to, index),
            // Only where the kernel is traced too: a system call begins, or one ends.
            Way::Far => self.taken_away(index, to, self.next(from), Some(self.pc(from))),
            Way::Sequential => self.elsewhere(to, index),
        }
    }

    /// A jump stays in the function that it is `inside` of.
    #[inline]
    pub fn stays(&self, inside: u32, from: &Source, to: Place) -> bool {
        if !to.is_known() {
            return inside == Place::UNKNOWN && !from.glue || self.places.contains(inside, to);
        }
        to.function == inside || self.places.contains(inside, to)
    }

    /// A jump is a call when it leaves its function for another.
    fn jump(&mut self, from: &Source, to: Place, index: u64) {
        let inside = self.inside();
        if self.stays(inside, from, to) {
            return;
        }
        let was_inside = inside != Place::UNKNOWN;
        if from.glue {
            // Out of a linkage stub, or of the resolver behind it: this is the call that was meant.
            return self.rename(to);
        }
        if !to.is_known() {
            if was_inside {
                self.tail_call(to, index);
            }
            return;
        }
        if self.places.is_start(to) {
            return self.tail_call(to, index);
        }
        // Only an indirect jump ends calls on its way: a direct one stays among the parts of one function.
        let base = self.stack.base();
        let ends_calls = from.way == Way::IndirectJump;
        match self.stack.running(to).filter(|&at| ends_calls || at >= base) {
            Some(at) => self.unwind(at, index),
            // From code without symbols into the middle of a function: that is where we were.
            None if !was_inside => self.rename(to),
            None if from.way == Way::IndirectJump && self.suspended.contains(&to.id) => {
                self.resume(base, to, index);
            }
            // An exception's landing pad or another stack, in a call that history does not have.
            None if from.way == Way::IndirectJump => self.lose(to, index),
            None => self.tail_call(to, index),
        }
    }

    /// The call that jumps stays open under the one it jumps to. Functions that jump to each other
    /// in turn do not pile up: one that is in the chain already takes its former place.
    fn tail_call(&mut self, to: Place, index: u64) {
        let base = self.stack.base();
        if let Some(at) = self.stack.running_from(base, to) {
            self.stack.truncate(at.max(base + 1), index, Left::TailCall);
        }
        let returns_to = self.stack.top().map_or(NONE, |top| top.returns_to);
        self.open(index, to, Tag::TailCall, returns_to, None);
    }

    /// A near return.
    #[inline]
    fn returned(&mut self, from: &Source, to: Place, index: u64) {
        let base = self.stack.base();
        let expected = self.stack.frame(base).map_or(NONE, |frame| frame.returns_to);
        if expected == to.id {
            return self.leave(base, index, Left::Return);
        }
        self.returned_elsewhere(base, from, to, index);
    }

    /// A near return, not to where the innermost call, whose frame is at `base`, returns.
    #[cold]
    fn returned_elsewhere(&mut self, base: usize, from: &Source, to: Place, index: u64) {
        if let Some(at) = self.stack.expecting(to.id) {
            // What lies above was left in a way that was not seen, or for another stack.
            if let Some(left) = self.stack.frame(base).filter(|left| left.returns_to != NONE) {
                self.suspended.insert(left.returns_to);
            }
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        if self.stack.signal(base).is_some() {
            // Into the code that calls `rt_sigreturn`; the handler's call ends there.
            self.stack.truncate(base + 1, index, Left::Return);
            return self.stack.handler_returned();
        }
        if from.glue {
            return self.rename(to);
        }
        if base == 0 {
            // Below all that is known: into the caller of the outermost call.
            return self.adopt(to, index);
        }
        if self.places.is_start(to) {
            // A return that is a jump to a function, which shares the return of the one that made it.
            if self.is_inside_caller(base) {
                // A retpoline: what it called of itself, to put that return address there, ends.
                self.leave(base, index, Left::Return);
            }
            return self.tail_call(to, index);
        }
        if self.stack.is_resumed(base) || self.suspended.contains(&to.id) {
            return self.resume(base, to, index);
        }
        if let Some(at) = self.stack.running(to).filter(|&at| at < base) {
            // An exception's landing pad, or `longjmp` done by a return.
            return self.stack.truncate(at + 1, index, Left::Unwound);
        }
        self.lose(to, index);
    }

    /// The frame at `base` is of a call that a function made of code in itself.
    fn is_inside_caller(&self, base: usize) -> bool {
        let function = |at: usize| self.stack.frame(at).map(|frame| frame.function);
        function(base) == base.checked_sub(1).and_then(function)
    }

    /// The stack was switched to one on which the function at `to` goes on; or one goes on that the resumed one at `base`
    /// returned to.
    fn resume(&mut self, base: usize, to: Place, index: u64) {
        if self.stack.is_resumed(base) {
            self.leave(base, index, Left::Return);
        }
        self.open(index, to, Tag::Resumed, NONE, None);
    }

    /// Nothing is known of what was open when flow came to `to`.
    fn lose(&mut self, to: Place, index: u64) {
        self.stack.truncate(0, index, Left::Unknown);
        self.root(index, to, Tag::Unknown);
    }

    /// Ends the call at `base` and those it ended with jumps to.
    #[inline]
    fn leave(&mut self, base: usize, index: u64, left: Left) {
        let chain = self.stack.len() > base + 1;
        if chain {
            self.stack.pop(index, left);
            self.stack.truncate(base, index, Left::TailCall);
        } else {
            self.stack.truncate(base, index, left);
        }
    }

    /// Opens a root around the one there is, which returned into it.
    fn adopt(&mut self, to: Place, index: u64) {
        let mut left = Left::Return;
        if self.stack.len() > 1 {
            self.stack.pop(index, left);
            left = Left::TailCall;
        }
        self.stack.truncate(1, index, left);
        if self.stack.pop(index, left) {
            self.stack.adopt(to);
        }
    }

    /// Goes back into the open call at `at`: by a jump out of a part of it that lies elsewhere, or
    /// over calls that never return.
    fn unwind(&mut self, at: usize, index: u64) {
        let left = if at >= self.stack.base() {
            Left::TailCall
        } else {
            Left::Unwound
        };
        self.stack.truncate(at + 1, index, left);
    }

    /// Tracing went off after an instruction and on again at `to`.
    fn back(&mut self, from: &Source, to: Place, index: u64) {
        match from.way {
            Way::Far => self.taken_away(index, to, self.next(from), Some(self.pc(from))),
            Way::Return => {
                // Out of a filter's range, and back in.
                self.leave(self.stack.base(), index, Left::Return);
                self.elsewhere(to, index);
            }
            _ => self.elsewhere(to, index),
        }
    }

    /// The kernel took the thread from where it was to `to`: into a signal handler, or out of one.
    fn taken_away(&mut self, index: u64, to: Place, interrupted: Avma, restarts: Option<Avma>) {
        let at = self.places.address(to.id);
        if self.handled(at, index) || at == interrupted {
            return;
        }
        let top = self.stack.len().saturating_sub(1);
        let returned = self.stack.signal(top).filter(|signal| signal.returned);
        let (mut interrupted, mut restarts) = (interrupted, restarts);
        if let Some(signal) = returned {
            self.stack.pop(index, Left::SignalReturn);
            if !self.places.is_start(to) {
                // The handler changed where the thread goes on: within code of no known function that is still the call that
                // was interrupted, as a jump there would be.
                let inside = self.stack.top().is_some_and(|top| top.function == Place::UNKNOWN);
                return match inside && !to.is_known() {
                    true => (),
                    false => self.elsewhere(to, index),
                };
            }
            // Another signal was waiting: it interrupts the same place.
            (interrupted, restarts) = (signal.interrupted, signal.restarts);
        }
        if to.is_known() && !self.places.is_start(to) {
            // No handler begins there: one that began before history has returned.
            return self.lose(to, index);
        }
        let signal = Some(Signal {
            interrupted,
            restarts,
            returned: false,
        });
        self.open(index, to, Tag::Signal, NONE, signal);
    }

    /// Flow goes on at `to`, and it is not known how it came there.
    fn elsewhere(&mut self, to: Place, index: u64) {
        if let Some(at) = self.stack.expecting(to.id) {
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        let inside = to.is_known() && !self.places.is_start(to);
        match self.stack.running(to).filter(|_| inside) {
            Some(at) => self.stack.truncate(at + 1, index, Left::Unwound),
            None => {
                self.stack.truncate(0, index, Left::Unknown);
                self.root(index, to, Tag::Unknown);
            }
        }
    }
}
