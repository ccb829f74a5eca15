//! Queries over history: executed lines with counts, actions at breakpoints, other threads'
//! positions.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;

fn requests() -> Bundle {
    Bundle::recorded(find("requests").unwrap(), Variant::Static, &["--full"]).0
}

/// Returns the index of a position.
fn index(position: &Value) -> u64 {
    let (_, index) = position.as_str().unwrap().split_once('#').unwrap();
    index.parse().unwrap()
}

/// Returns the line of a text in the program's source.
fn line_of(text: &str) -> u64 {
    let source = include_str!("../../fixtures/programs/requests.c");
    let line = source.lines().position(|line| line.contains(text));
    line.unwrap() as u64 + 1
}

#[test]
fn functions_files_and_lines_that_ran_are_found() {
    let bundle = requests();
    let [functions, lines, files, counted] = &bundle.results(&[
        "search ^(serve|flush_cache|unknown)$",
        "search cache\\[key\\] = load",
        "search requests\\.c$",
        "count /^(serve|reply)$/",
    ])[..] else {
        panic!("four answers");
    };
    let functions = functions["functions"].as_array().unwrap();
    let found: Vec<(&str, u64)> = functions
        .iter()
        .map(|function| (function[0].as_str().unwrap(), function[1].as_u64().unwrap()))
        .collect();
    assert_eq!(found, [("serve", 6), ("flush_cache", 1)]);
    assert!(index(&functions[0][2]) > index(&functions[0][3]));
    assert_eq!(functions[1][2], functions[1][3]);

    let hits = lines["lines"].as_array().unwrap();
    assert_eq!(hits.len(), 1);
    // Three requests find the cache empty.
    assert_eq!(hits[0]["count"], 3);
    assert_eq!(hits[0]["line"], line_of("cache[key] = load"));
    assert!(index(&hits[0]["first"]) < index(&hits[0]["last"]));
    assert_eq!(files["files"].as_array().unwrap().len(), 1);
    assert_eq!(counted["calls"], 12);
    let text = bundle.debug(&["search no_such_thing"]);
    assert!(
        text.contains("No executed function, file or source line"),
        "{text}"
    );
}

#[test]
fn line_without_code_has_no_count() {
    let bundle = requests();
    let empty = line_of("static unsigned cache[ENTRIES]");
    let asked = format!("requests.c:{empty}");
    let (count, info) = (format!("count {asked}"), format!("info line {asked}"));
    let [counted, described, own] = &bundle.results(&[&count, &info, "count requests.c:58"])[..] else {
        panic!("three answers");
    };
    let next = counted["line"].as_u64().unwrap();
    assert!(next > empty && next < line_of("unsigned key = 0"), "{counted}");
    assert_eq!(counted["executions"], 6);
    let text = described["text"].as_str().unwrap();
    assert!(
        text.contains(&format!("no code; the next line with code, {next}")),
        "{text}"
    );
    assert_eq!(own["line"], Value::Null);
}

#[test]
fn line_with_two_calls_is_one_caller() {
    let bundle = Bundle::recorded(find("verbs").unwrap(), Variant::Static, &["--full"]).0;
    let [callers] = &bundle.results(&["callers leaf"])[..] else {
        panic!("one answer");
    };
    let callers = callers["callers"].as_array().unwrap();
    let source = include_str!("../../fixtures/programs/verbs.c").lines();
    let line = source
        .clone()
        .position(|line| line.contains("int a = leaf(value); int b = leaf(a);"));
    let line = line.unwrap() as u64 + 1;
    let found: Vec<&Value> = callers.iter().filter(|caller| caller["line"] == line).collect();
    assert_eq!(found.len(), 1, "{callers:?}");
    let count = found[0]["count"].as_u64().unwrap();
    assert!(count >= 2 && count.is_multiple_of(2), "{count}");
    assert_ne!(found[0]["first"], found[0]["last"]);
}

