//! `continue` in both directions over all threads of a recording, in the order of time.

use backtrail_debugger::{Direction, Motion, Navigator, OpenOptions, Session, Stop, StopReason};
use backtrail_decoder::{Position, TimeEstimate, Watch};
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;

/// Where hits are: once in each call of `collatz`, and once in each round of `work`.
const LOCATIONS: [&str; 2] = ["collatz", "threads.c:25"];

fn opened(bundle: &Bundle) -> Navigator {
    let session = Session::open(&bundle.path, &OpenOptions::default(), &Watch::none()).unwrap();
    let mut navigator = Navigator::new(session).unwrap();
    for location in LOCATIONS {
        navigator
            .set_breakpoint(location, None, None, false, &Watch::none())
            .unwrap();
    }
    navigator
}

/// Returns the stops of repeated moves, up to the edge of history, and the stop there.
fn stops(navigator: &mut Navigator, direction: Direction) -> (Vec<Stop>, Stop) {
    let mut stops = Vec::new();
    loop {
        let stop = navigator
            .run(&Motion::Continue, direction, &Watch::none())
            .unwrap();
        match stop.reason {
            StopReason::Breakpoint { .. } => stops.push(stop),
            _ => return (stops, stop),
        }
    }
}

fn time(navigator: &Navigator, position: Position) -> TimeEstimate {
    let thread = navigator.session().thread(position.tid()).unwrap();
    let index = thread.index_of(position).unwrap();
    thread.history.time(index).unwrap()
}

/// Returns whether all of `one` is before all of `other`.
fn is_before(one: TimeEstimate, other: TimeEstimate) -> bool {
    one.latest().is_some_and(|latest| latest < other.tsc)
}

#[test]
fn hits_of_all_threads_are_met_in_the_order_of_time() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let mut navigator = opened(&bundle);

    // The hits of each thread by itself.
    let mut single: BTreeMap<_, Vec<Position>> = BTreeMap::new();
    navigator.scheduler_locking = true;
    let threads = navigator.session().threads().iter();
    let ends: Vec<Position> = threads
        .map(|thread| thread.position(thread.history.len()))
        .collect();
    for end in ends {
        navigator.go_to(end).unwrap();
        let (found, edge) = stops(&mut navigator, Direction::Backward);
        assert_eq!(edge.reason, StopReason::HistoryStart);
        if !found.is_empty() {
            single.insert(end.tid(), found.iter().map(|stop| stop.to).collect());
        }
    }
    assert_eq!(single.len(), 4, "four threads work");

    let mut navigator = opened(&bundle);
    let (backward, edge) = stops(&mut navigator, Direction::Backward);
    assert_eq!(edge.reason, StopReason::HistoryStart);
    // All of them, each once, and in each thread in its own order.
    for (&tid, expected) in &single {
        let met: Vec<Position> = backward
            .iter()
            .map(|stop| stop.to)
            .filter(|to| to.tid() == tid)
            .collect();
        assert_eq!(&met, expected);
    }
    assert_eq!(backward.len(), single.values().map(Vec::len).sum::<usize>());
    // The order agrees with all time stamps.
    let times: Vec<TimeEstimate> = backward.iter().map(|stop| time(&navigator, stop.to)).collect();
    for (at, &later) in times.iter().enumerate() {
        for &earlier in &times[at + 1..] {
            assert!(!is_before(later, earlier), "{later:?} {earlier:?}");
        }
    }
    let switches = backward
        .windows(2)
        .filter(|pair| pair[0].to.tid() != pair[1].to.tid());
    assert!(switches.count() >= 3);
    // The edge says where hits are.
    let told: BTreeMap<u32, (u64, &str, &str)> = edge
        .elsewhere
        .iter()
        .map(|hits| (hits.thread, (hits.hits, &*hits.first, &*hits.last)))
        .collect();
    for (tid, positions) in &single {
        let (count, first, last) = told[&tid.0];
        assert_eq!(count, positions.len() as u64);
        let ends = [positions.last(), positions.first()].map(|end| end.unwrap().to_string());
        assert_eq!([first, last], [&*ends[0], &*ends[1]]);
    }
    are_unordered_where_times_overlap(&navigator, &backward);

    // The way forward is the same.
    navigator.go_to(backward.last().unwrap().to).unwrap();
    let (forward, _) = stops(&mut navigator, Direction::Forward);
    let met: Vec<Position> = forward.iter().map(|stop| stop.to).collect();
    let expected: Vec<Position> = backward.iter().rev().skip(1).map(|stop| stop.to).collect();
    assert_eq!(met, expected);
}

