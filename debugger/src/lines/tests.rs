//! Line starts of made histories: one case a test.

use super::*;
use crate::code::LineId;
use backtrail_decoder::{Functions, HistoryBuilder, Sink};
use backtrail_pt::{Avma, Tid};
use std::collections::HashMap;
use std::ops::Range;

mod far;
mod repeated;

/// Two functions: `main` at 0x100, which has a copy of another inlined at 0x110, and `callee` at
/// 0x200.
struct Program {
    lines: HashMap<u64, (u32, u32)>,
}

impl Lines for Program {
    fn statement(&self, at: CodePoint) -> Option<Statement> {
        let &(chain, line) = self.lines.get(&at.pc.0)?;
        Some(Statement {
            chain: ChainId::of_number(chain),
            line: LineId::of_number(line),
        })
    }

    fn chain(&self, at: CodePoint) -> ChainId {
        self.statement(at)
            .map(|statement| statement.chain)
            .unwrap_or_default()
    }

    fn function(&self, at: CodePoint) -> Vec<Range<Avma>> {
        self.range_of(at.pc).into_iter().collect()
    }

    fn module(&self, _: CodePoint) -> Option<Range<Avma>> {
        None
    }

    fn around(&self, chain: ChainId) -> Option<ChainId> {
        (chain != ChainId::default()).then(ChainId::default)
    }
}

impl Functions for Program {
    fn range_of(&self, pc: Avma) -> Option<Range<Avma>> {
        let start = Avma(pc.0 & !0xff);
        Some(start..start + 0x100)
    }
}

/// (address, chain, line) of each instruction, in the order of execution; line 0 is no statement.
const MAIN_ENTRY: (u64, u32, u32) = (0x100, 0, 1);
const CALL: (u64, u32, u32) = (0x101, 0, 2);
const AFTER_CALL: (u64, u32, u32) = (0x106, 0, 2);
const CALLEE: [(u64, u32, u32); 2] = [(0x200, 0, 10), (0x201, 0, 11)];

struct ExpectedTrace {
    program: Program,
    history: History,
    forest: Forest,
}

fn trace(executed: &[(u64, u32, u32)]) -> ExpectedTrace {
    let lines = executed.iter().filter(|(_, _, line)| *line != 0);
    let program = Program {
        lines: lines.map(|&(pc, chain, line)| (pc, (chain, line))).collect(),
    };
    let mut builder = HistoryBuilder::new(Tid(1));
    for &(pc, _, _) in executed {
        let (len, cofi) = match pc {
            0x101 => (5, Cofi::Call { target: Avma(0x200) }),
            0x201 => (1, Cofi::Return),
            // The backward jump of the loop.
            0x10f => (1, Cofi::Jump { target: Avma(0x107) }),
            _ => (1, Cofi::Sequential),
        };
        builder.instruction(Avma(pc), len, cofi);
    }
    let history = builder.finish();
    let forest = Forest::build(&history, &program, &Watch::none()).unwrap();
    ExpectedTrace {
        program,
        history,
        forest,
    }
}

impl ExpectedTrace {
    fn with<T>(&self, with: impl FnOnce(&LineStarts<'_>) -> T) -> T {
        let watch = Watch::none();
        with(&LineStarts {
            history: &self.history,
            is_partial: false,
            forest: &self.forest,
            lines: &self.program,
            statements: &Statements::default(),
            filter: None,
            watch: &watch,
        })
    }

    fn starts(&self) -> Vec<u64> {
        self.with(|lines| {
            (0..self.history.len())
                .filter(|&at| lines.is_start(at).unwrap())
                .collect()
        })
    }
}

#[test]
fn the_rest_of_a_line_after_a_call_is_no_start() {
    let trace = trace(&[MAIN_ENTRY, CALL, CALLEE[0], CALLEE[1], AFTER_CALL, (0x107, 0, 3)]);
    assert_eq!(trace.starts(), [0, 1, 2, 3, 5]);
}

#[test]
fn code_that_is_no_statement_neither_starts_nor_ends_a_line() {
    let trace = trace(&[
        MAIN_ENTRY,
        (0x107, 0, 0),
        (0x108, 0, 1),
        (0x109, 0, 0),
        (0x10a, 0, 3),
    ]);
    assert_eq!(trace.starts(), [0, 4]);
}

#[test]
fn an_inlined_copy_counts_as_a_call() {
    let inlined = [(0x110, 1, 20), (0x111, 1, 21)];
    let trace = trace(&[
        (0x10e, 0, 2),
        inlined[0],
        inlined[1],
        (0x112, 0, 2),
        (0x113, 0, 3),
    ]);
    assert_eq!(trace.starts(), [0, 1, 2, 4]);
    trace.with(|lines| {
        let outer = lines.frame(0).unwrap();
        assert_eq!(lines.next_in_frame(0, outer, 5).ok(), Some(Some(4)));
        assert_eq!(lines.previous_in_frame(4, outer, 0).ok(), Some(Some(0)));
        let inner = lines.frame(1).unwrap();
        assert_eq!(lines.next_in_frame(2, inner, 5).ok(), Some(Some(4)));
        assert_eq!(lines.previous_in_frame(1, inner, 0).ok(), Some(Some(0)));
    });
}

#[test]
fn a_loop_over_two_lines_starts_each_line_again() {
    let one = trace(&[(0x107, 0, 3), (0x10f, 0, 3), (0x107, 0, 3), (0x10f, 0, 3)]);
    assert_eq!(one.starts(), [0]);
    let two = trace(&[(0x107, 0, 3), (0x10f, 0, 4), (0x107, 0, 3), (0x10f, 0, 4)]);
    assert_eq!(two.starts(), [0, 1, 2, 3]);
}

#[test]
fn next_passes_over_a_call_and_comes_out_of_one() {
    let trace = trace(&[MAIN_ENTRY, CALL, CALLEE[0], CALLEE[1], AFTER_CALL, (0x107, 0, 3)]);
    trace.with(|lines| {
        let main = lines.frame(1).unwrap();
        assert_eq!(lines.next_in_frame(1, main, 6).ok(), Some(Some(5)));
        assert_eq!(lines.previous_in_frame(5, main, 0).ok(), Some(Some(1)));
        let callee = lines.frame(3).unwrap();
        assert_ne!(callee.call, main.call);
        assert_eq!(lines.next_in_frame(3, callee, 6).ok(), Some(Some(5)));
        assert_eq!(lines.previous_in_frame(2, callee, 0).ok(), Some(Some(1)));
        assert_eq!(lines.next_start(1, 6).ok(), Some(Some(2)));
        assert_eq!(lines.previous_start(5, 0).ok(), Some(Some(3)));
    });
}

#[test]
fn the_end_and_the_limits_hold() {
    let trace = trace(&[MAIN_ENTRY, (0x107, 0, 3), (0x108, 0, 4)]);
    trace.with(|lines| {
        assert_eq!(lines.next_start(2, 3).ok(), Some(None));
        assert_eq!(lines.next_start(0, 1).ok(), Some(None));
        assert_eq!(lines.previous_start(3, 0).ok(), Some(Some(2)));
        assert_eq!(lines.previous_start(2, 2).ok(), Some(None));
        assert_eq!(lines.previous_start(0, 0).ok(), Some(None));
    });
}
