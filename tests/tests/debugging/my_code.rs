//! Steps that pass over library code, against a simple definition: the line starts whose function
//! is own code, found by a check of every instruction.

use backtrail_debugger::own_code::CodeOrigin;
use backtrail_debugger::{Direction, Motion, Navigator, OpenOptions, Session, StopReason};
use backtrail_decoder::{CallId, Position, Watch};
use backtrail_tests::backtrail::repository;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded;
use std::sync::OnceLock;

const SOURCE: &str = "my_code/callbacks.cpp";

/// The program without inlined functions.
fn plain() -> &'static Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(|| compiled_and_recorded("c++", &["-g", "-O0"], SOURCE))
}

/// The program with most of its functions inlined.
fn optimized() -> &'static Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(|| compiled_and_recorded("c++", &["-g", "-O2"], SOURCE))
}

fn opened(bundle: &Bundle) -> Navigator {
    let session = Session::open(&bundle.path, &OpenOptions::default(), &Watch::none()).unwrap();
    Navigator::new(session).unwrap()
}

/// Returns the line with a comment.
fn line(comment: &str) -> u64 {
    let text = std::fs::read_to_string(repository().join("tests/fixtures").join(SOURCE)).unwrap();
    let found: Vec<usize> = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.ends_with(&format!("// {comment}")))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(found.len(), 1, "{comment}");
    found[0] as u64
}

/// Returns whether the innermost function at an instruction is own code.
fn is_own(navigator: &Navigator, index: u64) -> bool {
    let thread = navigator.thread().unwrap();
    let symbols = navigator.session().symbols_at(thread, index).unwrap();
    let pc = thread.history.pc(index).unwrap();
    let frames = symbols.frames_at(pc);
    let location = frames.first().and_then(|frame| frame.location.as_ref());
    let origin = CodeOrigin {
        function: frames.first().map(|frame| &*frame.function),
        file: location.map(|location| &*location.file),
        module: symbols.module_at(pc).map(|module| &*module.name),
    };
    origin.library().is_none()
}

/// Returns whether an instruction is in a function, or in code inlined into the function.
fn has_function(navigator: &Navigator, index: u64, name: &str) -> bool {
    let thread = navigator.thread().unwrap();
    let symbols = navigator.session().symbols_at(thread, index).unwrap();
    let frames = symbols.frames_at(thread.history.pc(index).unwrap());
    frames.iter().any(|frame| &*frame.function == name)
}

/// Returns whether an instruction is in a function of own code. Library code may be inlined there.
fn is_below_own(navigator: &Navigator, index: u64) -> bool {
    let thread = navigator.thread().unwrap();
    let symbols = navigator.session().symbols_at(thread, index).unwrap();
    let pc = thread.history.pc(index).unwrap();
    symbols.frames_at(pc).iter().any(|frame| {
        let location = frame.location.as_ref();
        let origin = CodeOrigin {
            function: Some(&*frame.function),
            file: location.map(|location| &*location.file),
            module: symbols.module_at(pc).map(|module| &*module.name),
        };
        origin.library().is_none()
    })
}

/// Returns all line starts of own code.
fn own_starts(navigator: &Navigator) -> Vec<u64> {
    let starts = navigator.with_steps(&Watch::none(), |steps| {
        let all = 0..steps.history().len();
        Ok(all
            .filter(|&index| steps.lines.is_start(index).unwrap())
            .collect::<Vec<_>>())
    });
    let mut starts = starts.unwrap();
    starts.retain(|&index| is_own(navigator, index));
    assert!(starts.len() > 20, "{}", starts.len());
    starts
}

/// Moves from an index, and returns the new index; `None`: an edge of the history.
fn moved(navigator: &mut Navigator, motion: &Motion, direction: Direction, from: u64) -> Option<u64> {
    let tid = navigator.position().tid();
    navigator.go_to(Position::new(tid, from)).unwrap();
    let stop = navigator.run(motion, direction, &Watch::none()).unwrap();
    match stop.reason {
        StopReason::HistoryStart | StopReason::HistoryEnd { .. } => None,
        _ => Some(navigator.index()),
    }
}

