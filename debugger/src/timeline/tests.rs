//! The states of small histories.

use super::*;
use crate::latency::recording::Recording;
use backtrail_decoder::{Event, Sink};

const ALL: Window = Window {
    from: Tsc(0),
    to: Tsc(u64::MAX),
};

fn end(state: ThreadState, until: Option<u64>) -> HistoryEnd {
    HistoryEnd {
        state,
        until: until.map(Tsc),
        crashed: false,
    }
}

/// State, bounds of the beginning, bounds of the end, instructions; 0 for no upper bound.
type States = (ThreadState, [u64; 2], [u64; 2], u64);

fn states_of(recording: Recording, window: Window, end: HistoryEnd) -> Vec<States> {
    let history = recording.0.finish();
    let bounds = |time: TimeEstimate| [time.tsc.0, time.latest().map_or(0, |latest| latest.0)];
    let mut found = Vec::new();
    let visit = &mut |span: StateSpan| {
        found.push((
            span.state,
            bounds(span.from),
            bounds(span.to),
            span.end - span.first,
        ));
        Ok(())
    };
    states(StateBuilder::new(&history, window), || end, &Watch::none(), visit).unwrap();
    found
}

fn recording() -> Recording {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 3).syscall(0x16, [10_000, 50_000]);
    recording
        .run(0x18, 5)
        .syscall(0x22, [60_000, 90_000])
        .run(0x24, 2);
    recording
}

#[test]
fn a_thread_runs_and_waits_in_turn() {
    let mut recording = recording();
    recording.time(95_000);
    let expected: [States; 5] = [
        (ThreadState::Ran, [1_000; 2], [10_000; 2], 4),
        (ThreadState::OffCpu, [10_000; 2], [50_000; 2], 0),
        (ThreadState::Ran, [50_000; 2], [60_000; 2], 6),
        (ThreadState::OffCpu, [60_000; 2], [90_000; 2], 0),
        (ThreadState::Ran, [90_000; 2], [95_000, 0], 2),
    ];
    let found = states_of(recording, ALL, end(ThreadState::Unknown, None));
    assert_eq!(found[..4], expected[..4]);
    assert_eq!(
        (found[4].0, found[4].1, found[4].3),
        (ThreadState::Ran, [90_000; 2], 2)
    );
}

#[test]
fn after_the_last_time_stamp_only_the_core_is_known() {
    let open = states_of(recording(), ALL, end(ThreadState::Unknown, None));
    assert_eq!(
        open.last(),
        Some(&(ThreadState::Ran, [90_000; 2], [90_000, 0], 2))
    );
    let there = states_of(recording(), ALL, end(ThreadState::Unknown, Some(200_000)));
    assert_eq!(
        there[4..],
        [
            (ThreadState::Ran, [90_000; 2], [90_000, 200_000], 2),
            (ThreadState::Unknown, [90_000, 200_000], [200_000; 2], 0)
        ]
    );
}

#[test]
fn a_thread_that_never_came_back_waits_at_the_crash() {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 3).time(2_000);
    let found = states_of(recording, ALL, end(ThreadState::OffCpu, Some(9_000)));
    assert_eq!(
        found,
        [
            (ThreadState::Ran, [1_000; 2], [2_000; 2], 3),
            (ThreadState::OffCpu, [2_000; 2], [9_000; 2], 0)
        ]
    );
}

#[test]
fn a_window_begins_in_the_state_that_goes_on() {
    let window = Window {
        from: Tsc(20_000),
        to: Tsc(55_000),
    };
    let part: Vec<ThreadState> = states_of(recording(), window, end(ThreadState::Unknown, None))
        .iter()
        .map(|found| found.0)
        .collect();
    assert_eq!(part, [ThreadState::OffCpu, ThreadState::Ran]);
    let late = Window {
        from: Tsc(91_000),
        to: Tsc(92_000),
    };
    // No time stamp bounds its last instructions.
    let late = states_of(recording(), late, end(ThreadState::Unknown, None));
    assert_eq!(
        late.iter().map(|found| found.0).collect::<Vec<_>>(),
        [ThreadState::Ran]
    );
}

#[test]
fn a_gap_is_a_state_of_its_own() {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 3).time(2_000);
    recording.0.event(Event::Overflow { offset: 0 });
    recording.time(7_000).run(0x30, 3).time(8_000);
    let found = states_of(recording, ALL, end(ThreadState::Unknown, None));
    let states: Vec<ThreadState> = found.iter().map(|found| found.0).collect();
    assert_eq!(states, [ThreadState::Ran, ThreadState::Gap, ThreadState::Ran]);
    assert_eq!((found[1].1, found[1].2), ([2_000; 2], [7_000; 2]));
}

#[test]
fn a_system_call_dated_at_its_end_has_an_unknown_beginning() {
    let mut recording = Recording::new();
    recording.time(1_000).run(0x10, 3).time(50_000);
    recording
        .run(0x16, 1)
        .syscall(0x18, [90_000, 90_001])
        .run(0x1a, 3);
    let history = recording.0.finish();
    let builder = StateBuilder {
        dated_late: true,
        ..StateBuilder::new(&history, ALL)
    };
    let mut found = Vec::new();
    let visit = &mut |span: StateSpan| {
        found.push((span.state, span.to.tsc.0, span.to.latest().map(|latest| latest.0)));
        Ok(())
    };
    states(builder, || end(ThreadState::Unknown, None), &Watch::none(), visit).unwrap();
    assert_eq!(found[0], (ThreadState::Ran, 50_000, Some(90_000)));
    assert_eq!(found[1].0, ThreadState::OffCpu);
}
