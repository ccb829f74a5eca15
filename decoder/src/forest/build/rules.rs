//! The rules by which instructions become calls.
//!
//! The start of a history, the instructions after a gap, and code without symbols leave some calls
//! unknown. Each rule states a fallback, which the next return to an open call corrects.

use crate::forest::code_sites::{CodeSite, CodeSites, FunctionIdx, SiteIdx};
use crate::forest::effects::Op;
use crate::forest::stack::{Entry, Signal, Stack, StackLog};
use crate::forest::{EntryKind, Functions, Left};
use crate::{Instruction, Mark, MarkKind, Resumed, Version};
use backtrail_pt::{Avma, Cofi};
use rustc_hash::FxHashSet;

pub(super) struct Rules<'a> {
    pub sites: CodeSites<'a>,
    stack: Stack,
    /// The return sites of functions that were suspended by a stack switch.
    suspended: FxHashSet<SiteIdx>,
}

/// The last instruction before a transfer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// The site after it, which a call returns to.
    return_site: SiteIdx,
    len: u8,
    pub kind: TransferKind,
    /// Whether the instruction is between a call and the intended function (a linkage stub or the
    /// resolver).
    pub glue: bool,
}

/// A [`Cofi`] without its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransferKind {
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
    /// Returns the site after it.
    pub fn return_site(&self) -> SiteIdx {
        self.return_site
    }

    /// Returns whether the flow falls through: nothing is called or left.
    #[inline]
    pub fn falls(&self, to: CodeSite) -> bool {
        self.falls_to() == Some(to.id)
    }

    /// Returns the site that the flow may fall through to.
    #[inline]
    pub fn falls_to(&self) -> Option<SiteIdx> {
        // `call next` only reads its own address in position-independent code; nothing returns.
        let may = matches!(
            self.kind,
            TransferKind::Sequential
                | TransferKind::Conditional
                | TransferKind::Call
                | TransferKind::IndirectCall
        );
        may.then_some(self.return_site)
    }
}

impl<'a> Rules<'a> {
    pub fn new(functions: &'a dyn Functions) -> Self {
        Self {
            sites: CodeSites::new(functions),
            stack: Stack::default(),
            suspended: FxHashSet::default(),
        }
    }

    /// Looks up the last instruction before a transfer, in a version of the code.
    pub fn source(&mut self, last: Instruction, version: Version) -> Source {
        let kind = match last.cofi {
            Cofi::Sequential => TransferKind::Sequential,
            Cofi::Conditional { .. } => TransferKind::Conditional,
            Cofi::Jump { .. } => TransferKind::Jump,
            Cofi::Call { .. } => TransferKind::Call,
            Cofi::IndirectJump => TransferKind::IndirectJump,
            Cofi::IndirectCall => TransferKind::IndirectCall,
            Cofi::Return => TransferKind::Return,
            Cofi::FarTransfer => TransferKind::Far,
        };
        let return_site = self.sites.of(last.next(), version).id;
        if matches!(kind, TransferKind::Call | TransferKind::IndirectCall) {
            self.sites.mark_returned_to(return_site);
        }
        let jumps = !matches!(
            kind,
            TransferKind::Sequential | TransferKind::Call | TransferKind::IndirectCall | TransferKind::Far
        );
        Source {
            return_site,
            len: last.len,
            kind,
            glue: jumps && self.sites.is_glue(last.pc, version),
        }
    }

    /// Returns the address after an instruction.
    fn next(&self, from: &Source) -> Avma {
        self.sites.address(from.return_site)
    }

    /// Returns the address of an instruction.
    fn pc(&self, from: &Source) -> Avma {
        Avma(self.next(from).0.wrapping_sub(u64::from(from.len)))
    }

    /// Returns whether the innermost call is of this function, or of an unknown one for
    /// [`FunctionIdx::UNKNOWN`].
    #[inline]
    pub fn is_innermost(&self, function: FunctionIdx) -> bool {
        self.stack.top().is_some_and(|top| top.function == function)
    }

