//! Each pair of motions returns to its start, as its definition says.

use crate::definition::stretch::Stretch;
use backtrail_debugger::{Direction, Motion};
use backtrail_decoder::Entered;

/// Checks every pair from every position.
pub fn hold(stretch: &Stretch<'_>) {
    for from in stretch.low..stretch.high {
        instructions_and_lines(stretch, from);
        returns(stretch, from);
    }
}

fn instructions_and_lines(stretch: &Stretch<'_>, from: u64) {
    let returned = |motion: &Motion| {
        let there = stretch.target(motion, Direction::Forward, from);
        (there, stretch.target(motion, Direction::Backward, there))
    };
    assert_eq!(returned(&Motion::Instruction).1, from);
    if !stretch.is_start(from) {
        return;
    }
    assert_eq!(returned(&Motion::Step).1, from);
    let (next, back) = returned(&Motion::Next);
    let same_frame = stretch.steps.lines.frame(next) == stretch.frame(from);
    if same_frame && !stretch.is_edge(next) {
        assert_eq!(back, from, "next from {from} to {next}");
    }
}

/// `finish` and `reverse-finish` end on both sides of the call that `nexti` and `reverse-nexti`
/// pass.
fn returns(stretch: &Stretch<'_>, from: u64) {
    let forest = stretch.steps.lines.forest;
    let Some(call) = stretch.call(from).map(|call| forest.call(call)) else {
        return;
    };
    let inlined = stretch
        .frame(from)
        .is_some_and(|frame| frame.chain != Default::default());
    let known = matches!(call.entered, Entered::Call { .. });
    if inlined || !known || stretch.is_edge(call.end) {
        return;
    }
    let out = stretch.target(&Motion::Finish, Direction::Forward, from);
    let site = stretch.target(&Motion::Finish, Direction::Backward, from);
    assert_eq!((out, site + 1), (call.end, call.first));
    if forest.call_at(out) == call.parent {
        let over = |direction, at| stretch.target(&Motion::NextInstruction, direction, at);
        assert_eq!(over(Direction::Backward, out), site);
        assert_eq!(over(Direction::Forward, site), out);
    }
}
