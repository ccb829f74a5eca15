//! Functions that compilers inline are functions: their counts at -O2 are those of the same program
//! without inlining.

use backtrail_debugger::inlined::{self, Execution, InlinedCode};
use backtrail_debugger::{OpenOptions, Session, Watch};
use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// A program, and how it is built with inlining and without.
struct Example {
    source: &'static str,
    compiler: &'static str,
    inlining: &'static [&'static str],
    plain: &'static [&'static str],
    /// The functions, and whether the counts must be certain.
    functions: &'static [(&'static str, bool)],
}

const EXAMPLES: [Example; 3] = [
    Example {
        source: "inlined/shop.c",
        compiler: "cc",
        inlining: &["-g", "-O2"],
        plain: &["-g", "-O2", "-fno-inline"],
        functions: &[
            ("note", true),
            ("price", true),
            ("discount", true),
            ("sum_of", true),
            ("restock", true),
            ("day", true),
        ],
    },
    Example {
        source: "inlined/tree.cpp",
        compiler: "c++",
        inlining: &["-g", "-O2"],
        plain: &["-g", "-O2", "-fno-inline"],
        functions: &[("push", true), ("is_full", true), ("at", true)],
    },
    Example {
        source: "inlined/meter.rs",
        compiler: "rustc",
        inlining: &["--edition=2021", "-g", "-Copt-level=2"],
        plain: &["--edition=2021", "-g", "-Copt-level=0"],
        functions: &[
            ("meter::Meter::add", false),
            ("meter::Meter::reset", false),
            ("meter::weight", false),
        ],
    },
];

/// A number of calls: the least and the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds(u64, u64);

impl Bounds {
    /// Returns the calls of an answer, some of which may continue earlier ones.
    fn of(answer: &Value) -> Self {
        let calls = answer["calls"].as_u64().unwrap_or_else(|| panic!("{answer}"));
        Self(calls - answer["rests"].as_u64().unwrap_or(0), calls)
    }
}

/// Returns the answers to commands about a function.
fn answers(bundle: &Bundle, function: &str) -> [Value; 6] {
    let commands = ["count", "latency", "slowest", "callers", "search", "list"];
    let typed = commands.map(|command| match command {
        "slowest" => format!("slowest {function} 10000"),
        "search" => format!(r"search (^|::){function}($|\()"),
        _ => format!("{command} {function}"),
    });
    let typed: Vec<&str> = typed.iter().map(String::as_str).collect();
    bundle.results(&typed).try_into().unwrap()
}

/// Returns the timeline of a function.
fn bundle_timeline(bundle: &Bundle, function: &str) -> Value {
    bundle.results(&[&format!("timeline {function}")]).remove(0)
}

fn check(example: &Example) {
    let inlining = compiled_and_recorded(example.compiler, example.inlining, example.source);
    let plain = compiled_and_recorded(example.compiler, example.plain, example.source);
    let mut inlined = 0;
    for &(function, is_certain) in example.functions {
        let [expected, _, _, expected_callers, _, expected_list] = answers(&plain, function);
        let expected = Bounds::of(&expected);
        assert!(
            expected.0 == expected.1 && expected.0 > 0,
            "{function}: {expected:?}"
        );
        let [count, latency, slowest, callers, search, list] = answers(&inlining, function);
        let counted = Bounds::of(&count);
        assert!(
            counted.0 <= expected.0 && expected.0 <= counted.1,
            "{function}: {counted:?} {expected:?}"
        );
        if is_certain {
            assert_eq!(counted, expected, "{function}");
        }
        assert_eq!(Bounds::of(&latency), counted, "{function}");
        assert_eq!(latency["measured"].as_u64().unwrap(), counted.1, "{function}");
        assert_eq!(
            slowest["slowest"].as_array().unwrap().len() as u64,
            counted.1,
            "{function}"
        );
        let timeline = &bundle_timeline(&inlining, function)["threads"][0]["calls"];
        let shown = timeline["count"].as_u64().unwrap() + timeline["without_time"].as_u64().unwrap();
        assert_eq!(shown, counted.1, "{function}: {timeline}");
        // The lines that call it.
        let total = |answer: &Value| {
            let callers = answer["callers"].as_array().unwrap().iter();
            callers
                .map(|caller| caller["count"].as_u64().unwrap())
                .sum::<u64>()
        };
        assert_eq!(total(&callers), counted.1, "{function}");
        assert_eq!(total(&expected_callers), expected.0, "{function}");
        let found = search["functions"].as_array().unwrap().iter();
        let found: u64 = found.map(|found| found[1].as_u64().unwrap()).sum();
        assert_eq!(found, counted.1, "{function}: {search}");
        assert_eq!(list["first"], expected_list["first"], "{function}");
        inlined += u64::from(inlined_only(&inlining, function));
    }
    assert!(inlined >= 3, "{}: {inlined}", example.source);
}