/// Checks that steps go from each line start of own code to the next, and back.
#[track_caller]
fn step_meets_own_starts(bundle: &Bundle) {
    let mut navigator = opened(bundle);
    let len = navigator.thread().unwrap().history.len();
    let starts = own_starts(&navigator);
    let mut forward = Vec::new();
    let mut at = moved(&mut navigator, &Motion::Step, Direction::Forward, 0);
    while let Some(index) = at {
        forward.push(index);
        at = moved(&mut navigator, &Motion::Step, Direction::Forward, index);
    }
    assert_eq!(forward, starts);
    let mut backward = Vec::new();
    let mut at = moved(&mut navigator, &Motion::Step, Direction::Backward, len);
    while let Some(index) = at {
        backward.push(index);
        at = moved(&mut navigator, &Motion::Step, Direction::Backward, index);
    }
    backward.reverse();
    assert_eq!(backward, starts);
}

#[test]
fn step_meets_own_lines_in_both_directions() {
    step_meets_own_starts(plain());
}

#[test]
fn step_meets_own_lines_of_inlined_code() {
    step_meets_own_starts(optimized());
}

/// Returns the call of an index, and those around it up to the first library function.
fn own_calls(navigator: &Navigator, index: u64) -> Vec<(CallId, u64, u64)> {
    let calls = navigator.with_steps(&Watch::none(), |steps| {
        let forest = steps.forest();
        let around = forest.ancestors(forest.call_at(index).unwrap());
        Ok(around
            .map(|id| (id, forest.call(id).first, forest.call(id).end))
            .collect::<Vec<_>>())
    });
    let calls = calls.unwrap().into_iter();
    calls
        .take_while(|&(_, first, _)| is_own(navigator, first))
        .collect()
}

/// Without inlined functions, a frame is a call.
#[test]
fn next_leaves_own_calls_for_the_next_own_line() {
    let mut navigator = opened(plain());
    let starts = own_starts(&navigator);
    let call_at = |navigator: &Navigator, index: u64| {
        let found = navigator.with_steps(&Watch::none(), |steps| Ok(steps.forest().call_at(index)));
        found.unwrap().unwrap()
    };
    let calls: Vec<CallId> = starts.iter().map(|&start| call_at(&navigator, start)).collect();
    for (number, &start) in starts.iter().enumerate() {
        let own = own_calls(&navigator, start);
        let &(_, first, end) = own.last().unwrap();
        let is_around = |call: CallId| own.iter().any(|&(around, _, _)| around == call);
        let wanted = |&at: &usize| is_around(calls[at]) || !(first..end).contains(&starts[at]);
        let after = (number + 1..starts.len()).find(wanted).map(|at| starts[at]);
        let before = (0..number).rev().find(wanted).map(|at| starts[at]);
        assert_eq!(
            moved(&mut navigator, &Motion::Next, Direction::Forward, start),
            after
        );
        assert_eq!(
            moved(&mut navigator, &Motion::Next, Direction::Backward, start),
            before
        );
        // In one frame, each undoes the other.
        if let Some(after) = after.filter(|&after| call_at(&navigator, after) == calls[number]) {
            let back = moved(&mut navigator, &Motion::Next, Direction::Backward, after);
            assert_eq!(back, Some(start));
        }
    }
}

#[test]
fn every_step_ends_in_own_code() {
    for bundle in [plain(), optimized()] {
        let mut navigator = opened(bundle);
        let len = navigator.thread().unwrap().history.len();
        // Positions of all kinds of code.
        for from in (0..len).step_by(usize::try_from(len / 300).unwrap().max(1)) {
            let motions = [Motion::Step, Motion::Next];
            for (motion, direction) in motions
                .iter()
                .flat_map(|motion| [(motion, Direction::Forward), (motion, Direction::Backward)])
            {
                if let Some(at) = moved(&mut navigator, motion, direction, from) {
                    assert!(is_own(&navigator, at), "{motion:?} {direction:?} {from}: {at}");
                }
            }
        }
        for from in own_starts(&navigator) {
            // Nothing of the program is around its first function.
            if has_function(&navigator, from, "main") {
                continue;
            }
            for direction in [Direction::Forward, Direction::Backward] {
                if let Some(at) = moved(&mut navigator, &Motion::Finish, direction, from) {
                    assert!(is_below_own(&navigator, at), "finish {direction:?} {from}: {at}");
                }
            }
        }
    }
}

