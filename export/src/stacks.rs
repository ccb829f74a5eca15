//! The sum of each stack's costs.

use crate::{FunctionId, Functions, Kind, Result, Timeline, Track};
use backtrail_decoder::Watch;
use rustc_hash::FxHashMap;

/// A stack by its innermost function and the stack below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stack {
    /// The number of the stack that called; `None`: nothing did.
    pub caller: Option<u32>,
    pub function: FunctionId,
    pub cost: Cost,
}

/// The own cost of the innermost function of a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// How often it was called there.
    pub calls: u64,
    pub instructions: u64,
    /// In the timeline's unit.
    pub time: u64,
}

/// The stacks of a track.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    list: Vec<Stack>,
    known: FxHashMap<(Option<u32>, FunctionId), u32>,
}

/// The largest depth of a stack. Deeper calls count for the last listed one. The size of the list
/// of all stacks grows with the square of the depth.
pub(crate) const DEEPEST: usize = 1024;

impl Stacks {
    /// Those of a track.
    pub fn of(
        timeline: &Timeline<'_>,
        track: &Track<'_>,
        functions: &mut Functions,
        watch: &Watch<'_>,
    ) -> Result<Self> {
        let mut stacks = Self::default();
        let mut open: Vec<u32> = Vec::new();
        // How many calls are open beyond those.
        let mut deeper = 0_u64;
        let mut last = None;
        timeline.tell(track, functions, watch, &mut |_, event| {
            let (at, index) = last
                .replace((event.at, event.index))
                .unwrap_or((event.at, event.index));
            let running = open.last().and_then(|&stack| stacks.list.get_mut(stack as usize));
            if let Some(running) = running {
                running.cost.time += event.at - at;
                running.cost.instructions += event.index.saturating_sub(index);
            }
            match event.kind {
                Kind::Enter(_) if open.len() == DEEPEST => deeper += 1,
                Kind::Enter(function) => {
                    let stack = stacks.called(open.last().copied(), function);
                    open.push(stack);
                }
                Kind::Leave if deeper > 0 => deeper -= 1,
                Kind::Leave => {
                    open.pop();
                }
                Kind::Moment(_) => {}
            }
            Ok(())
        })?;
        Ok(stacks)
    }

    /// A function is called by a stack.
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

    /// All of them, callers before callees.
    pub fn iter(&self) -> impl Iterator<Item = &Stack> {
        self.list.iter()
    }

    /// The functions of a stack, innermost first.
    pub fn functions<'s>(&'s self, stack: &'s Stack) -> impl Iterator<Item = FunctionId> + 's {
        let caller = |stack: &&'s Stack| self.list.get(stack.caller? as usize);
        std::iter::successors(Some(stack), caller).map(|stack| stack.function)
    }
}