/// Returns whether no code of the program calls a function.
fn inlined_only(bundle: &Bundle, function: &str) -> bool {
    let text = bundle.debug(&[&format!("break {function}")]);
    text.contains(" inlined at ") && !text.contains(" in ")
}

#[test]
fn inlined_c_functions_are_counted_as_calls() {
    check(&EXAMPLES[0]);
}

#[test]
fn inlined_methods_of_cpp_are_counted_as_calls() {
    check(&EXAMPLES[1]);
}

#[test]
fn inlined_rust_functions_are_counted_as_calls() {
    check(&EXAMPLES[2]);
}

#[test]
fn breakpoint_stops_once_in_each_execution() {
    let example = &EXAMPLES[0];
    let bundle = compiled_and_recorded(example.compiler, example.inlining, example.source);
    for (function, expected) in [("discount", 300), ("restock", 45)] {
        let text = format!("break {function}");
        let ignore = format!("ignore 1 {}", expected - 1);
        let answers = bundle.results(&[&text, "goto start", &ignore, "continue", "continue"]);
        assert_eq!(answers[3]["reason"], "breakpoint", "{function}");
        assert_eq!(answers[4]["reason"], "history_end", "{function}");
        let answers = bundle.results(&[&text, "goto end", &ignore, "reverse-continue", "reverse-continue"]);
        assert_eq!(answers[3]["reason"], "breakpoint", "{function}");
        assert_eq!(answers[4]["reason"], "history_start", "{function}");
    }
}

#[test]
fn run_to_call_and_completion_know_inlined_functions() {
    let example = &EXAMPLES[0];
    let bundle = compiled_and_recorded(example.compiler, example.inlining, example.source);
    let answers = bundle.results(&["run-to-call 7 of discount", "backtrace"]);
    let frames = answers[1]["frames"].as_array().unwrap();
    assert!(
        frames.iter().any(|frame| frame["function"] == "discount"),
        "{frames:?}"
    );
    let answers = bundle.answers(&["run-to-call 301 of discount"]);
    let error = answers[0]["error"].as_str().unwrap();
    assert!(error.contains("was called 300 times"), "{error}");
}

/// Returns the number of the line of a source file that has a text.
fn line_with(source: &str, text: &str) -> usize {
    let source = std::fs::read_to_string(repository().join("tests/fixtures").join(source)).unwrap();
    let at = source.lines().position(|line| line.contains(text));
    at.unwrap_or_else(|| panic!("{text}")) + 1
}

#[test]
fn stop_is_in_the_frame_that_was_asked_for() {
    let example = &EXAMPLES[0];
    let bundle = compiled_and_recorded(example.compiler, example.inlining, example.source);
    for (function, _) in example.functions {
        let first = format!("break {function}");
        for typed in [
            [&*first, "goto start", "continue", "info frame"],
            [&*first, "goto end", "reverse-continue", "info frame"],
        ] {
            let answers = bundle.results(&typed);
            let frame = &answers[2]["place"]["frame"];
            assert_eq!(frame["function"], *function, "{typed:?}: {frame}");
            // The selected frame is the one that was shown.
            assert_eq!(answers[3]["number"], frame["number"], "{typed:?}");
        }
    }
    for text in [
        "sum += discount(price",
        "note(base)",
        "note(reduced)",
        "sum += sum_of",
    ] {
        let line = line_with(example.source, text);
        let typed = format!("break shop.c:{line}");
        let answers = bundle.results(&[&typed, "goto start", "continue"]);
        let frame = &answers[2]["place"]["frame"];
        assert_eq!(frame["line"], line, "{text}: {frame}");
        let places = answers[0]["breakpoint"]["places"].as_array().unwrap();
        let ending = format!("at shop.c:{line}");
        assert!(
            places
                .iter()
                .any(|place| place.as_str().unwrap().ends_with(&ending)),
            "{places:?}"
        );
    }
    // Conditions see the variables of that frame.
    let answers = bundle.results(&["break price if item == 3", "goto start", "continue", "print item"]);
    assert_eq!(answers[2]["reason"], "breakpoint", "{}", answers[2]);
}

