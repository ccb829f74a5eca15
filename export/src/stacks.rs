//! Adds up the cost of each stack.

use crate::{EventKind, FunctionId, Functions, Result, Timeline, Track};
use backtrail_decoder::Watch;
use rustc_hash::FxHashMap;

/// A stack: its innermost function and its calling stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The index of the calling stack. `None` for an outermost function.
    pub caller: Option<u32>,
    pub function: FunctionId,
    pub cost: Cost,
}

/// The self cost of a stack's innermost function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The number of calls.
    pub calls: u64,
    pub instructions: u64,
    /// The time in the timeline's unit.
    pub time: u64,
}

/// The stacks of a track.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    list: Vec<Stack>,
    known: FxHashMap<(Option<u32>, FunctionId), u32>,
}

/// The deepest stack. Deeper calls count for their outermost caller at this depth, because listing
/// the functions of every stack takes quadratic time.
pub(crate) const MAX_DEPTH: usize = 1024;

impl Stacks {
    /// Computes the stacks of a track.
    pub fn of(
        timeline: &Timeline<'_>,
        track: &Track<'_>,
        functions: &mut Functions,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let mut stacks = Self::default();
        let mut open: Vec<u32> = Vec::new();
        // The number of open calls beyond that depth.
        let mut deeper = 0_u64;
        let mut last = None;
        timeline.for_each_event(track, functions, watch, &mut |_, event| {
            let (at, index) = last
                .replace((event.at, event.index))
                .unwrap_or((event.at, event.index));
            let running = open.last().and_then(|&stack| stacks.list.get_mut(stack as usize));
            if let Some(running) = running {
                running.cost.time += event.at - at;
                running.cost.instructions += event.index.saturating_sub(index);
            }
            match event.kind {
                EventKind::Enter(_) if open.len() == MAX_DEPTH => deeper += 1,
                EventKind::Enter(function) => {
                    let stack = stacks.called(open.last().copied(), function);
                    open.push(stack);
                }
                EventKind::Leave if deeper > 0 => deeper -= 1,
                EventKind::Leave => {
                    open.pop();
                }
                EventKind::Instant(_) => {}
            }
            Ok(())
        })?;
        Ok(stacks)
    }

    /// Returns the index of the stack for a call of `function`, and counts the call.
    fn called(&mut self, caller: Option<u32>, function: FunctionId) -> u32 {
        let next = self.list.len() as u32;
        let stack = *self.known.entry((caller, function)).or_insert(next);
        if stack == next {
            self.list.push(Stack {
                caller,
                function,
                cost: Cost::default(),
            });
        }
        if let Some(stack) = self.list.get_mut(stack as usize) {
            stack.cost.calls += 1;
        }
        stack
    }

    /// Iterates over the stacks, callers before callees.
    pub fn iter(&self) -> impl Iterator<Item = &Stack> {
        self.list.iter()
    }

    /// Iterates over the functions of a stack, innermost first.
    pub fn functions<'s>(&'s self, stack: &'s Stack) -> impl Iterator<Item = FunctionId> + 's {
        let caller = |stack: &&'s Stack| self.list.get(stack.caller? as usize);
        std::iter::successors(Some(stack), caller).map(|stack| stack.function)
    }
}