/// Returns the lines at which commands after `commands` stop.
fn lines(commands: &[&str], moves: &[&str]) -> Vec<u64> {
    let all: Vec<&str> = commands.iter().chain(moves).copied().collect();
    let answers = plain().results(&all);
    let stops = answers.iter().skip(commands.len());
    stops
        .map(|stop| stop["place"]["frame"]["line"].as_u64().unwrap())
        .collect()
}

fn at(comment: &str) -> String {
    format!("first callbacks.cpp:{}", line(comment))
}

#[test]
fn callbacks_stop_and_libraries_do_not() {
    let [sort, lambda, scaled] = ["call of sort", "in lambda", "in scaled"].map(line);
    // Into the comparison, and out of it into the next one.
    let met = lines(
        &[&at("call of sort")],
        &["step", "step", "reverse-step", "reverse-step"],
    );
    assert_eq!(met, [lambda, scaled, lambda, sort]);
    let met = lines(&[&at("end of lambda")], &["next", "step", "finish"]);
    assert_eq!(met, [lambda, scaled, lambda]);
    // A C library that calls back, and `finish` out of both.
    let [qsort, ordered, last] = ["call of qsort", "in ordered", "last"].map(line);
    let met = lines(&[&at("call of qsort")], &["step", "finish", "reverse-step"]);
    assert_eq!(met, [ordered, line("after qsort"), line("end of ordered")]);
    let met = lines(&[&at("in ordered")], &["reverse-finish", "next"]);
    assert_eq!(met, [qsort, line("after qsort")]);
    // `std::function` between two functions of own code.
    let [call, apply, noted] = ["call of apply", "in apply", "in noted"].map(line);
    let met = lines(
        &[&at("call of apply")],
        &["step", "step", "finish", "finish", "next"],
    );
    assert_eq!(met, [apply, noted, apply, call, last]);
}

#[test]
fn library_code_stops_where_it_is_asked_for() {
    // A breakpoint in a library stops a step on its way.
    let answers = plain().results(&[&at("call of qsort"), "break qsort", "next"]);
    assert_eq!(answers[2]["reason"], "breakpoint");
    let function = answers[2]["place"]["frame"]["function"].as_str().unwrap();
    assert!(function.contains("qsort"), "{function}");
    // Steps by instructions stop anywhere.
    let answers = plain().results(&[
        &at("call of qsort"),
        "break qsort",
        "next",
        "stepi",
        "reverse-stepi",
    ]);
    assert_eq!(answers[4]["place"]["frame"]["function"], function);
    // As do all steps with the setting off.
    let text = plain().debug(&[
        "set just-my-code off",
        &at("call of sort"),
        "step",
        "show just-my-code",
    ]);
    assert!(
        text.contains("stl_vector.h") || text.contains("stl_iterator.h"),
        "{text}"
    );
    assert!(text.contains("just-my-code: off"), "{text}");
}