/// Checks that a stop lists the next hits of other threads exactly where their times overlap.
fn are_unordered_where_times_overlap(navigator: &Navigator, backward: &[Stop]) {
    for (at, stop) in backward.iter().enumerate() {
        let here = time(navigator, stop.to);
        let mut seen = BTreeSet::from([stop.to.tid()]);
        let mut expected = Vec::new();
        for other in &backward[at + 1..] {
            if seen.insert(other.to.tid())
                && time(navigator, other.to)
                    .latest()
                    .is_none_or(|end| end > here.tsc)
            {
                expected.push(other.to.to_string());
            }
        }
        let mut told: Vec<String> = stop.unordered.iter().map(|hit| hit.position.clone()).collect();
        expected.sort();
        told.sort();
        assert_eq!(told, expected, "{}", stop.to);
    }
}

#[test]
fn breakpoints_and_searches_keep_to_one_thread() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let text = bundle.debug(&["break collatz", "reverse-continue", "reverse-continue"]);
    assert!(text.contains("[Switching to thread "), "{text}");
    // The last hit backward in any thread.
    let hit = &bundle.results(&["break collatz", "reverse-continue"])[1];
    assert_eq!(hit["reason"], "breakpoint", "{hit}");
    let tid = hit["switched_to"]["thread"].as_u64().unwrap();

    let locked = bundle.results(&["set scheduler-locking on", "break collatz", "reverse-continue"]);
    assert_eq!(locked[2]["reason"], "history_start");
    assert_eq!(locked[2]["elsewhere"].as_array().unwrap().len(), 4);
    let text = bundle.debug(&["set scheduler-locking on", "break collatz", "reverse-continue"]);
    assert!(text.contains("25 hits in thread "), "{text}");

    let only = format!("break collatz thread {tid} if $hits == 3");
    let answers = bundle.results(&[&*only, "info breakpoints", "reverse-continue", "when"]);
    assert_eq!(answers[1]["breakpoints"][0]["thread"], tid);
    assert_eq!(answers[2]["reason"], "breakpoint");
    assert_eq!(answers[3]["thread"], tid);
    for (command, sentence) in [
        ("break collatz thread 4000000", "no thread 4000000"),
        ("set scheduler-locking", "requires on, off, step or replay"),
    ] {
        let arguments = [
            "debug".as_ref(),
            bundle.path.as_os_str(),
            "--batch".as_ref(),
            "-e".as_ref(),
        ];
        let run = backtrail(arguments.into_iter().chain([OsStr::new(command)])).unwrap();
        assert!(run.stdout.contains(sentence), "{}", run.stdout);
    }
}

