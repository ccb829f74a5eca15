//! Calls in a small history with few time stamps, and off-CPU time.

use super::*;
use crate::latency::recording::Recording;
use backtrail_decoder::Watch;

fn measured<T>(recording: Recording, unit: Unit, with: impl FnOnce(&CallTimer<'_>, &[CallId]) -> T) -> T {
    let history = recording.0.finish();
    let forest = Forest::build(&history, &(), &Watch::none()).unwrap();
    let call_timer = CallTimer {
        history: &history,
        forest: &forest,
        gaps: &[],
        unit,
        conversion: None,
    };
    let calls: Vec<CallId> = forest.ids().collect();
    with(&call_timer, &calls)
}

fn span(least: u64, most: u64) -> Span {
    Span { least, most }
}

/// A root calls a function at 0x100, which calls one at 0x200, which makes a system call.
fn nested() -> Recording {
    let mut recording = Recording::new();
    recording.time(1_000);
    recording.run(0x10, 2).call(0x14, 0x100);
    recording.time(10_000);
    recording.run(0x100, 3).call(0x106, 0x200);
    recording.time(20_000);
    recording.run(0x200, 1).syscall(0x202, [30_000, 90_000]);
    recording.run(0x204, 1).ret(0x206);
    recording.time(100_000);
    recording.run(0x108, 2).ret(0x10c);
    recording.time(115_000);
    recording.run(0x16, 1);
    recording
}

#[test]
fn stamps_at_the_ends_of_a_call_make_its_length_exact() {
    measured(nested(), Unit::Ticks, |call_timer, calls| {
        assert_eq!(call_timer.span(calls[0]), Err(Unmeasured::BeganBeforeHistory));
        assert_eq!(call_timer.span(calls[1]), Ok(Span::exactly(105_000)));
        assert_eq!(call_timer.span(calls[2]), Ok(Span::exactly(80_000)));
        let split = call_timer.split(calls[1]).unwrap();
        assert_eq!(split.off_cpu, Span::exactly(60_000));
        assert_eq!(split.callees, Span::exactly(20_000));
        assert_eq!(split.own, Span::exactly(25_000));
        assert_eq!(call_timer.self_time(calls[1]), Ok(Span::exactly(25_000)));
        let inner = call_timer.split(calls[2]).unwrap();
        assert_eq!(inner.own, Span::exactly(20_000));
        assert_eq!(
            (inner.callees, inner.off_cpu),
            (Span::default(), Span::exactly(60_000))
        );
    });
}

#[test]
fn in_instructions_nothing_is_uncertain_and_nothing_waits() {
    measured(nested(), Unit::Instructions, |call_timer, calls| {
        assert_eq!(call_timer.span(calls[1]), Ok(Span::exactly(11)));
        let split = call_timer.split(calls[1]).unwrap();
        assert_eq!(split.own, Span::exactly(7));
        assert_eq!(split.callees, Span::exactly(4));
        assert_eq!(split.off_cpu, Span::default());
    });
}

#[test]
fn between_two_stamps_only_bounds_are_known() {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 2).call(0x14, 0x100);
    recording.run(0x100, 3).call(0x106, 0x200);
    recording.run(0x200, 70).ret(0x28c);
    recording.time(50_000);
    recording.run(0x108, 2).ret(0x10c);
    recording.run(0x16, 70);
    recording.time(60_000);
    recording.run(0x16 + 140, 1);
    measured(recording, Unit::Ticks, |call_timer, calls| {
        // The outer call began before 50 000 and ended after.
        assert_eq!(call_timer.span(calls[1]), Ok(span(0, 59_000)));
        assert_eq!(call_timer.span(calls[2]), Ok(span(0, 49_000)));
        let split = call_timer.split(calls[1]).unwrap();
        assert_eq!(split.own, span(0, 59_000));
        assert_eq!(split.callees, span(0, 49_000));
    });
}

#[test]
fn a_call_that_has_not_ended_has_no_length() {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 2).call(0x14, 0x100);
    recording.run(0x100, 3).time(9_000);
    for unit in [Unit::Ticks, Unit::Instructions] {
        let mut again = Recording::new();
        std::mem::swap(&mut again.0, &mut recording.0);
        recording.time(1_000).run(0x10, 2).call(0x14, 0x100);
        recording.run(0x100, 3).time(9_000);
        measured(again, unit, |call_timer, calls| {
            assert_eq!(call_timer.span(calls[1]), Err(Unmeasured::NotEnded));
            assert!(call_timer.split(calls[1]).is_err());
        });
    }
}

#[test]
fn without_stamps_there_is_no_time() {
    let mut recording = Recording::new();
    recording.run(0x10, 2).call(0x14, 0x100);
    recording.run(0x100, 3).ret(0x106).run(0x16, 1);
    measured(recording, Unit::Ticks, |call_timer, calls| {
        assert_eq!(call_timer.span(calls[1]), Err(Unmeasured::NoTime));
    });
}

#[test]
fn a_stretch_that_is_covered_twice_counts_once() {
    let mut cover = IntervalUnion::within(10, 100);
    for stretch in [(0, 20), (15, 30), (25, 28), (90, 200)] {
        cover.add(stretch);
    }
    assert_eq!(cover.length, 30);
}