#[test]
fn skipped_functions_are_passed_with_their_calls() {
    let (noted, scaled) = (line("in noted"), line("in scaled"));
    let after = at("after qsort");
    assert_eq!(
        lines(&[&after], &["step", "reverse-step"]),
        [noted, line("after qsort")]
    );
    for rule in [
        "skip noted",
        "skip function noted",
        "skip -rfu ^no",
        "skip -gfi *.cpp -fu noted",
    ] {
        let met = lines(&[rule, &after], &["step", "step", "reverse-step", "reverse-step"]);
        let [call, apply] = ["call of apply", "in apply"].map(line);
        assert_eq!(met, [call, apply, call, line("after qsort")], "{rule}");
    }
    // The rule has no effect inside of the function.
    assert_eq!(
        lines(&["skip noted", &at("in noted")], &["step", "step"])[1],
        scaled
    );
    for commands in [
        &["skip noted", "skip delete", &*after][..],
        &["skip noted", "skip disable 1", &after],
    ] {
        assert_eq!(lines(commands, &["step"]), [noted]);
    }
    let met = lines(
        &["skip noted", "skip disable 1", "skip enable 1", &after],
        &["step"],
    );
    assert_eq!(met, [line("call of apply")]);
    // All of the own code.
    let answers = plain().results(&["skip file callbacks.cpp", "goto start", "step"]);
    assert_eq!(answers[2]["reason"], "history_end");
}

#[test]
fn skip_rules_are_listed() {
    let text = plain().debug(&[
        "info skip",
        "skip file util.h",
        &at("in noted"),
        "skip",
        "skip -gfi lib/*.c -rfu ^get",
        "skip disable 2-3",
        "skip delete 1",
        "info skip",
    ]);
    for expected in [
        "No code is skipped",
        "Skip 1: file util.h",
        "Skip 2: function noted",
        "Skip 3: functions /^get/ of files lib/*.c (disabled)",
        "Deleted skip 1.",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let answers = plain().answers(&[
        "skip delete 7",
        "skip -gfi",
        "skip -x y",
        "set just-my-code maybe",
        "show color",
    ]);
    for (answer, expected) in answers.iter().zip([
        "no skip rule 7",
        "-gfi requires a value",
        "\"-x\" is not an option",
        "requires on or off",
        "\"color\" is not a setting",
    ]) {
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(expected), "{answer}");
    }
}

/// Returns the libraries of an answer's entries with a function.
fn libraries(entries: &serde_json::Value, function: &str) -> Vec<Option<String>> {
    let entries = entries.as_array().unwrap().iter();
    let named = entries.filter(|entry| {
        let name = entry["function"].as_str().unwrap_or_default();
        name.split('(').next() == Some(function)
    });
    named
        .map(|entry| entry["library"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn skipped_code_is_library_code_in_stacks_and_calls() {
    let here = at("in noted");
    // The call that the position is in, and those below it.
    let calls = "calls";
    let answers = plain().results(&[&here, "backtrace", calls]);
    assert_eq!(libraries(&answers[1]["frames"], "noted"), [None]);
    let own = libraries(&answers[2]["calls"], "noted");
    assert!(!own.is_empty() && own.iter().all(Option::is_none), "{own:?}");
    for rule in [
        "skip noted",
        "skip file callbacks.cpp",
        "skip -gfi *.cpp -rfu ^not",
    ] {
        let answers = plain().results(&[&here, rule, "backtrace", calls]);
        let skipped = Some("skipped code".to_owned());
        assert_eq!(
            libraries(&answers[2]["frames"], "noted"),
            std::slice::from_ref(&skipped),
            "{rule}"
        );
        let marked = libraries(&answers[3]["calls"], "noted");
        assert_eq!(marked.len(), own.len(), "{rule}");
        assert!(marked.iter().all(|library| *library == skipped), "{rule}");
        let main = libraries(&answers[2]["frames"], "main");
        assert_eq!(main[0].is_some(), rule.contains("file"), "{rule}");
    }
    // Library code is marked too.
    let frames = plain()
        .results(&[&at("call of qsort"), "calls --depth 4 --limit 10000"])
        .remove(1);
    let sort = libraries(&frames["calls"], "__GI___qsort_r");
    assert!(!sort.is_empty() && sort.iter().all(Option::is_some), "{sort:?}");
    // A rule without effect marks nothing.
    let answers = plain().results(&[&here, "skip noted", "skip disable 1", "backtrace"]);
    assert_eq!(libraries(&answers[3]["frames"], "noted"), [None]);
}