    /// Returns whether the innermost call returns to a site.
    pub fn returns(&self, to: CodeSite) -> bool {
        let base = self.stack.frame(self.stack.base());
        base.is_some_and(|frame| frame.returns_to == to.id)
    }

    /// Returns whether an open call returns to a site.
    #[inline]
    pub fn expects(&mut self, site: SiteIdx) -> bool {
        self.sites.may_be_returned_to(site) && self.stack.expecting(site).is_some()
    }

    /// Returns the number of open calls.
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// Swaps the open calls with another stack.
    pub fn exchange(&mut self, stack: &mut Stack) {
        std::mem::swap(&mut self.stack, stack);
    }

    /// Returns the stack and the sites.
    #[inline]
    pub fn parts(&mut self) -> (&mut Stack, &CodeSites<'a>) {
        (&mut self.stack, &self.sites)
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

    /// Returns the number of calls started.
    pub fn began(&self) -> u32 {
        self.stack.began()
    }

    /// Opens a placeholder for any call of a function.
    pub fn push_placeholder(&mut self, function: FunctionIdx) {
        self.stack.push_placeholder(function);
    }

    /// Returns the function of the innermost call.
    #[inline]
    pub fn inside(&self) -> FunctionIdx {
        self.stack.top().map_or(FunctionIdx::UNKNOWN, |top| top.function)
    }

    /// Returns the position of the call whose return the innermost one shares.
    pub fn base(&self) -> usize {
        self.stack.base()
    }

    /// Returns whether a call of the site's function is open.
    pub fn is_running(&mut self, site: CodeSite) -> bool {
        self.stack.running(site).is_some()
    }

    /// Ends all open calls by one return.
    pub fn leave_all(&mut self, index: u64) {
        self.leave(0, index, Left::Return);
    }

    /// Handles the marks between the instruction `last` and the one at `to`, which has number
    /// `index` and executes in `version` of the code.
    pub fn between<'m>(
        &mut self,
        last: Option<&Source>,
        mut marks: impl Iterator<Item = &'m Mark>,
        to: CodeSite,
        index: u64,
        version: Version,
    ) {
        let Some(last) = last.filter(|_| !self.stack.is_empty()) else {
            marks.by_ref().for_each(drop);
            return self.root(index, to, EntryKind::HistoryStart);
        };
        let mut gap = false;
        // The address at which the thread was interrupted, and has not moved since.
        let mut stopped_at = None;
        let mut moved = false;
        for mark in marks {
            match mark.kind {
                MarkKind::Gap(_) => gap = true,
                _ if gap => {}
                MarkKind::Interrupted { from, .. } => {
                    match stopped_at {
                        Some(stopped_at) => {
                            let from = self.sites.of(from, version);
                            self.interrupted_to(index, from, stopped_at, None);
                        }
                        None if !moved => {
                            let from = self.sites.of(from, version);
                            self.transfer(last, from, index);
                        }
                        None => {}
                    }
                    (stopped_at, moved) = (Some(from), true);
                }
                MarkKind::LeftUser { resumed, .. } => {
                    if let Resumed::Elsewhere(at) = resumed {
                        let at = self.sites.of(at, version);
                        self.back(last, at, index);
                    }
                    moved = true;
                }
                MarkKind::Descheduled { .. } | MarkKind::Ptwrite(_) => {}
            }
        }
        match stopped_at {
            _ if gap => {
                self.stack.truncate(0, index, Left::Gap);
                self.root(index, to, EntryKind::AfterGap);
            }
            Some(stopped_at) => self.interrupted_to(index, to, stopped_at, None),
            None if moved => {}
            None => self.transfer(last, to, index),
        }
    }