/// Returns the number of times that each stack of the program's functions was entered, outermost
/// first, by the events of an export.
fn entered_stacks(bundle: &Bundle, example: &Example) -> BTreeMap<Vec<String>, u64> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export");
    let arguments: [&OsStr; 8] = [
        "export".as_ref(),
        bundle.path.as_os_str(),
        "--format".as_ref(),
        "chrome".as_ref(),
        "--clock".as_ref(),
        "instructions".as_ref(),
        "-o".as_ref(),
        file.as_os_str(),
    ];
    let _ = backtrail(arguments).unwrap().exited(0);
    let trace: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let is_own = |name: &str| name == "main" || example.functions.iter().any(|(own, _)| *own == name);
    let mut stack: Vec<String> = Vec::new();
    let mut entered = BTreeMap::new();
    let mut marked = 0;
    for event in trace["traceEvents"].as_array().unwrap() {
        let name = event["name"].as_str().unwrap_or_default();
        match event["ph"].as_str().unwrap() {
            "B" => {
                stack.push(name.to_owned());
                marked += u64::from(event["args"]["inlined"] == true);
                if is_own(name) {
                    let own = stack.iter().filter(|name| is_own(name)).cloned();
                    *entered.entry(own.collect()).or_insert(0) += 1;
                }
            }
            // Events nest.
            "E" => assert_eq!(stack.pop().as_deref(), Some(name)),
            _ => {}
        }
    }
    assert!(stack.is_empty(), "{stack:?}");
    let is_plain = entered_inlined(bundle) == 0;
    assert_eq!(marked == 0, is_plain, "{marked}");
    entered
}

/// Returns the number of executions of inlined functions in the call tree.
fn entered_inlined(bundle: &Bundle) -> usize {
    let tree = bundle
        .results(&["calls all --depth 100 --limit 100000"])
        .remove(0);
    let calls = tree["calls"].as_array().unwrap();
    calls.iter().filter(|call| call["inlined"] == true).count()
}

#[test]
fn exported_stacks_are_those_without_inlining() {
    let example = &EXAMPLES[0];
    let inlining = compiled_and_recorded(example.compiler, example.inlining, example.source);
    let plain = compiled_and_recorded(example.compiler, example.plain, example.source);
    let expected = entered_stacks(&plain, example);
    assert!(expected.len() > 6, "{expected:?}");
    assert_eq!(entered_stacks(&inlining, example), expected);
}

/// Returns the instructions of an entry of a call tree: the index of the first, and that after the
/// last.
fn instructions_of(call: &Value) -> (u64, u64) {
    let position = call["position"].as_str().unwrap();
    let first: u64 = position.split_once('#').unwrap().1.parse().unwrap();
    (first, first + call["instructions"].as_u64().unwrap())
}

/// Returns what the whole history, and each call alone, has of executions of inlined copies.
fn executions_in_both_ways(bundle: &Bundle) -> [Vec<Execution>; 2] {
    let watch = Watch::none();
    let session = Session::open(&bundle.path, &OpenOptions::default(), &watch).unwrap();
    let mut ways = [Vec::new(), Vec::new()];
    for thread in session.threads() {
        let Some(process) = session.process(thread) else {
            continue;
        };
        let copies = inlined::executed_copies(process, thread).unwrap();
        let code = InlinedCode::new(&session, thread, &watch).unwrap();
        ways[0].extend(inlined::executions(&session, thread, &copies, &watch).unwrap());
        for call in session.forest(thread, &watch).unwrap().ids() {
            let (found, more) = code.executions_in(call, 1 << 24).unwrap();
            assert!(!more);
            ways[1].extend(found);
        }
    }
    for way in &mut ways {
        way.sort_by_key(|one| (one.copy, one.first));
    }
    ways
}

