//! The lengths of the calls of a profile, and examples of calls to open in the debugger.

use crate::Unit;
use backtrail_debugger::latency::{self, Span, Unmeasured};
use backtrail_decoder::Position;
use backtrail_profile::{
    CallExample, CallSummaries, CallSummary, FunctionProfile, Id, StackId, SymbolId, ThreadId,
};
use std::collections::BTreeMap;
use std::hash::Hash;

/// The lengths of calls, each with its stack and position.
#[derive(Debug)]
pub struct CallTimes {
    unit: Unit,
    measured: Vec<Measured>,
    unmeasured: Vec<(StackId, ThreadId, Unmeasured)>,
    /// The number of calls on stacks that are too deep for the profile.
    deep: u64,
}

/// A call with a known length.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// The stack of the profile that ends with the function.
    stack: StackId,
    thread: ThreadId,
    /// The first instruction.
    position: Position,
    span: Span,
    instructions: u64,
}

/// The calls of one function.
#[derive(Clone, Debug, Default)]
pub struct FunctionCalls {
    /// The slowest and a typical call.
    pub summary: CallSummary,
    /// The number of calls without a length, by reason.
    pub left_out: BTreeMap<Unmeasured, u64>,
}

impl CallTimes {
    pub(crate) fn new(unit: Unit) -> Self {
        Self {
            unit,
            measured: Vec::new(),
            unmeasured: Vec::new(),
            deep: 0,
        }
    }

    /// Returns the unit of the lengths.
    #[must_use]
    pub fn timer_unit(&self) -> latency::Unit {
        match self.unit {
            Unit::Nanoseconds => latency::Unit::Ns,
            Unit::Ticks => latency::Unit::Ticks,
            Unit::Instructions => latency::Unit::Instructions,
        }
    }

    /// Returns the number of calls below the deepest stacks of the profile. They have no stack, and
    /// belong to no function.
    #[must_use]
    pub fn deep(&self) -> u64 {
        self.deep
    }

    pub(crate) fn skip_deep(&mut self, is_call: bool) {
        self.deep += u64::from(is_call);
    }

    pub(crate) fn add(
        &mut self,
        stack: StackId,
        thread: ThreadId,
        position: Position,
        (span, instructions): (Result<Span, Unmeasured>, u64),
    ) {
        match span {
            Ok(span) => self.measured.push(Measured {
                stack,
                thread,
                position,
                span,
                instructions,
            }),
            Err(reason) => self.unmeasured.push((stack, thread, reason)),
        }
    }

    /// Keeps only the calls of threads for which `keeps` returns `true`.
    pub fn retain(&mut self, keeps: impl Fn(ThreadId) -> bool) {
        self.measured.retain(|call| keeps(call.thread));
        self.unmeasured.retain(|(_, thread, _)| keeps(*thread));
    }

    /// Returns examples for each function and each stack. `stacks` has the stack of `functions` for
    /// each stack of the profile.
    #[must_use]
    pub fn summaries(&self, functions: &FunctionProfile, stacks: &[StackId]) -> CallSummaries {
        let stack_of = |stack: StackId| stacks.get(stack.index()).copied();
        let symbol_of = |stack: StackId| innermost(functions, stack_of(stack)?);
        CallSummaries {
            unit: self.unit.name().to_owned(),
            by_function: self.summarize(symbol_of),
            by_stack: self.summarize(stack_of),
        }
    }

    /// Returns the calls of one function.
    #[must_use]
    pub fn of_function(
        &self,
        functions: &FunctionProfile,
        stacks: &[StackId],
        symbol: SymbolId,
    ) -> FunctionCalls {
        let is_of = |stack: StackId| {
            let stack = stacks.get(stack.index()).copied()?;
            (innermost(functions, stack)? == symbol).then_some(())
        };
        let mut left_out = BTreeMap::new();
        for (stack, _, reason) in &self.unmeasured {
            if is_of(*stack).is_some() {
                *left_out.entry(*reason).or_default() += 1;
            }
        }
        let mut summaries = self.summarize(is_of);
        FunctionCalls {
            summary: summaries.remove(&()).unwrap_or_default(),
            left_out,
        }
    }

    /// Returns examples of each group of calls. `group` returns the group of a stack.
    fn summarize<G: Copy + Ord + Hash>(
        &self,
        group: impl Fn(StackId) -> Option<G>,
    ) -> BTreeMap<G, CallSummary> {
        let mut calls: Vec<(G, &Measured)> = Vec::new();
        calls.extend(
            self.measured
                .iter()
                .filter_map(|call| Some((group(call.stack)?, call))),
        );
        // The sort is stable, so that the first of equally long calls is shown.
        calls.sort_by_key(|(group, call)| (*group, call.rank()));
        let mut summaries: BTreeMap<G, CallSummary> = BTreeMap::new();
        for calls in calls.chunk_by(|(one, _), (next, _)| one == next) {
            let longest = calls.last().map(|(_, call)| call.rank());
            let slowest = calls.partition_point(|(_, call)| Some(call.rank()) < longest);
            let half = calls.len().div_ceil(2).saturating_sub(1);
            let example = |at: usize| calls.get(at).map(|(_, call)| call.example());
            if let Some((group, _)) = calls.first() {
                let summary = CallSummary {
                    measured: calls.len() as u64,
                    left_out: 0,
                    slowest: example(slowest),
                    typical: example(half),
                };
                summaries.insert(*group, summary);
            }
        }
        for (stack, _, _) in &self.unmeasured {
            if let Some(group) = group(*stack) {
                summaries.entry(group).or_default().left_out += 1;
            }
        }
        summaries
    }
}

impl Measured {
    /// Returns the order of lengths: twice the middle between the bounds. Bounds are coarse where
    /// time stamps are rare, so that many are equal. Then the instructions decide.
    fn rank(&self) -> (u128, u64) {
        let middle = u128::from(self.span.least) + u128::from(self.span.most);
        (middle, self.instructions)
    }

    fn example(&self) -> CallExample {
        CallExample {
            position: self.position.to_string(),
            least: self.span.least,
            most: self.span.most,
            instructions: self.instructions,
        }
    }
}

/// Returns the function of a stack's innermost frame.
fn innermost(functions: &FunctionProfile, stack: StackId) -> Option<SymbolId> {
    functions.stacks.split(stack).map(|(_, site)| site.symbol)
}
