//! The timeline of each thread: programs that wait, that get signals, and that crash in a thread.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;

fn recorded(program: &str) -> Bundle {
    Bundle::recorded(find(program).unwrap(), Variant::Static, &["--full"]).0
}

/// Returns the answer to a command.
fn answer(bundle: &Bundle, command: &str) -> Value {
    bundle.answers(&[command])[0]["result"].take()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Returns the earliest and latest time, in nanoseconds from the crash. An unbounded end is
/// `i64::MAX`.
fn bounds(time: &Value) -> (i64, i64) {
    let from = time["ns"].as_i64().unwrap();
    let more = time["uncertainty_ns"].as_i64();
    (from, more.map_or(i64::MAX, |more| from + more))
}

/// Returns the minimum duration of a span, in nanoseconds.
fn least(span: &Value) -> i64 {
    bounds(&span["to"]).0 - bounds(&span["from"]).1
}

fn of_state<'a>(row: &'a Value, state: &'a str) -> impl Iterator<Item = &'a Value> {
    list(&row["spans"])
        .iter()
        .filter(move |span| span["state"] == state)
}

/// Checks that spans follow each other and cover all executed instructions. For a thread with very
/// many interruptions, only the first spans are listed.
#[track_caller]
fn check(row: &Value) {
    let spans = list(&row["spans"]);
    for pair in spans.windows(2) {
        assert_eq!(pair[0]["to"], pair[1]["from"], "{row}");
    }
    let ran: u64 = spans
        .iter()
        .map(|span| span["instructions"].as_u64().unwrap())
        .sum();
    let (all, more) = (&row["instructions"], &row["more_spans"]);
    assert_eq!(row["timed"], true);
    assert!(
        ran == *all || *more != 0 && ran < all.as_u64().unwrap(),
        "{ran} of {all}, {more} more"
    );
}

#[test]
fn the_crash_is_at_time_zero() {
    let bundle = recorded("crash_null");
    let zero = answer(&bundle, "goto @0ns");
    let end = answer(&bundle, "goto end");
    assert_eq!(
        zero["place"]["position"], end["place"]["position"],
        "{zero} {end}"
    );
    assert_eq!(bounds(&end["place"]["time"]), (0, 0), "{end}");
    let before = answer(&bundle, "goto @-1ns");
    assert_ne!(before["place"]["position"], end["place"]["position"]);
}

#[test]
fn sleep_is_off_cpu_for_its_duration() {
    let bundle = recorded("requests");
    let timeline = answer(&bundle, "timeline wait_for_disk");
    let [row] = list(&timeline["threads"]) else {
        panic!("one thread: {timeline}");
    };
    check(row);
    // Three of the requests sleep for 3 ms.
    let waits: Vec<&Value> = of_state(row, "off_cpu")
        .filter(|span| least(span) >= 3_000_000)
        .collect();
    assert_eq!(waits.len(), 3, "{row}");
    let first = waits[0];
    let calls = &row["calls"];
    assert_eq!((&calls["count"], &calls["without_time"]), (&3.into(), &0.into()));
    for (call, wait) in list(&calls["spans"]).iter().zip(waits) {
        assert!(
            bounds(&call["from"]).0 <= bounds(&wait["from"]).0,
            "{call} {wait}"
        );
        assert!(bounds(&wait["to"]).0 <= bounds(&call["to"]).1, "{call} {wait}");
    }
    assert_eq!(timeline["crash"], Value::Null);

    let text = bundle.debug(&["timeline wait_for_disk --columns 200"]);
    let (row, calls) = (text.lines().nth(1).unwrap(), text.lines().nth(2).unwrap());
    assert!(row.contains('█') && row.contains('░'), "{text}");
    assert!(
        calls.trim_start().starts_with("wait_for_disk") && calls.contains('▔'),
        "{text}"
    );
    assert!(text.contains("░ off-CPU") && text.contains("3 calls"), "{text}");
    // A short interval around the call shows its wait. The time that it ran differs between runs.
    let (from, to) = (
        bounds(&first["from"]).1 + 500_000,
        bounds(&first["to"]).0 - 500_000,
    );
    let text = bundle.debug(&[&format!(
        "timeline wait_for_disk --from @{from}ns --to @{to}ns --columns 100"
    )]);
    let (row, calls) = (text.lines().nth(1).unwrap(), text.lines().nth(2).unwrap());
    let under = row.chars().zip(calls.chars()).filter(|&(_, call)| call == '▔');
    let (cells, waiting) = under.fold((0, 0), |(all, off), (cell, _)| {
        (all + 1, off + usize::from(cell == '░'))
    });
    assert!(waiting == cells && cells > 50, "{text}");
}

#[test]
fn timeline_of_a_range_matches_the_whole() {
    let bundle = recorded("requests");
    let all = answer(&bundle, "timeline");
    let row = &list(&all["threads"])[0];
    let wait = of_state(row, "off_cpu")
        .find(|span| least(span) >= 3_000_000)
        .unwrap();
    let (from, to) = (bounds(&wait["from"]).1 + 500_000, bounds(&wait["to"]).0 - 500_000);
    let near = format!("timeline --from @{from}ns --to @{to}ns --columns 30");
    let inside = answer(&bundle, &near);
    assert_eq!(list(&inside["threads"][0]["spans"]), std::slice::from_ref(wait));
    let text = bundle.debug(&[&near]);
    assert!(text.contains(&"░".repeat(30)), "{text}");
    // From a position to another.
    let from = wait["position"].as_str().unwrap();
    let after = answer(&bundle, &format!("timeline --from {from} --to end"));
    assert!(list(&after["threads"][0]["spans"]).len() < list(&row["spans"]).len());
}

/// Records a crash during a wait of the first thread for the thread that crashed. The scheduler
/// decides whether this happens.
fn crash_during_a_wait() -> (Bundle, Value) {
    let waits = |timeline: &Value| {
        let last = list(&timeline["threads"][0]["spans"]).last().unwrap();
        last["state"] == "off_cpu" && least(last) > 10_000
    };
    let mut tries = (0..30).map(|_| {
        let bundle = recorded("thread_crash");
        let timeline = answer(&bundle, "timeline");
        list(&timeline["threads"]).iter().for_each(check);
        (bundle, timeline)
    });
    tries.find(|(_, timeline)| waits(timeline)).unwrap()
}

#[test]
fn the_crash_of_one_thread_ends_all() {
    let (bundle, timeline) = crash_during_a_wait();
    let rows = list(&timeline["threads"]);
    assert_eq!(rows.len(), 3);
    let crash = &timeline["crash"];
    assert_eq!(crash["signal"], "SIGSEGV");
    let crashed: Vec<&Value> = rows.iter().filter(|row| row["crashed"] == true).collect();
    assert_eq!(crashed.len(), 1);
    assert_eq!(
        (&crashed[0]["thread"], &crashed[0]["current"]),
        (&crash["thread"], &true.into())
    );
    // The first thread does not run again.
    let last = list(&rows[0]["spans"]).last().unwrap();
    assert_eq!((&last["instructions"], bounds(&last["to"])), (&0.into(), (0, 0)));

    let from = bounds(&last["from"]).1;
    let text = bundle.debug(&[&format!("timeline --from @{from}ns --to crash --columns 20")]);
    assert!(
        text.contains("X SIGSEGV") && text.contains("times before the crash"),
        "{text}"
    );
    let begins = format!("  {} ", rows[0]["thread"]);
    let waiting = text.lines().find(|line| line.starts_with(&begins)).unwrap();
    assert!(waiting.ends_with(&"░".repeat(20)), "{text}");
}

#[test]
fn timeline_shows_signals_at_their_handlers() {
    let bundle = recorded("syscall_signal");
    let timeline = answer(&bundle, "timeline");
    let row = &list(&timeline["threads"])[0];
    let signals = list(&row["signals"]);
    assert!(!signals.is_empty(), "{timeline}");
    for signal in signals {
        let position = signal["position"].as_str().unwrap();
        let stopped = answer(&bundle, &format!("goto {position}"));
        assert_eq!(
            stopped["place"]["frame"]["function"], signal["handler"],
            "{stopped}"
        );
    }
    let text = bundle.debug(&["timeline"]);
    assert!(text.contains("S signal"), "{text}");
}

#[test]
fn timeline_errors_name_their_reason() {
    let bundle = recorded("requests");
    let refused = |command: &str| {
        let options = ["--batch", "-e", command];
        let mut arguments = vec!["debug".as_ref(), bundle.path.as_os_str()];
        arguments.extend(options.map(std::ffi::OsStr::new));
        backtrail(arguments).unwrap().exited(1).stdout
    };
    assert!(refused("timeline no_such_function").contains("no symbol"));
    assert!(refused("timeline --from end --to start").contains("ends before it begins"));
    assert!(refused("timeline --from @soon").contains("is not a time"));
    assert!(refused("timeline --from nowhere").contains("is not a place in the trace"));
    assert!(refused("timeline --columns many").contains("usage: timeline"));
}
