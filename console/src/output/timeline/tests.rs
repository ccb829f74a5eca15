//! A timeline as it is read.

use super::*;
use backtrail_debugger::time::Timebase;
use backtrail_decoder::TimeEstimate;
use backtrail_pt::{Tsc, TscConversion};

fn time(tsc: u64) -> Time {
    let base = Timebase {
        conversion: TscConversion::new(0, 1, 0),
        zero: Some(Tsc(40_000)),
    };
    let estimate = TimeEstimate {
        tsc: Tsc(tsc),
        uncertainty: 0,
    };
    base.time(estimate)
}

fn cells(drawn: &str) -> Vec<GridCell> {
    let cell = |glyph| LEGEND.iter().find(|known| known.1 == glyph);
    drawn
        .chars()
        .map(|glyph| cell(glyph).map_or(GridCell::Nothing, |known| known.0))
        .collect()
}

fn presences(drawn: &str) -> Vec<Presence> {
    let presence = |glyph| match glyph {
        ' ' => Presence::No,
        '?' => Presence::Maybe,
        _ => Presence::Yes,
    };
    drawn.chars().map(presence).collect()
}

fn row(thread: u32, name: &str, drawn: &str) -> ThreadRow {
    ThreadRow {
        thread,
        name: Some(name.to_owned()),
        current: false,
        crashed: false,
        timed: true,
        instructions: 12,
        spans: Vec::new(),
        more_spans: 0,
        signals: Vec::new(),
        more_signals: 0,
        calls: None,
        cells: cells(drawn),
        signals_at: presences(&" ".repeat(40)),
        crash_at: None,
    }
}

fn view() -> TimelineView {
    let mut crashed = row(7, "main", "████▒░░░░░░░░░░░▒██████??????███████████");
    crashed.current = true;
    crashed.crashed = true;
    crashed.crash_at = Some(39);
    crashed.signals_at = presences("          #                ???          ");
    crashed.calls = Some(CallsRow {
        count: 2,
        rests: 0,
        without_time: 1,
        spans: Vec::new(),
        columns: presences("   ##            ?????                  "),
    });
    let mut untimed = row(9, "a thread with a very long name", "");
    untimed.timed = false;
    TimelineView {
        from: time(0),
        to: time(40_000),
        columns: 40,
        function: Some("work".to_owned()),
        here: MomentView {
            thread: 7,
            position: "t7#5".to_owned(),
            time: Some(time(10_000)),
        },
        crash: Some(CrashMoment {
            thread: 7,
            signal: "SIGSEGV".to_owned(),
            time: Some(time(40_000)),
        }),
        threads: vec![
            crashed,
            row(8, "worker", "      ███×××████████            "),
            untimed,
        ],
        here_at: presences("          #                             "),
        axis: vec![(0, time(0)), (20, time(20_000)), (40, time(40_000))],
    }
}

#[test]
fn threads_stand_below_each_other_on_one_axis() {
    let mut text = Text::plain();
    view().render(&mut text);
    let expected = "\
→ 7 \"main\"                 ████▒░░░░░░░░░░░▒██████??????███████████
                                     S                sss         X
    work                      ▔▔            ·····
  8 \"worker\"                     ███×××████████
  9 \"a thread with a very… no time stamps: the time of its 12 instructions is unknown
                           ┬───────────────────┬───────────────────
                                     ^
                           -40.000 µs          -20.000 µs      0 ns
times before the crash; one column is 1.000 µs
█ ran  ░ off-CPU  ▒ mixed or partly unknown  ? unknown
× history is missing  S signal  s signal somewhere here  X SIGSEGV
^ here  blank: no history
work: 2 calls  ▔ ran  · may have run
Calls without time stamps, not shown: 1.
";
    assert_eq!(text.into_string(), expected);
}

#[test]
fn long_function_names_widen_the_labels() {
    let mut timeline = view();
    timeline.threads.truncate(1);
    let second = |timeline: &TimelineView| {
        let mut text = Text::plain();
        timeline.render(&mut text);
        let text = text.into_string();
        text.lines().nth(2).unwrap().to_owned()
    };
    timeline.function = Some("wait_for_disk".to_owned());
    assert_eq!(
        second(&timeline).trim_end(),
        "    wait_for_disk    ▔▔            ·····"
    );
    timeline.function = Some("wait_for_disk_with_a_long_name".to_owned());
    assert!(second(&timeline).starts_with("    wait_for_disk_with_a_…    ▔▔"));
}

#[test]
fn json_has_spans_and_no_drawing() {
    let json = serde_json::to_value(view()).unwrap();
    let row = &json["threads"][0];
    assert_eq!(
        (&row["calls"]["count"], &row["crashed"]),
        (&2.into(), &true.into())
    );
    for drawn in ["cells", "signals_at", "crash_at"] {
        assert_eq!(row.get(drawn), None);
    }
    assert_eq!(json["to"]["ns"], 0);
}