    /// Ends the history with these marks after the instruction `last`. They end calls, but start
    /// none, because it would have no instruction.
    pub fn end_history(&mut self, last: Option<&Source>, marks: &[Mark], index: u64) {
        if marks.iter().any(|mark| matches!(mark.kind, MarkKind::Gap(_))) {
            return self.stack.truncate(0, index, Left::Gap);
        }
        // The last instruction may be the `rt_sigreturn` of a handler, after which the interrupted
        // code faulted at once.
        let mut sites = marks.iter().filter_map(|mark| match mark.kind {
            MarkKind::Interrupted { from, .. } => Some(from),
            MarkKind::LeftUser {
                resumed: Resumed::Elsewhere(at),
                ..
            } => Some(at),
            _ => None,
        });
        if last.is_some_and(|last| last.kind == TransferKind::Far)
            && let Some(to) = sites.next()
        {
            self.handled(to, index);
        }
    }

    /// Ends the innermost handler that interrupted the thread at `to`. Returns whether there is
    /// one.
    fn handled(&mut self, to: Avma, index: u64) -> bool {
        let Some(at) = self.stack.interrupted_at(to) else {
            return false;
        };
        self.stack.truncate(at + 1, index, Left::Unwound);
        self.stack.pop(index, Left::SignalReturn);
        true
    }

    /// Returns the sites' addresses, the number of calls started, and the log.
    pub fn finish(self) -> (Vec<Avma>, u32, StackLog) {
        let (began, log) = self.stack.finish();
        (self.sites.into_addresses(), began, log)
    }

    /// Opens a call.
    #[inline]
    fn open(
        &mut self,
        index: u64,
        to: CodeSite,
        tag: EntryKind,
        returns_to: SiteIdx,
        signal: Option<Signal>,
    ) {
        let entry = Entry {
            to,
            tag,
            returns_to,
            signal,
        };
        self.stack.push(index, entry);
    }

    /// Opens a root call.
    fn root(&mut self, index: u64, to: CodeSite, tag: EntryKind) {
        self.open(index, to, tag, SiteIdx::NONE, None);
    }

    /// Changes the function of the innermost call.
    fn rename(&mut self, to: CodeSite) {
        self.stack.rename(to);
    }

    /// Handles a transfer from an instruction to the next one executed.
    #[inline]
    pub fn transfer(&mut self, from: &Source, to: CodeSite, index: u64) {
        // Most transfers are jumps within a function.
        let jumps = matches!(from.kind, TransferKind::Conditional | TransferKind::Jump);
        if !(jumps && self.is_innermost(to.function) && (to.is_known() || !from.glue)) {
            self.pass(from, to, index);
        }
    }

    /// Handles a transfer that may be more than a jump within a function.
    fn pass(&mut self, from: &Source, to: CodeSite, index: u64) {
        if from.falls(to) {
            return;
        }
        match from.kind {
            TransferKind::Return if self.stack.pop_called(to.id, index) => {}
            TransferKind::Call | TransferKind::IndirectCall => {
                self.open(index, to, EntryKind::Call, from.return_site, None)
            }
            TransferKind::Return => self.returned(from, to, index),
            // A manual return: `pop %rcx; jmp *%rcx`.
            TransferKind::IndirectJump if self.expects(to.id) => self.returned(from, to, index),
            TransferKind::Conditional | TransferKind::Jump | TransferKind::IndirectJump => {
                self.jump(from, to, index)
            }
            // Only if the kernel is traced too: a system call starts or ends.
            TransferKind::Far => self.interrupted_to(index, to, self.next(from), Some(self.pc(from))),
            TransferKind::Sequential => self.unexplained(to, index),
        }
    }

    /// Returns whether a jump stays in the function `inside`.
    #[inline]
    pub fn stays(&self, inside: FunctionIdx, from: &Source, to: CodeSite) -> bool {
        if !to.is_known() {
            return inside == FunctionIdx::UNKNOWN && !from.glue || self.sites.contains(inside, to);
        }
        to.function == inside || self.sites.contains(inside, to)
    }

