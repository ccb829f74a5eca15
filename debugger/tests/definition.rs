//! Every verb goes where its definition says, on every position of real captures, and each pair comes
//! back to where the definition says.
#![allow(clippy::unwrap_used)]

mod support;

use backtrail_debugger::lines::FrameKey;
use backtrail_debugger::step::Steps;
use backtrail_debugger::{Direction, Motion, Navigator};
use backtrail_decoder::{Entered, Position, Watch};
use support::Imported;

/// No more positions of one thread are tried.
const TRIED: u64 = 1500;

fn captures() -> Vec<Imported> {
    let found = [
        support::hase("control_flow"),
        support::hase("loopy"),
        support::lldb("intelpt-trace-multi-file/multi-file-no-ld.json"),
        support::lldb("intelpt-multi-core-trace/trace.json"),
    ];
    found.into_iter().flatten().collect()
}

/// Calls `check` on the end of each thread's history, cut into what can be tried.
fn on_every_thread(check: impl Fn(&mut Navigator, u64, u64)) {
    for capture in captures() {
        let mut navigator = Navigator::new(capture.session()).unwrap();
        let threads: Vec<_> = navigator
            .session()
            .threads()
            .iter()
            .map(|thread| (thread.tid, thread.history.len()))
            .collect();
        for (tid, len) in threads.into_iter().filter(|(_, len)| *len > 0) {
            navigator.go_to(Position::new(tid, len)).unwrap();
            check(&mut navigator, len.saturating_sub(TRIED), len);
        }
    }
}

fn target(steps: &Steps<'_>, motion: &Motion, direction: Direction, from: u64) -> u64 {
    steps.target(motion, direction, from).unwrap().index
}

/// The frames that instruction `index` is inside of, its own included.
fn frames(steps: &Steps<'_>, index: u64) -> Vec<FrameKey> {
    let lines = &steps.lines;
    let mut all = Vec::new();
    let mut at = lines.frame(index);
    while let Some(frame) = at {
        all.push(frame);
        at = match lines.lines.around(frame.chain) {
            Some(chain) => Some(FrameKey { chain, ..frame }),
            None => lines.caller(frame),
        };
    }
    all
}

/// Where every verb stops, whatever it looks for.
fn edges(steps: &Steps<'_>) -> Vec<u64> {
    let mut edges = vec![0, steps.lines.history.len()];
    edges.extend(steps.gaps);
    edges
}

fn nearest(direction: Direction, from: u64, low: u64, len: u64, stops: impl Fn(u64) -> bool) -> Option<u64> {
    match direction {
        Direction::Forward => (from + 1..=len).find(|&at| stops(at)),
        Direction::Backward => (low..from).rev().find(|&at| stops(at)),
    }
}

