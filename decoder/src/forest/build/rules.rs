//! The rules by which instructions become calls.
//!
//! Where a history begins, after a gap, and in code without symbols, not all is known; each rule
//! says what then holds, and the next return that matches an open call puts the rest right.

use crate::forest::stack::{Entry, Signal, Stack};
use crate::forest::{Forest, Functions, Left, Tag};
use crate::{Instruction, Mark, MarkKind, Resumed};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::FxHashMap;
use std::ops::Range;

pub(super) struct Rules<'a> {
    functions: Known<'a>,
    stack: Stack,
}

impl<'a> Rules<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            functions: Known {
                functions,
                ranges: FxHashMap::default(),
            },
            stack: Stack::default(),
        }
    }

    /// Goes from the instruction `last` over `marks` to the one at `to`, which has number `index`.
    pub fn between<'m>(
        &mut self,
        last: Option<Instruction>,
        mut marks: impl Iterator<Item = &'m Mark>,
        to: Avma,
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
                        Some(stood) => self.taken_away(index, from, stood, None),
                        None if !moved => self.transfer(last, from, index),
                        None => {}
                    }
                    (stood, moved) = (Some(from), true);
                }
                MarkKind::LeftUser { resumed, .. } => {
                    if let Resumed::Elsewhere(at) = resumed {
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

    /// History ends in a gap.
    pub fn gap_at_end(&mut self, index: u64) {
        self.stack.truncate(0, index, Left::Gap);
    }

    pub fn finish(self, end: u64) -> Forest {
        self.stack.finish(end)
    }

    /// Opens a call that is inside of no other.
    fn root(&mut self, index: u64, at: Avma, tag: Tag) {
        let range = self.functions.range_of(at);
        self.stack.push(
            index,
            Entry {
                function: at,
                tag,
                returns_to: None,
                range,
                signal: None,
            },
        );
    }

    /// An instruction and what follows it, nothing between.
    fn transfer(&mut self, last: Instruction, to: Avma, index: u64) {
        match last.cofi {
            Cofi::Sequential if last.next() == to => {}
            Cofi::Conditional { .. } if last.next() == to => {}
            // `call next`: how position-independent code reads its own address; nothing returns.
            Cofi::Call { .. } | Cofi::IndirectCall if last.next() == to => {}
            Cofi::Call { .. } | Cofi::IndirectCall => self.call(last.next(), to, index),
            // A return made by hand: `pop %rcx; jmp *%rcx`.
            Cofi::IndirectJump if self.stack.expecting(to).is_some() => self.returned(last.pc, to, index),
            Cofi::Conditional { .. } | Cofi::Jump { .. } | Cofi::IndirectJump => {
                self.jump(last.pc, to, index);
            }
            Cofi::Return => self.returned(last.pc, to, index),
            // Only where the kernel is traced too: a system call begins, or one ends.
            Cofi::FarTransfer => self.taken_away(index, to, last.next(), Some(last.pc)),
            Cofi::Sequential => self.elsewhere(to, index),
        }
    }

    fn call(&mut self, returns_to: Avma, to: Avma, index: u64) {
        let range = self.functions.range_of(to);
        let returns_to = Some(returns_to);
        self.stack.push(
            index,
            Entry {
                function: to,
                tag: Tag::Call,
                returns_to,
                range,
                signal: None,
            },
        );
    }

    /// A jump is a call when it leaves its function for another.
    fn jump(&mut self, from: Avma, to: Avma, index: u64) {
        let inside = self.stack.top().and_then(|top| top.range.as_ref());
        if inside.is_some_and(|range| range.contains(&to)) {
            return;
        }
        let was_inside = inside.is_some();
        let target = self.functions.range_of(to);
        if self.functions.is_glue(from) {
            // Out of a linkage stub, or of the resolver behind it: this is the call that was meant.
            return self.stack.rename(to, target);
        }
        match target {
            Some(range) if range.start == to => self.tail_call(to, Some(range), index),
            Some(range) => match self.stack.running(range.start) {
                Some(at) => self.unwind(at, index),
                // From code without symbols into the middle of a function: that is where we were.
                None if !was_inside => self.stack.rename(to, Some(range)),
                None => self.tail_call(to, Some(range), index),
            },
            None if was_inside => self.tail_call(to, None, index),
            None => {}
        }
    }

    /// The call that jumps stays open under the one it jumps to. Functions that jump to each other
    /// in turn do not pile up: one that is in the chain already takes its former place.
    fn tail_call(&mut self, to: Avma, range: Option<Range<Avma>>, index: u64) {
        let base = self.stack.base();
        let former = range.as_ref().and_then(|range| self.stack.running(range.start));
        if let Some(at) = former.filter(|&at| at >= base) {
            self.stack.truncate(at.max(base + 1), index, Left::TailCall);
        }
        let returns_to = self.stack.top().and_then(|top| top.returns_to);
        let entry = Entry {
            function: to,
            tag: Tag::TailCall,
            returns_to,
            range,
            signal: None,
        };
        self.stack.push(index, entry);
    }

    /// A near return by the instruction at `from`.
    fn returned(&mut self, from: Avma, to: Avma, index: u64) {
        let base = self.stack.base();
        let expected = self.stack.frame(base).and_then(|frame| frame.returns_to);
        if expected == Some(to) {
            return self.leave(base, index, Left::Return);
        }
        if let Some(at) = self.stack.expecting(to) {
            // What lies above was left in a way that was not seen.
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        if self.stack.frame(base).is_some_and(|frame| frame.signal.is_some()) {
            // Into the code that calls `rt_sigreturn`; the handler's call ends there.
            self.stack.truncate(base + 1, index, Left::Return);
            return self.stack.handler_returned();
        }
        let target = self.functions.range_of(to);
        if self.functions.is_glue(from) {
            return self.stack.rename(to, target);
        }
        if target.as_ref().is_some_and(|range| range.start == to) {
            // A return that is a jump to a function, as in a retpoline: its own call ends, the
            // function shares the return of the one that made it.
            if base > 0 {
                self.leave(base, index, Left::Return);
            }
            return self.tail_call(to, target, index);
        }
        let owner = target.as_ref().and_then(|range| self.stack.running(range.start));
        if let Some(at) = owner.filter(|&at| at < base) {
            // An exception's landing pad, or `longjmp` done by a return.
            return self.stack.truncate(at + 1, index, Left::Unwound);
        }
        if base == 0 {
            // Below all that is known: into the caller of the outermost call.
            return self.adopt(to, target, index);
        }
        self.stack.truncate(0, index, Left::Unknown);
        self.root(index, to, Tag::Unknown);
    }

    /// Ends the call at `base` and those it ended with jumps to.
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
    fn adopt(&mut self, to: Avma, range: Option<Range<Avma>>, index: u64) {
        let mut left = Left::Return;
        if self.stack.len() > 1 {
            self.stack.pop(index, left);
            left = Left::TailCall;
        }
        self.stack.truncate(1, index, left);
        if let Some(root) = self.stack.pop(index, left) {
            self.stack.adopt(root, to, range);
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

    /// Tracing went off after `last` and on again at `to`.
    fn back(&mut self, last: Instruction, to: Avma, index: u64) {
        match last.cofi {
            Cofi::FarTransfer => self.taken_away(index, to, last.next(), Some(last.pc)),
            Cofi::Return => {
                // Out of a filter's range, and back in.
                self.leave(self.stack.base(), index, Left::Return);
                self.elsewhere(to, index);
            }
            _ => self.elsewhere(to, index),
        }
    }

    /// The kernel took the thread from where it was to `to`: into a signal handler, or out of one.
    fn taken_away(&mut self, index: u64, to: Avma, interrupted: Avma, restarts: Option<Avma>) {
        if let Some(at) = self.stack.interrupted_at(to) {
            self.stack.truncate(at + 1, index, Left::Unwound);
            self.stack.pop(index, Left::SignalReturn);
            return;
        }
        if to == interrupted {
            return;
        }
        let returned = self
            .stack
            .top()
            .and_then(|top| top.signal)
            .filter(|signal| signal.returned);
        let (mut interrupted, mut restarts) = (interrupted, restarts);
        if let Some(signal) = returned {
            self.stack.pop(index, Left::SignalReturn);
            let range = self.functions.range_of(to);
            if range.as_ref().is_none_or(|range| range.start != to) {
                // The handler changed where the thread goes on.
                return self.elsewhere(to, index);
            }
            // Another signal was waiting: it interrupts the same place.
            (interrupted, restarts) = (signal.interrupted, signal.restarts);
        }
        let range = self.functions.range_of(to);
        let signal = Some(Signal {
            interrupted,
            restarts,
            returned: false,
        });
        self.stack.push(
            index,
            Entry {
                function: to,
                tag: Tag::Signal,
                returns_to: None,
                range,
                signal,
            },
        );
    }

    /// Flow goes on at `to`, and it is not known how it came there.
    fn elsewhere(&mut self, to: Avma, index: u64) {
        if let Some(at) = self.stack.expecting(to) {
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        let range = self.functions.range_of(to);
        let owner = range.as_ref().and_then(|range| self.stack.running(range.start));
        match owner.filter(|_| range.as_ref().is_some_and(|range| range.start != to)) {
            Some(at) => self.stack.truncate(at + 1, index, Left::Unwound),
            None => {
                self.stack.truncate(0, index, Left::Unknown);
                self.root(index, to, Tag::Unknown);
            }
        }
    }
}

/// The functions, remembering what was asked.
struct Known<'a> {
    functions: &'a dyn Functions,
    ranges: FxHashMap<Avma, Option<Range<Avma>>>,
}

impl Known<'_> {
    fn range_of(&mut self, pc: Avma) -> Option<Range<Avma>> {
        let functions = self.functions;
        let found = self.ranges.entry(pc).or_insert_with(|| {
            // An answer that does not hold the address is no answer.
            functions.range_of(pc).filter(|range| range.contains(&pc))
        });
        found.clone()
    }

    /// Code between a call and the function meant.
    fn is_glue(&self, pc: Avma) -> bool {
        self.functions.is_plt(pc) || self.functions.is_resolver(pc)
    }
}
