//! The calls that led to each instruction of a trace.

use backtrail_profile::fdo::Binary;
use backtrail_pt::{Avma, Svma};
use rustc_hash::FxHashMap;

/// The calls that led to an instruction, as an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ContextIdx(u32);

/// No known call: the code was called by another binary.
const NO_CALLS: ContextIdx = ContextIdx(0);

/// The most calls of a context, as in the call chains of perf. Deeper recursion begins a new one.
const MAX_DEPTH: u32 = 127;
/// The most different contexts. Further ones have no calls.
const MAX_CONTEXTS: usize = 1 << 22;
/// The most callers that a return is compared with.
const MAX_SEARCH: usize = 1 << 10;

/// A context: the last call, and the calls that led to it.
#[derive(Clone, Copy, Debug)]
struct Context {
    caller: ContextIdx,
    call: Svma,
    depth: u32,
}

/// A call that has not returned, or an interruption by a signal.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    /// Where it returns to.
    return_to: Avma,
    /// The call instruction, if it is one of the binary.
    site: Option<Svma>,
    /// The context of the caller.
    context: ContextIdx,
}

/// The call stack of a thread, of which only calls in the binary are known by their places.
#[derive(Clone, Debug, Default)]
pub(super) struct CallStack {
    open: Vec<OpenCall>,
    current: ContextIdx,
    contexts: Vec<Context>,
    known: FxHashMap<(ContextIdx, Svma), ContextIdx>,
}

impl CallStack {
    /// Returns the context of the current instruction.
    pub(super) fn current(&self) -> ContextIdx {
        self.current
    }

    /// Enters a function. `site` is the call if it is in the binary.
    pub(super) fn call(&mut self, site: Option<Svma>, return_to: Avma) {
        self.open.push(OpenCall {
            return_to,
            site,
            context: self.current,
        });
        self.current = match site {
            Some(site) => self.context_of(self.current, site),
            None => NO_CALLS,
        };
    }

    fn context_of(&mut self, caller: ContextIdx, call: Svma) -> ContextIdx {
        let depth = self.context(caller).map_or(0, |context| context.depth);
        let (caller, depth) = match depth < MAX_DEPTH {
            true => (caller, depth + 1),
            false => (NO_CALLS, 1),
        };
        if let Some(known) = self.known.get(&(caller, call)) {
            return *known;
        }
        if self.contexts.len() >= MAX_CONTEXTS {
            return NO_CALLS;
        }
        self.contexts.push(Context { caller, call, depth });
        let index = ContextIdx(u32::try_from(self.contexts.len()).unwrap_or(0));
        self.known.insert((caller, call), index);
        index
    }

    fn context(&self, index: ContextIdx) -> Option<&Context> {
        let position = (index.0 as usize).checked_sub(1)?;
        self.contexts.get(position)
    }

    /// Leaves a function. `to` is the target if it is in the binary.
    pub(super) fn return_to(&mut self, target: Avma, to: Option<Svma>, binary: &impl Binary) {
        if !self.close(target) {
            self.unwind_to(to, binary);
        }
    }

    /// Closes the innermost call that returns to an address, and all calls in it. Returns whether
    /// there is one.
    fn close(&mut self, target: Avma) -> bool {
        let mut innermost = self.open.iter().rev().take(MAX_SEARCH);
        let Some(above) = innermost.position(|open| open.return_to == target) else {
            return false;
        };
        self.open.truncate(self.open.len() - above);
        if let Some(closed) = self.open.pop() {
            self.current = closed.context;
        }
        true
    }

    /// Goes on in a caller without a return, as `longjmp` and exceptions do. `to` is where, if it
    /// is in the binary.
    pub(super) fn unwind_to(&mut self, to: Option<Svma>, binary: &impl Binary) {
        let Some(to) = to else {
            return;
        };
        let ranges = binary.function_ranges(to);
        let is_of = |open: &OpenCall| {
            let mut ranges = ranges.iter();
            open.site
                .is_some_and(|site| ranges.any(|range| range.contains(&site)))
        };
        let mut innermost = self.open.iter().rev().take(MAX_SEARCH);
        let above = innermost.position(is_of);
        let kept = above.map_or(0, |above| self.open.len() - above);
        self.open.truncate(kept);
        self.current = self.open.pop().map_or(NO_CALLS, |closed| closed.context);
    }

    /// Goes on elsewhere, without a branch: in the handler of a signal, or back from one.
    pub(super) fn divert(&mut self, from: Avma, at: Avma) {
        if !self.close(at) {
            self.call(None, from);
        }
    }

    /// Forgets all calls, because history is missing.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.current = NO_CALLS;
    }

    /// Returns the calls of a context, the outermost first.
    pub(super) fn calls(&self, context: ContextIdx) -> Vec<Svma> {
        let mut calls = Vec::new();
        let mut at = context;
        while let Some(context) = self.context(at) {
            calls.push(context.call);
            at = context.caller;
        }
        calls.reverse();
        calls
    }
}