    /// Handles a jump. It is a call if it leaves its function for another.
    fn jump(&mut self, from: &Source, to: CodeSite, index: u64) {
        let inside = self.inside();
        if self.stays(inside, from, to) {
            return;
        }
        let was_inside = inside != FunctionIdx::UNKNOWN;
        if from.glue {
            // A jump out of a linkage stub or the resolver: this is the intended call.
            return self.rename(to);
        }
        if !to.is_known() {
            if was_inside {
                self.tail_call(to, index);
            }
            return;
        }
        if self.sites.is_start(to) {
            return self.tail_call(to, index);
        }
        // Only an indirect jump ends calls; a direct one stays among the parts of one function.
        let base = self.stack.base();
        let ends_calls = from.kind == TransferKind::IndirectJump;
        match self.stack.running(to).filter(|&at| ends_calls || at >= base) {
            Some(at) => self.unwind(at, index),
            // From code without symbols into the middle of a function: the call was of that
            // function.
            None if !was_inside => self.rename(to),
            None if from.kind == TransferKind::IndirectJump && self.suspended.contains(&to.id) => {
                self.resume(base, to, index);
            }
            // An exception's landing pad or another stack, in a call that the history does not
            // have.
            None if from.kind == TransferKind::IndirectJump => self.lose(to, index),
            None => self.tail_call(to, index),
        }
    }

    /// Opens a tail call above the jumping call, which stays open. Functions that jump to each
    /// other do not pile up: one already in the chain is replaced.
    fn tail_call(&mut self, to: CodeSite, index: u64) {
        let base = self.stack.base();
        if let Some(at) = self.stack.running_from(base, to) {
            self.stack.truncate(at.max(base + 1), index, Left::TailCall);
        }
        let returns_to = self.stack.top().map_or(SiteIdx::NONE, |top| top.returns_to);
        self.open(index, to, EntryKind::TailCall, returns_to, None);
    }

    /// Handles a near return.
    #[inline]
    fn returned(&mut self, from: &Source, to: CodeSite, index: u64) {
        let base = self.stack.base();
        let expected = self
            .stack
            .frame(base)
            .map_or(SiteIdx::NONE, |frame| frame.returns_to);
        if expected == to.id {
            return self.leave(base, index, Left::Return);
        }
        self.returned_elsewhere(base, from, to, index);
    }