#[test]
fn possible_rest_of_a_call_is_counted_separately() {
    let bundle = Bundle::recorded(find("contexts").unwrap(), Variant::Static, &["--full"]).0;
    let [coroutine, work, resume] = &bundle.results(&["count coroutine", "count work", "count resume"])[..]
    else {
        panic!("three answers");
    };
    assert_eq!((&coroutine["calls"], &coroutine["rests"]), (&3.into(), &2.into()));
    for whole in [work, resume] {
        assert_eq!((&whole["calls"], &whole["rests"]), (&3.into(), &Value::Null));
    }
    let commands = ["goto end", "break work", "reverse-continue", "backtrace"];
    let [.., stack] = &bundle.results(&commands)[..] else {
        panic!("four answers");
    };
    let names = stack["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["function"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["work", "coroutine"]);
    let beyond = stack["unknown_beyond"].as_str().unwrap();
    assert!(beyond.contains("switched to this stack"), "{beyond}");
    let text = bundle
        .run(&["debug"], &["--batch", "-e", "count coroutine"])
        .stdout;
    assert!(
        text.contains("2 of them may be the continuation of an earlier one"),
        "{text}"
    );
}

#[test]
fn first_last_and_nth_are_moves_that_can_be_undone() {
    let bundle = requests();
    let answers = bundle.results(&[
        "when",
        "first serve",
        "last serve",
        "run-to-call 3 of serve",
        "run-to-call 4 serve",
        "back",
        "back",
        "back",
        "back",
        "search ^serve$",
    ]);
    let position = |at: usize| &answers[at]["place"]["position"];
    let search = &answers[9]["functions"][0];
    // After the prologue, where a breakpoint stops.
    assert_eq!(answers[1]["place"]["frame"]["function"], "serve");
    assert!(index(position(1)) >= index(&search[3]));
    assert!(index(position(2)) >= index(&search[2]));
    assert!(index(position(1)) < index(position(3)) && index(position(3)) < index(position(4)));
    assert_eq!(position(5), position(3));
    assert_eq!(position(6), position(2));
    assert_eq!(position(7), position(1));
    assert_eq!(*position(8), answers[0]["position"]);
    for (command, refusal) in [
        ("first abort", "abort did not run"),
        ("run-to-call 7 of serve", "serve was called 6 times"),
        ("run-to-call 0 of serve", "usage: run-to-call"),
    ] {
        let words = ["debug".as_ref(), bundle.path.as_os_str()];
        let options = ["--batch", "-e", command].map(std::ffi::OsStr::new);
        let run = backtrail_tests::backtrail::backtrail(words.into_iter().chain(options));
        let run = run.unwrap().exited(1);
        assert!(run.stdout.contains(refusal), "{}", run.stdout);
    }
}

#[test]
fn list_shows_how_often_lines_ran() {
    let bundle = requests();
    let fetch = line_of("static unsigned fetch");
    let answer = &bundle.results(&[&format!("list requests.c:{}", fetch + 3)])[0];
    let counts = answer["executions"].as_array().unwrap();
    let first = answer["first"].as_u64().unwrap();
    let count = |text: &str| &counts[(line_of(text) - first) as usize];
    assert_eq!(counts.len(), answer["lines"].as_array().unwrap().len());
    assert_eq!(*count("abort();"), 0);
    assert_eq!(*count("if (!cache[key])"), 6);
    assert_eq!(*count("cache[key] = load"), 3);
    let text = bundle.debug(&[&format!("list requests.c:{}", fetch + 3)]);
    assert!(text.contains(" never "), "{text}");
    assert!(text.contains("3×"), "{text}");
    assert!(text.contains("history of this thread"), "{text}");
}

#[test]
fn breakpoints_run_commands_at_a_stop() {
    let bundle = requests();
    let answers = bundle.results(&[
        "goto start",
        "break flush_cache",
        "commands",
        "silent",
        "backtrace 2",
        "end",
        "tbreak reply",
        "commands 2",
        "when",
        "continue",
        "end",
        "info breakpoints",
        "continue",
        "when",
    ]);
    assert_eq!(
        answers[11]["breakpoints"][0]["commands"],
        serde_json::json!(["silent", "backtrace 2"])
    );
    let several = answers[12]["answers"].as_array().unwrap();
    let commands: Vec<&str> = several
        .iter()
        .map(|answer| answer["command"].as_str().unwrap())
        .collect();
    // The debugger stops at the first reply, prints the position, continues, and is silent at the
    // flush.
    assert_eq!(commands, ["", "when", "backtrace 2"]);
    assert_eq!(several[0]["result"]["reason"], "breakpoint");
    assert_eq!(several[2]["result"]["frames"][0]["function"], "flush_cache");
    assert_eq!(several[2]["result"]["frames"].as_array().unwrap().len(), 2);
    assert_ne!(answers[13]["position"], several[1]["result"]["position"]);
}

#[test]
fn the_other_threads_are_seen_at_the_time_of_a_position() {
    let (bundle, _) = Bundle::recorded(find("threads").unwrap(), Variant::Pie, &["--full"]);
    let answers = bundle.results(&["info threads", "thread apply all backtrace 1"]);
    let threads = answers[0]["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 5);
    for thread in threads {
        let now = &thread["now"];
        match now["unknown"].as_str() {
            Some(why) => assert!(!why.is_empty() && now["position"].is_null()),
            None => {
                let from = index(&now["position"]);
                assert!(from <= thread["instructions"].as_u64().unwrap());
                if now["until"].is_string() {
                    assert!(from < index(&now["until"]));
                }
            }
        }
    }
    let here = threads.iter().find(|thread| thread["current"] == true).unwrap();
    assert_eq!(here["now"]["position"], here["position"]);
    let stacks = answers[1]["answers"].as_array().unwrap();
    assert_eq!(stacks.len(), 5);
    for stack in stacks {
        assert!(stack["result"]["frames"].is_array() || stack["error"].is_string());
    }
    let text = bundle.debug(&["thread apply all backtrace 1"]);
    assert_eq!(text.matches("Thread ").count(), 5, "{text}");
}