#[test]
fn one_pass_finds_the_executions_of_each_call() {
    let mut uncertain = 0;
    for example in &EXAMPLES {
        let optimizations: &[&str] = match example.compiler {
            "rustc" => &["-Ccodegen-units=1"],
            _ => &["-O1", "-O2", "-O3"],
        };
        for optimization in optimizations {
            let mut arguments = example.inlining.to_vec();
            arguments.push(*optimization);
            let bundle = compiled_and_recorded(example.compiler, &arguments, example.source);
            let [once, by_call] = executions_in_both_ways(&bundle);
            assert!(once.len() > 20, "{}: {}", example.source, once.len());
            let different = once.iter().zip(&by_call).find(|(one, other)| one != other);
            assert_eq!(different, None, "{} {optimization}", example.source);
            assert_eq!(once.len(), by_call.len(), "{} {optimization}", example.source);
            uncertain += once.iter().filter(|one| !one.is_certain).count();
        }
    }
    assert!(uncertain > 0, "no entrance was uncertain");
}

/// Without a limit, each of the 30 million instructions of the loop would be examined.
#[test]
fn call_tree_of_a_long_inlined_loop_has_its_first_calls() {
    let bundle = compiled_and_recorded("cc", &["-g", "-O1"], "inlined/spin.c");
    let tree = bundle
        .results(&["first main", "calls --depth 100 --limit 300"])
        .remove(1);
    assert_eq!(tree["more"], true);
    let calls = tree["calls"].as_array().unwrap();
    let of = |function: &str| calls.iter().filter(|call| call["function"] == function).count();
    assert_eq!(of("run"), 1, "{tree}");
    assert!(of("weigh") > 200, "{tree}");
}

#[test]
fn call_tree_has_executions_of_inlined_functions() {
    let example = &EXAMPLES[0];
    let bundle = compiled_and_recorded(example.compiler, example.inlining, example.source);
    let tree = bundle
        .results(&["calls all --depth 100 --limit 100000"])
        .remove(0);
    assert_eq!(tree["more"], false);
    let calls = tree["calls"].as_array().unwrap();
    for (function, _) in example.functions {
        let [count, ..] = answers(&bundle, function);
        let found = calls.iter().filter(|call| call["function"] == *function);
        assert_eq!(found.count() as u64, Bounds::of(&count).1, "{function}");
    }
    // Entries nest, and those of one entry do not overlap.
    let mut around: Vec<(u64, u64)> = Vec::new();
    let mut end_of_last = vec![0; 200];
    for call in calls {
        let depth = usize::try_from(call["depth"].as_u64().unwrap()).unwrap();
        let (first, end) = instructions_of(call);
        around.truncate(depth);
        assert_eq!(around.len(), depth, "{call}");
        assert_eq!(call["inlined"] == true, call.get("call").is_none(), "{call}");
        if let Some(&(first_around, _)) = around.last() {
            assert!(first_around <= first, "{call}");
        }
        assert!(end_of_last[depth] <= first || depth == 0, "{call}");
        end_of_last[depth] = first;
        end_of_last[depth + 1] = first;
        around.push((first, end));
    }
    let text = bundle.debug(&["goto end", "calls all --depth 100 --limit 100000"]);
    assert!(text.contains("restock (inlined) shop.c:"), "{text}");
    // A call of the tree is limited as before.
    let tree = bundle.results(&["calls all --depth 100 --limit 7"]).remove(0);
    let positions = |calls: &[Value]| {
        calls
            .iter()
            .map(|call| call["position"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        positions(tree["calls"].as_array().unwrap()),
        positions(&calls[..7])
    );
    assert_eq!(tree["more"], true);
}

#[test]
fn instructions_of_exported_stacks_add_up() {
    let example = &EXAMPLES[0];
    let bundle = compiled_and_recorded(example.compiler, example.inlining, example.source);
    let arguments: [&OsStr; 6] = [
        "export".as_ref(),
        bundle.path.as_os_str(),
        "--format".as_ref(),
        "folded".as_ref(),
        "--clock".as_ref(),
        "instructions".as_ref(),
    ];
    let folded = backtrail(arguments).unwrap().exited(0).stdout;
    let weight = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let total: u64 = folded.lines().map(weight).sum();
    let length = bundle.results(&["goto end", "when"])[1]["of"].as_u64().unwrap();
    assert_eq!(total, length);
    for (function, _) in example.functions {
        let is_of = |line: &&str| line.contains(&format!(";{function}"));
        assert!(
            folded.lines().filter(is_of).map(weight).sum::<u64>() > 0,
            "{function}"
        );
    }
}
