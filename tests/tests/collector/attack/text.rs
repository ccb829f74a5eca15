//! Text of a trace that controls a terminal, forges lines, or forms a command link of VS Code.

use crate::attack::adapter::Server;
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A title escape sequence, C1 controls, a separate line, and right-to-left text.
const HOSTILE: &str = "x\u{1b}]0;PWNED\u{7}\u{9b}31m\u{7f}\nforged line\r\u{202e}y\u{2028}";
/// One of our own colors.
const COLOR: &str = "\u{1b}[1;31m";

#[track_caller]
fn assert_text(text: &str, whence: &str) {
    let bad = |char: char| {
        (char.is_control() && !matches!(char, '\n' | '\t')) || matches!(char, '\u{2028}'..='\u{202e}')
    };
    assert!(!text.contains(bad), "{whence}: {text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("forged line")),
        "{whence}: {text}"
    );
}

/// Records a crash with a hostile program, thread and source file name.
fn hostile(folder: &Path) -> Bundle {
    let source = folder.join("a.c");
    let code = r#"
#include <sys/prctl.h>
#line 1 "/nowhere/z\033]0;t\007\nforged line\n.c"
int f(int x) { if (x == 2) *(volatile int *)0 = 1; return x; }
int main(void) { prctl(15, "c\033]0;t\007\nforged line"); for (int i = 0; i < 4; i++) f(i); return 0; }
"#;
    std::fs::write(&source, code).unwrap();
    let program = folder.join(HOSTILE);
    let built = Command::new("cc")
        .args(["-g", "-O0", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());
    let (bundle, run) = Bundle::made(&["record"], &["--".as_ref(), program.as_ref()]);
    assert_text(&run.stderr, "record");
    let path = bundle.path.join("meta.json");
    let mut meta: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let ours = meta.as_object_mut().unwrap();
    ours.insert("notes".to_owned(), json!([HOSTILE, COLOR]));
    ours.insert("createdBy".to_owned(), json!(HOSTILE));
    ours.insert(
        "collected".to_owned(),
        json!({"trigger": HOSTILE, "probe": HOSTILE, "missing": [HOSTILE, COLOR]}),
    );
    std::fs::write(&path, meta.to_string()).unwrap();
    bundle
}

#[test]
fn no_command_prints_control_characters_of_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = hostile(folder.path());
    let path = bundle.path.to_str().unwrap();
    let debug = [
        "crash",
        "info threads",
        "info sharedlibrary",
        "info source",
        "info line",
        "info functions f",
        "backtrace",
        "bt full",
        "list",
        "where",
        "when",
        "search nowhere",
        "timeline",
        "calls",
        "history",
        "info gaps",
        "bookmark a\u{1b}]0;t\u{7}",
        "info bookmarks",
        "print no\u{1b}[31mthing",
        "break /nowhere/z\u{1b}.c:1",
    ];
    let scripted: Vec<&str> = debug.iter().flat_map(|command| ["-e", command]).collect();
    for command in [
        &["info", path][..],
        &["check", path],
        &["dump", "calls", path],
        &["dump", "instructions", path, "--count", "50"],
        &["dump", "packets", path, "--count", "50"],
        &["latency", path, "f"],
        &[&["debug", path, "--batch"][..], &scripted].concat(),
        &["debug", "/nowhere/\u{1b}]0;t\u{7}"],
    ] {
        for json in [&[][..], &["--json"]] {
            let run = backtrail([command, json].concat()).unwrap();
            let whence = format!("{command:?} {json:?}");
            assert!(run.stdout.len() + run.stderr.len() > 20, "{whence}");
            assert_text(&run.stdout, &whence);
            assert_text(&run.stderr, &whence);
        }
    }
}

#[test]
fn crashes_are_listed_and_shown_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = hostile(folder.path());
    let spool = tempfile::tempdir().unwrap();
    std::fs::rename(&bundle.path, spool.path().join("000001-x-1")).unwrap();
    let place = ["--spool", spool.path().to_str().unwrap()];
    for command in [&["crashes", "list"][..], &["crashes", "show", "1"]] {
        for json in [&[][..], &["--json"]] {
            let run = backtrail([command, &place, json].concat()).unwrap().exited(0);
            assert_text(&run.stdout, &format!("{command:?}"));
            if json.is_empty() && command.contains(&"show") {
                assert!(
                    run.stdout.contains("reported   x\u{fffd}]0;PWNED"),
                    "{}",
                    run.stdout
                );
                assert_eq!(run.stdout.matches("missing ").count(), 2, "{}", run.stdout);
            }
        }
    }
}

/// Collects all strings in a value.
fn strings<'a>(value: &'a Value, all: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => all.push(text),
        Value::Array(values) => values.iter().for_each(|value| strings(value, all)),
        Value::Object(members) => members.values().for_each(|value| strings(value, all)),
        _ => {}
    }
}

#[test]
fn the_adapter_sends_no_links_and_no_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = hostile(folder.path());
    let link = "[Click](command:a.b)";
    let function = json!({"function": link, "direction": "forward"});
    let mut requests = vec![
        ("initialize", json!({"adapterID": "x"})),
        (
            "launch",
            json!({"bundle": bundle.path, "bookmarks": [{"name": HOSTILE, "position": link}]}),
        ),
        ("configurationDone", json!({})),
        ("threads", json!({})),
        ("modules", json!({})),
        ("loadedSources", json!({})),
        ("backtrail/trace", json!({})),
        ("backtrail/where", json!({})),
        ("backtrail/functions", json!({"filter": "f"})),
        ("backtrail/timeline", json!({})),
        ("backtrail/runToCall", function.clone()),
        ("backtrail/latency", function),
        ("backtrail/compare", json!({"calls": [link, link]})),
        ("backtrail/goto", json!({"to": link})),
        ("setFunctionBreakpoints", json!({"breakpoints": [{"name": link}]})),
        ("launch", json!({"bundle": format!("/nowhere/{link}{HOSTILE}")})),
        (link, json!({})),
    ];
    let commands = [
        "info threads",
        "crash",
        "where",
        "info source",
        "print no\u{1b}thing",
    ];
    let evaluate = |text: &&str| ("evaluate", json!({"expression": text, "context": "repl"}));
    requests.extend(commands.iter().map(evaluate));
    // The events of a move precede the response to the next request.
    requests.push(("threads", json!({})));
    let server = Server::start("127.0.0.1:0", &[]);
    let mut client = server.client();
    for (command, arguments) in &requests {
        let _ = client.ask(command, arguments);
    }
    let answers = std::mem::take(&mut client.heard);
    let failed = answers.iter().filter(|answer| answer["success"] == false);
    let named = failed
        .clone()
        .filter(|answer| answer.to_string().contains("Click"));
    assert!(named.count() >= 4, "{answers:#?}");
    let stopped = answers.iter().filter(|answer| answer["event"] == "stopped");
    for answer in failed.chain(stopped) {
        let body = &answer["body"];
        for text in [
            &answer["message"],
            &body["error"]["format"],
            &body["text"],
            &body["description"],
        ] {
            assert!(!text.as_str().unwrap_or_default().contains("]("), "{answer}");
        }
    }
    let mut all = Vec::new();
    answers.iter().for_each(|answer| strings(answer, &mut all));
    for text in all.into_iter().filter(|text| *text != link) {
        assert_text(text, "the adapter");
    }
}
