//! Compares the transcript in `docs/tutorial.md` with the debugger's answers.

use crate::debian::sqlite::{extension, recorded};
use crate::debian::walk::present;
use backtrail_tests::backtrail::repository;
use regex::Regex;

const PROMPT: &str = "(backtrail) ";
/// A line that represents any number of lines.
const LEFT_OUT: &str = "…";

/// Text that differs between runs and machines.
const VARIES: &[(&str, &str)] = &[
    (r"\bt\d+#\d+", "POSITION"),
    (r"\bc\d+\b", "CALL"),
    (r"-?[0-9.]+ (ns|µs|ms|s)( ±[0-9.]+ (ns|µs|ms|s))?", "TIME"),
    (r"\b0x[0-9a-f]+", "ADDRESS"),
    (r"libsqlite3\.so\.[0-9.]+", "libsqlite3.so"),
    (r"thread \d+", "thread TID"),
    (r"\d+ bytes", "N bytes"),
];

fn masked(line: &str) -> String {
    let mut line = line.trim_end().to_owned();
    for (pattern, name) in VARIES {
        line = Regex::new(pattern)
            .unwrap()
            .replace_all(&line, *name)
            .into_owned();
    }
    line
}

/// The commands of the page and the answers that it shows, line by line.
fn shown(page: &str) -> Vec<(String, Vec<String>)> {
    let mut answers: Vec<(String, Vec<String>)> = Vec::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("    ")) {
        match (
            line.strip_prefix(PROMPT).or(line.strip_prefix("$ ")),
            answers.last_mut(),
        ) {
            (Some(command), _) => answers.push((command.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.to_owned()),
            (None, None) => panic!("an answer without a command: {line}"),
        }
    }
    answers
}

/// Returns whether the lines equal those of the page, except for its omissions.
fn agrees(shown: &[String], real: &[String]) -> bool {
    match shown.split_first() {
        None => real.is_empty(),
        Some((first, rest)) if first.trim() == LEFT_OUT => {
            (0..=real.len()).any(|skipped| agrees(rest, &real[skipped..]))
        }
        Some((first, rest)) => real
            .split_first()
            .is_some_and(|(line, real)| masked(first) == masked(line) && agrees(rest, real)),
    }
}

#[test]
fn tutorial_matches_the_debugger() {
    let page = std::fs::read_to_string(repository().join("docs/tutorial.md")).unwrap();
    let shown = shown(&page);
    let Some((sqlite3, extension)) = present("/usr/bin/sqlite3").zip(extension()) else {
        return;
    };
    let crash = recorded(sqlite3, &extension);
    let typed = |command: &str| page.contains(&format!("    {PROMPT}{command}\n"));
    let of_debugger: Vec<&(String, Vec<String>)> =
        shown.iter().filter(|(command, _)| typed(command)).collect();
    assert!(of_debugger.len() > 8, "the page has lost its transcript");
    let commands: Vec<&str> = of_debugger.iter().map(|(command, _)| command.as_str()).collect();
    let answers = crash.answers(&commands);
    let mut wrong = String::new();
    for ((command, shown), answer) in of_debugger.iter().zip(&answers) {
        let real: Vec<String> = answer.lines().skip(1).map(str::to_owned).collect();
        if !agrees(shown, &real) {
            let shown = shown.join("\n");
            wrong += &format!(
                "{command}\nthe page shows:\n{shown}\nthe debugger says:\n{}\n\n",
                real.join("\n")
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn wrong_transcript_in_a_page_is_detected() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let real = lines("#0  0x12 in f () at f.c:3\n#1  0x34 in main ()\n#2  0x56 in _start ()");
    assert!(agrees(&lines("#0  0xff in f () at f.c:3\n…"), &real));
    assert!(agrees(
        &lines("#0  0xff in f () at f.c:3\n…\n#2  0x1 in _start ()"),
        &real
    ));
    assert!(!agrees(&lines("#0  0xff in f () at f.c:4\n…"), &real));
    assert!(!agrees(&lines("#0  0xff in f () at f.c:3"), &real));
    assert!(!agrees(&lines("…\n#1  0xff in f ()"), &real));
}
