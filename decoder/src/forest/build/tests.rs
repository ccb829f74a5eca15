//! Tests that paths give the same calls as their blocks one by one.

use super::Builder;
use crate::block::Code;
use crate::forest::Forest;
use crate::forest::nodes::Nodes;
use crate::history::Flow;
use crate::{BlockId, Call, Functions, Gap, GapCause, Mark, MarkKind, PathIdx, Resumed, Watch};
use backtrail_pt::{Avma, Cofi};
use proptest::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A function every 0x20 bytes, the first two linkage stubs; none is known from [`KNOWN`] on.
struct Layout;

const KNOWN: u64 = 0xe0;
/// The end of the code.
const END: u64 = 0x100;

impl Functions for Layout {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !0x1f);
        (pc.0 < KNOWN).then(|| start..start + 0x20)
    }

    fn is_plt(&self, pc: Avma) -> bool {
        pc.0 < 0x40
    }
}

/// Pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

/// A machine that mostly does what a processor would do, and sometimes anything.
struct Machine {
    dice: Dice,
    at: u64,
    stack: Vec<u64>,
}

impl Machine {
    /// Returns the next block and moves to its target.
    fn step(&mut self, flow: &mut Flow, made: &mut [Option<BlockId>]) -> BlockId {
        let at = self.at;
        let target = Avma(0);
        let known = made.get(at as usize / 8).copied().flatten();
        let block = known.unwrap_or_else(|| {
            let cofi = match self.dice.below(12) {
                0..3 => Cofi::Call { target },
                3 => Cofi::IndirectCall,
                4..7 => Cofi::Return,
                7 => Cofi::Jump { target },
                8 => Cofi::IndirectJump,
                9 => Cofi::Sequential,
                10 if self.dice.below(8) == 0 => Cofi::FarTransfer,
                _ => Cofi::Conditional { target },
            };
            let code = [(0, Cofi::Sequential), (4, cofi)].map(|(offset, cofi)| Code { offset, len: 4, cofi });
            let block = flow.blocks.push(Avma(at), &code).unwrap();
            made[at as usize / 8] = Some(block);
            block
        });
        let last = flow.blocks.instruction(block, 1).unwrap();
        let start = self.dice.below(END / 0x20) * 0x20;
        let near = (at & !0x1f) + self.dice.below(4) * 8;
        let anywhere = self.dice.below(END / 8) * 8;
        self.at = match last.cofi {
            _ if self.dice.below(40) == 0 => anywhere,
            Cofi::Call { .. } | Cofi::IndirectCall => {
                self.stack.push((at + 8) % END);
                start
            }
            Cofi::Return => self.stack.pop().unwrap_or(anywhere),
            Cofi::Jump { .. } | Cofi::IndirectJump if self.dice.below(3) == 0 => start,
            Cofi::Jump { .. } | Cofi::IndirectJump | Cofi::Conditional { .. } => near,
            _ => (at + 8) % END,
        };
        if self.stack.len() > 100 {
            self.stack.clear();
        }
        block
    }
}

/// Returns the calls of a flow with these marks, each with its depth. Feeds `at_once` executions at
/// a time.
fn calls(flow: &Flow, marks: &[Mark], at_once: usize, functions: &dyn Functions) -> Vec<(Call, u32)> {
    let mut builder = Builder::new(functions);
    let (executed, total) = (flow.executions(), flow.len());
    let mut consumed = 0;
    for part in executed.chunks(at_once) {
        consumed += builder
            .feed(part, flow.table(), &marks[consumed..], total, &Watch::none())
            .unwrap();
    }
    let forest = builder.finish(Arc::new(flow.clone()), &marks[consumed..]);
    check(&forest);
    let calls = forest.ids().map(|id| (forest.call(id), forest.depth(id)));
    let calls: Vec<_> = calls.collect();
    // Deep calls are slow to check.
    let step = calls.len() / 200 + 1;
    for (id, (call, depth)) in forest.ids().zip(&calls).step_by(step) {
        assert_eq!(*depth as usize, forest.ancestors(id).count() - 1);
        assert_eq!(
            forest.call_at(call.first).map(|at| forest.call(at).first),
            Some(call.first)
        );
    }
    calls
}

/// Checks that calls looked up one by one equal the stored ones.
fn check(forest: &Forest) {
    let Forest { index, flow, .. } = forest;
    index.check(flow);
    let nodes = Nodes::new(index, flow, &Watch::none()).unwrap();
    for number in (0..forest.len() as u32).step_by(forest.len() / 100 + 1) {
        let call = index.call_ref(number).unwrap();
        assert_eq!(index.number(call), number);
        assert_eq!(
            index.node(call, flow),
            nodes.get(number),
            "call {number} is {call:?}"
        );
    }
}