#[test]
fn counts_are_those_of_all_threads() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let questions = ["count collatz", "callers collatz", "search ^collatz$"];
    let totals = |place: &str| {
        let typed = [&[place][..], &questions].concat();
        let answers = bundle.results(&typed);
        let callers = answers[2]["callers"].as_array().unwrap().iter();
        let called: u64 = callers.map(|caller| caller["count"].as_u64().unwrap()).sum();
        let found = answers[3]["functions"][0][1].as_u64().unwrap();
        (answers[1].clone(), called, found)
    };
    let (count, called, found) = totals("goto end");
    let calls = count["calls"].as_u64().unwrap();
    assert!(
        calls > 0 && called == calls && found == calls,
        "{called} {found} {count}"
    );
    let threads = count["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 4, "{count}");
    let sum: u64 = threads
        .iter()
        .map(|thread| thread["calls"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, calls);
    // They do not depend on the current thread.
    for thread in threads {
        let place = format!("goto t{}#-1", thread["thread"]);
        assert_eq!(totals(&place), (count.clone(), called, found), "{place}");
    }
}

/// Returns the time of an answer's place: the earliest.
fn earliest(answer: &serde_json::Value) -> u64 {
    let time = &answer["place"]["time"];
    let tsc = time["tsc"].as_str().map(|tsc| tsc.parse().unwrap());
    tsc.or(time["tsc"].as_u64()).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn searches_go_to_hits_in_the_order_of_time() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let navigator = opened(&bundle);
    let main = navigator.position().tid();
    let count = bundle.results(&["count collatz"]).remove(0);
    let calls = usize::try_from(count["calls"].as_u64().unwrap()).unwrap();
    let place = |typed: &str| bundle.results(&["goto end", typed]).remove(1);
    let position = |answer: &serde_json::Value| answer["place"]["position"].as_str().unwrap().to_owned();
    // Calls in the order of time, from the first to the last.
    let numbers = [1, 2, calls / 3, calls / 2, calls - 1, calls];
    let typed: Vec<String> = numbers
        .iter()
        .map(|number| format!("run-to-call {number} of collatz"))
        .collect();
    let mut commands = vec!["goto end"];
    commands.extend(typed.iter().map(String::as_str));
    let met = bundle.results(&commands);
    for pair in met[1..].windows(2) {
        assert!(earliest(&pair[0]) <= earliest(&pair[1]), "{pair:?}");
    }
    let threads: BTreeSet<String> = met[1..]
        .iter()
        .map(|answer| position(answer).split('#').next().unwrap().to_owned())
        .collect();
    assert!(threads.len() > 1, "{threads:?}");
    // `first` and `last` are the ends of that order, wherever the search begins.
    for from in ["goto start", "goto end"] {
        let answers = bundle.results(&[from, "first collatz", "last collatz"]);
        assert_eq!(position(&answers[1]), position(&met[1]));
        assert_eq!(position(&answers[2]), position(&met[6]));
    }
    // They name the thread that they go to.
    let last = place("last collatz");
    let tid = position(&last);
    let tid = tid.split('#').next().unwrap().trim_start_matches('t').to_owned();
    if tid != main.to_string() {
        assert_eq!(last["switched_to"]["thread"].to_string(), tid);
        let text = bundle.debug(&["goto end", "last collatz"]);
        assert!(text.contains(&format!("[Switching to thread {tid}")), "{text}");
    }
}

#[test]
fn scheduler_locking_keeps_searches_to_one_thread() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let count = bundle.results(&["count collatz"]).remove(0);
    for thread in count["threads"].as_array().unwrap() {
        let (tid, calls) = (&thread["thread"], &thread["calls"]);
        let place = format!("goto t{tid}#-1");
        let last = format!("run-to-call {calls} of collatz");
        let answers = bundle.results(&[
            &place,
            "set scheduler-locking on",
            "first collatz",
            "last collatz",
            &last,
        ]);
        for answer in &answers[2..] {
            let position = answer["place"]["position"].as_str().unwrap();
            assert!(position.starts_with(&format!("t{tid}#")), "{answer}");
        }
        assert_eq!(answers[3]["place"]["position"], answers[4]["place"]["position"]);
        let next = format!("run-to-call {} of collatz", calls.as_u64().unwrap() + 1);
        let answers = bundle.answers(&[&place, "set scheduler-locking on", &next]);
        let error = answers[2]["error"].as_str().unwrap();
        assert!(
            error.contains(&format!(
                "in the history of thread {tid}; `set scheduler-locking off`"
            )),
            "{error}"
        );
    }
}

#[test]
fn listed_counts_are_those_of_all_threads() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let list = |commands: &[&str]| {
        let listed = bundle.results(commands).pop().unwrap();
        let counts = listed["executions"].as_array().unwrap().clone();
        counts.iter().map(|count| count.as_u64()).collect::<Vec<_>>()
    };
    let all = list(&["goto end", "list --counts collatz"]);
    let threads = opened(&bundle)
        .session()
        .threads()
        .iter()
        .map(|thread| thread.tid)
        .collect::<Vec<_>>();
    let mut sums = vec![None; all.len()];
    for tid in threads {
        let place = format!("goto t{tid}#-1");
        let single = list(&[&place, "set scheduler-locking on", "list --counts collatz"]);
        for (sum, count) in sums.iter_mut().zip(single) {
            *sum = match (*sum, count) {
                (None, count) => count,
                (sum, None) => sum,
                (Some(sum), Some(count)) => Some(sum + count),
            };
        }
    }
    assert_eq!(all, sums);
    assert!(all.iter().flatten().any(|&count| count > 0));
    let text = bundle.debug(&["goto end", "list --counts collatz"]);
    assert!(text.contains("in the history of all threads)"), "{text}");
}
