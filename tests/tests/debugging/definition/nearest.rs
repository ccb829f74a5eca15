//! Each motion stops at the nearest position that its definition names.

use crate::definition::stretch::Stretch;
use backtrail_debugger::breakpoint::Hits;
use backtrail_debugger::code::CodePoint;
use backtrail_debugger::lines::FrameKey;
use backtrail_debugger::{Direction, Motion};
use backtrail_decoder::Entered;

/// Checks every motion from every third position.
pub fn hold(stretch: &Stretch<'_>) {
    for from in stretch.positions().step_by(3) {
        for direction in [Direction::Forward, Direction::Backward] {
            from_one(stretch, direction, from);
        }
    }
}

fn from_one(stretch: &Stretch<'_>, direction: Direction, from: u64) {
    let check = |motion: &Motion, expected: Option<u64>| {
        let found = stretch.target(motion, direction, from);
        let ends = stretch.is_edge(from) && found == from;
        let right = match expected {
            Some(expected) => found == expected,
            // The target is beyond the checked range.
            None => ends || !(stretch.low..=stretch.high).contains(&found),
        };
        let tid = stretch.steps.lines.history.tid();
        assert!(
            right,
            "{tid}: {motion:?} {direction:?} from {from}: {found}, not {expected:?}"
        );
    };
    let nearest = |fits: &dyn Fn(u64) -> bool| stretch.nearest(direction, from, fits);
    check(&Motion::Instruction, nearest(&|_| true));
    check(&Motion::Step, nearest(&|at| stretch.is_start(at)));
    check(&Motion::Continue, nearest(&|_| false));

    // Backward from a gap, the frame before the gap is the reference.
    let crosses = direction == Direction::Backward && stretch.steps.gaps.contains(&from);
    let Some(frame) = stretch.steps.lines.frame(if crosses { from - 1 } else { from }) else {
        return;
    };
    let out = |at: u64| is_way_out(stretch, direction, frame, at);
    check(&Motion::Finish, nearest(&out));
    let location = stretch
        .steps
        .lines
        .history
        .pc((from * 7 + 3) % stretch.high.max(1));
    if let Some(location) = location {
        let hits = Hits {
            addresses: location.into(),
            ..Hits::default()
        };
        let hit = |at| {
            stretch
                .steps
                .lines
                .history
                .instruction(at)
                .is_some_and(|found| found.pc == location)
        };
        check(&Motion::Advance(hits), nearest(&|at| out(at) || hit(at)));
    }

    let around = stretch.around(frame);
    if !frames_are_told_anew(stretch, &around) {
        let in_frame = |at| stretch.frame(at).is_some_and(|frame| around.contains(&frame));
        let in_call = |at| around.iter().any(|frame| Some(frame.call) == stretch.call(at));
        check(&Motion::Next, nearest(&|at| stretch.is_start(at) && in_frame(at)));
        check(&Motion::NextInstruction, nearest(&in_call));
    }
}

/// Returns whether `finish` or `reverse-finish` out of `frame` may end at `at`, if nothing is
/// nearer.
fn is_way_out(stretch: &Stretch<'_>, direction: Direction, frame: FrameKey, at: u64) -> bool {
    let lines = &stretch.steps.lines;
    let call = lines.forest.call(frame.call);
    // Out of an inlined copy: to the call's own code outside the copy.
    let chain = |pc| lines.lines.chain(CodePoint { pc, epoch: 0 });
    let is_outside = |pc| !lines.lines.is_within(chain(pc), frame.chain);
    let out_of_copy = || stretch.call(at) == Some(frame.call) && lines.history.pc(at).is_some_and(is_outside);
    let behind = match (direction, call.entered) {
        (Direction::Forward, _) => at == call.end,
        (Direction::Backward, Entered::Call { site } | Entered::TailCall { site }) => at == site,
        (Direction::Backward, Entered::Signal { .. }) => at + 1 == call.first,
        // The call begins before the history: to its first recorded instruction.
        (Direction::Backward, _) => at == call.first,
    };
    behind || frame.chain != Default::default() && at < call.end && out_of_copy()
}

/// Returns whether the outermost call has no known caller although history continues around it
/// without a gap. Frames are then determined again, which this test does not repeat.
fn frames_are_told_anew(stretch: &Stretch<'_>, around: &[FrameKey]) -> bool {
    let Some(root) = around
        .last()
        .map(|frame| stretch.steps.lines.forest.call(frame.call))
    else {
        return true;
    };
    !stretch.is_edge(root.first) || !stretch.is_edge(root.end)
}