#[test]
fn steps_forward_and_backward_visit_the_same_positions() {
    on_every_thread(|navigator, low, len| {
        navigator
            .with_steps(&Watch::none(), |steps| {
                let walk = |direction, from: u64, to: u64| {
                    let mut visited = vec![from];
                    while *visited.last().unwrap() != to {
                        let here = *visited.last().unwrap();
                        let there = target(steps, &Motion::Step, direction, here);
                        assert_ne!(here, there);
                        if there < low {
                            break;
                        }
                        visited.push(there);
                    }
                    visited
                };
                let mut backward = walk(Direction::Backward, len, 0);
                backward.reverse();
                let forward = walk(Direction::Forward, backward[0], len);
                assert_eq!(forward, backward);
                assert!(steps.lines.is_start(len).is_ok());
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn verbs_go_to_the_nearest_position_that_their_definition_names() {
    on_every_thread(|navigator, low, len| {
        navigator
            .with_steps(&Watch::none(), |steps| {
                let edges = edges(steps);
                for from in (low..=len).step_by(3) {
                    for direction in [Direction::Forward, Direction::Backward] {
                        let crosses = direction == Direction::Backward && steps.gaps.contains(&from);
                        let around = frames(steps, if crosses { from - 1 } else { from });
                        let is_start = |at: u64| steps.lines.is_start(at).unwrap();
                        let in_frame =
                            |at: u64| steps.lines.frame(at).is_some_and(|frame| around.contains(&frame));
                        let in_call = |at: u64| {
                            let call = steps.lines.forest.call_at(at);
                            around.iter().any(|frame| Some(frame.call) == call)
                        };
                        let stop = |found: &dyn Fn(u64) -> bool| {
                            nearest(direction, from, low, len, |at| edges.contains(&at) || found(at))
                        };
                        let check = |motion: Motion, expected: Option<u64>| {
                            let found = target(steps, &motion, direction, from);
                            match expected {
                                Some(expected) => {
                                    assert_eq!(found, expected, "{motion:?} {direction:?} from {from}")
                                }
                                // Further than was looked.
                                None => assert!(
                                    found < low || found == from,
                                    "{motion:?} {direction:?} from {from}"
                                ),
                            }
                        };
                        check(Motion::Instruction, stop(&|_| true));
                        check(Motion::Step, stop(&is_start));
                        if !unknown_frames_between(steps, &around) {
                            check(Motion::Next, stop(&|at| is_start(at) && in_frame(at)));
                            check(Motion::NextInstruction, stop(&in_call));
                        }
                    }
                }
                Ok(())
            })
            .unwrap();
    });
}

/// The outermost call has no known caller although history goes on around it without a gap: then
/// frames are told anew, which this test does not model.
fn unknown_frames_between(steps: &Steps<'_>, around: &[FrameKey]) -> bool {
    let edges = edges(steps);
    let Some(root) = around.last().map(|frame| steps.lines.forest.call(frame.call)) else {
        return true;
    };
    !edges.contains(&root.first) || !edges.contains(&root.end)
}

#[test]
fn pairs_come_back_to_where_their_definition_says() {
    on_every_thread(|navigator, low, len| {
        navigator
            .with_steps(&Watch::none(), |steps| {
                let mut returned = 0;
                for from in low..len {
                    let there = |motion: &Motion| target(steps, motion, Direction::Forward, from);
                    let back = |motion: &Motion, at: u64| target(steps, motion, Direction::Backward, at);
                    let starts_line = steps.lines.is_start(from).unwrap();
                    assert_eq!(back(&Motion::Instruction, there(&Motion::Instruction)), from);
                    if starts_line {
                        assert_eq!(back(&Motion::Step, there(&Motion::Step)), from);
                    }
                    let next = there(&Motion::Next);
                    let same_frame = steps.lines.frame(next) == steps.lines.frame(from);
                    let edge = edges(steps).contains(&next);
                    if starts_line && same_frame && !edge {
                        assert_eq!(back(&Motion::Next, next), from, "next from {from} to {next}");
                    }
                    let call = steps
                        .lines
                        .forest
                        .call_at(from)
                        .map(|call| steps.lines.forest.call(call));
                    let Some(call) = call else { continue };
                    let known = matches!(call.entered, Entered::Call { .. });
                    let inlined = steps
                        .lines
                        .frame(from)
                        .is_some_and(|frame| frame.chain != Default::default());
                    if known && !inlined && !edges(steps).contains(&call.end) {
                        let out = there(&Motion::Finish);
                        let site = back(&Motion::Finish, from);
                        assert_eq!(out, call.end);
                        assert_eq!(site + 1, call.first);
                        if steps.lines.forest.call_at(out) == call.parent {
                            assert_eq!(back(&Motion::NextInstruction, out), site);
                            assert_eq!(
                                target(steps, &Motion::NextInstruction, Direction::Forward, site),
                                out
                            );
                            returned += 1;
                        }
                    }
                }
                eprintln!("{returned} returns tried of {}", len - low);
                Ok(())
            })
            .unwrap();
    });
}
