//! A walk over a whole history by lines, back from its end and forward from there.

use backtrail_debugger::step::Steps;
use backtrail_debugger::{Direction, Motion};

/// The maximum number of steps.
const STEPS: usize = 20_000;

/// Forward and backward visit the same positions, in opposite order.
pub fn hold(steps: &Steps<'_>) {
    let len = steps.lines.history.len();
    let mut backward = walk(steps, Direction::Backward, len, 0);
    backward.reverse();
    let forward = walk(steps, Direction::Forward, backward[0], len);
    assert_eq!(forward, backward);
}

fn walk(steps: &Steps<'_>, direction: Direction, from: u64, to: u64) -> Vec<u64> {
    let mut visited = vec![from];
    let mut here = from;
    while here != to && visited.len() < STEPS {
        let there = steps.target(&Motion::Step, direction, here).unwrap().index;
        assert_ne!(here, there);
        visited.push(there);
        here = there;
    }
    visited
}