fn same(seed: u64, functions: &dyn Functions) {
    let (mut flow, mut made) = (Flow::default(), vec![None; END as usize / 8]);
    let mut machine = Machine {
        dice: Dice(seed),
        at: 0x40,
        stack: Vec::new(),
    };
    for _ in 0..12 {
        let len = 1 + machine.dice.below(30);
        let parts: Vec<BlockId> = (0..len).map(|_| machine.step(&mut flow, &mut made)).collect();
        let path = flow.paths.push(&parts, &flow.blocks).unwrap();
        flow.execute(path);
    }
    let mut marks = Vec::new();
    // Repeat the same paths on arbitrary open calls, some several times in a row.
    for _ in 0..12 {
        let dice = &mut machine.dice;
        let count = 1 + dice.below(6);
        let path = |_| PathIdx(dice.below(12) as u32);
        let paths: Vec<PathIdx> = (0..count).map(path).collect();
        for _ in 0..1 + dice.below(12) {
            paths.iter().for_each(|&path| flow.execute(path));
        }
        if dice.below(3) == 0 {
            let kind = mark(dice);
            let index = flow.len();
            marks.push(Mark {
                index,
                kind,
                tsc: None,
            });
        }
    }
    compare(&flow, &marks, functions);
    compare(&flow, &[], functions);
}

/// Returns a mark.
fn mark(dice: &mut Dice) -> MarkKind {
    let at = Avma(dice.below(END / 8) * 8);
    match dice.below(4) {
        0 => MarkKind::Gap(Gap {
            cause: GapCause::Overflow,
            trace_offset: 0,
            resumed_offset: None,
        }),
        1 => MarkKind::Interrupted { from: at, back: None },
        2 => MarkKind::Descheduled { back: None },
        _ => MarkKind::LeftUser {
            resumed: Resumed::Elsewhere(at),
            back: None,
        },
    }
}

/// Checks that the calls of a flow equal those of its blocks one by one.
fn compare(flow: &Flow, marks: &[Mark], functions: &dyn Functions) {
    let mut single = Flow::default();
    single.blocks = flow.blocks.clone();
    for &path in flow.executions() {
        for &block in flow.paths.blocks(path) {
            let path = single.single(block).unwrap();
            single.execute(path);
        }
    }
    assert_eq!(single.len(), flow.len());
    // Single blocks use the rules: their successor is unknown.
    let wanted = calls(&single, marks, 1, functions);
    for at_once in [usize::MAX, 23, 7] {
        assert!(calls(flow, marks, at_once, functions) == wanted);
    }
}

#[test]
fn long_paths_make_the_calls_of_their_blocks() {
    let mut flow = Flow::default();
    let target = Avma(0);
    let [recurses, returns, calls, leaf, again] = [
        (0x40, Cofi::Call { target }),
        (0x48, Cofi::Return),
        (0x80, Cofi::Call { target }),
        (0xa0, Cofi::Return),
        (0x88, Cofi::Jump { target }),
    ]
    .map(|(start, cofi)| {
        let code = Code {
            offset: 0,
            len: 8,
            cofi,
        };
        flow.blocks.push(Avma(start), &[code]).unwrap()
    });
    let loops = [calls, leaf, again].repeat(1_000);
    let deep = [recurses].repeat(900);
    let back = [returns].repeat(900);
    for parts in [&deep, &loops, &back, &[&*deep, &loops, &back].concat(), &loops] {
        let path = flow.paths.push(parts, &flow.blocks).unwrap();
        // The first executions use the rules, not the summary.
        (0..4).for_each(|_| flow.execute(path));
    }
    compare(&flow, &[], &Layout);
    compare(&flow, &[], &());
}

/// In the first seed, a path returned over calls in the symbolic run, and the rules recorded a site
/// of it. In the others, a renamed call was jumped to again, at the end of the path and in it.
#[test]
fn symbolic_run_agrees_with_execution() {
    for seed in [
        2_149_404_718_918_554_713,
        8_053_047_183_113_036_803,
        14_109_733_533_144_209_052,
    ] {
        same(seed, &Layout);
        same(seed, &());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn paths_make_the_calls_of_their_blocks(seed: u64) {
        same(seed, &Layout);
        same(seed, &());
    }
}