    /// Handles a near return that does not match the innermost call, whose frame is at `base`.
    #[cold]
    fn returned_elsewhere(&mut self, base: usize, from: &Source, to: CodeSite, index: u64) {
        if let Some(at) = self.stack.expecting(to.id) {
            // The calls above were left without a trace, or suspended by a stack switch.
            if let Some(left) = self
                .stack
                .frame(base)
                .filter(|left| left.returns_to != SiteIdx::NONE)
            {
                self.suspended.insert(left.returns_to);
            }
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        if self.stack.signal(base).is_some() {
            // A return into the code that calls `rt_sigreturn`, which ends the handler's call.
            self.stack.truncate(base + 1, index, Left::Return);
            return self.stack.handler_returned();
        }
        if from.glue {
            return self.rename(to);
        }
        if base == 0 {
            // A return into the unknown caller of the outermost call.
            return self.adopt(to, index);
        }
        if self.sites.is_start(to) {
            // A return used as a jump to a function, which shares the return of the current call.
            if self.is_inside_caller(base) {
                // A retpoline: the call that it used to push its return address ends.
                self.leave(base, index, Left::Return);
            }
            return self.tail_call(to, index);
        }
        if self.stack.is_resumed(base) || self.suspended.contains(&to.id) {
            return self.resume(base, to, index);
        }
        if let Some(at) = self.stack.running(to).filter(|&at| at < base) {
            // An exception's landing pad, or `longjmp` by a return.
            return self.stack.truncate(at + 1, index, Left::Unwound);
        }
        self.lose(to, index);
    }

    /// Returns whether the frame at `base` is a call of a function by itself.
    fn is_inside_caller(&self, base: usize) -> bool {
        let function = |at: usize| self.stack.frame(at).map(|frame| frame.function);
        function(base) == base.checked_sub(1).and_then(function)
    }

    /// Opens a resumed call at `to` after a stack switch. If the call at `base` was resumed itself,
    /// it ends by this.
    fn resume(&mut self, base: usize, to: CodeSite, index: u64) {
        if self.stack.is_resumed(base) {
            self.leave(base, index, Left::Return);
        }
        self.open(index, to, EntryKind::Resumed, SiteIdx::NONE, None);
    }

    /// Ends all calls as unknown, and opens a root at `to`.
    fn lose(&mut self, to: CodeSite, index: u64) {
        self.stack.truncate(0, index, Left::Unknown);
        self.root(index, to, EntryKind::Unknown);
    }

    /// Ends the call at `base` and the tail calls that share its return.
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

    /// Adds a root around the outermost call, which returned into it.
    fn adopt(&mut self, to: CodeSite, index: u64) {
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

    /// Ends the calls above `at`, by a jump out of a separate part of it, or over calls that never
    /// return.
    fn unwind(&mut self, at: usize, index: u64) {
        let left = if at >= self.stack.base() {
            Left::TailCall
        } else {
            Left::Unwound
        };
        self.stack.truncate(at + 1, index, left);
    }

    /// Tracing was disabled after an instruction and enabled again at `to`.
    fn back(&mut self, from: &Source, to: CodeSite, index: u64) {
        match from.kind {
            TransferKind::Far => self.interrupted_to(index, to, self.next(from), Some(self.pc(from))),
            TransferKind::Return => {
                // A return out of a filter's range, and an entry into it.
                self.leave(self.stack.base(), index, Left::Return);
                self.unexplained(to, index);
            }
            _ => self.unexplained(to, index),
        }
    }

    /// Handles an asynchronous transfer of the thread to `to`: into a signal handler, or out of
    /// one.
    fn interrupted_to(&mut self, index: u64, to: CodeSite, interrupted: Avma, restarts: Option<Avma>) {
        let at = self.sites.address(to.id);
        if self.handled(at, index) || at == interrupted {
            return;
        }
        let top = self.stack.len().saturating_sub(1);
        let returned = self.stack.signal(top).filter(|signal| signal.returned);
        let (mut interrupted, mut restarts) = (interrupted, restarts);
        if let Some(signal) = returned {
            self.stack.pop(index, Left::SignalReturn);
            if !self.sites.is_start(to) {
                // The handler changed where the thread continues. In code of unknown functions it
                // is still the interrupted call, as after a jump there.
                let inside = self
                    .stack
                    .top()
                    .is_some_and(|top| top.function == FunctionIdx::UNKNOWN);
                return match inside && !to.is_known() {
                    true => (),
                    false => self.unexplained(to, index),
                };
            }
            // Another signal was pending: it interrupts the same site.
            (interrupted, restarts) = (signal.interrupted, signal.restarts);
        }
        if to.is_known() && !self.sites.is_start(to) {
            // No handler starts there: a handler from before the history has returned.
            return self.lose(to, index);
        }
        let signal = Some(Signal {
            interrupted,
            restarts,
            returned: false,
        });
        self.open(index, to, EntryKind::Signal, SiteIdx::NONE, signal);
    }

    /// Handles an unexplained transfer to `to`.
    fn unexplained(&mut self, to: CodeSite, index: u64) {
        if let Some(at) = self.stack.expecting(to.id) {
            self.stack.truncate(at + 1, index, Left::Unwound);
            return self.leave(at, index, Left::Return);
        }
        let inside = to.is_known() && !self.sites.is_start(to);
        match self.stack.running(to).filter(|_| inside) {
            Some(at) => self.stack.truncate(at + 1, index, Left::Unwound),
            None => {
                self.stack.truncate(0, index, Left::Unknown);
                self.root(index, to, EntryKind::Unknown);
            }
        }
    }
}
