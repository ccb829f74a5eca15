//! Transcripts of the debugger in documentation pages, and whether its answers agree with them.

use regex::Regex;

/// The prompt before a command of the debugger.
const PROMPT: &str = "(backtrail) ";
/// A line that represents any number of lines.
const LEFT_OUT: &str = "…";

/// Text that differs between runs and machines.
const VARIES: &[(&str, &str)] = &[
    (r"\bt\d+#-?\d+", "POSITION"),
    (r"\bc#?-?\d+\b", "CALL"),
    // A column is as wide as its longest range.
    (
        r" *[-+−]?[0-9.]+( (ns|µs|ms|s))? … [-+−]?[0-9.]+ (ns|µs|ms|s)",
        " RANGE",
    ),
    (
        r"[-<]? ?([0-9.]+( (ns|µs|ms|s))?–)?[0-9.]+ (ns|µs|ms|s)( ±[0-9.]+)?",
        "TIME",
    ),
    (r"\b0x[0-9a-f]+", "ADDRESS"),
    (r"libsqlite3\.so\.[0-9.]+", "libsqlite3.so"),
    (r"thread \d+", "thread TID"),
    (r"\d+ bytes", "N bytes"),
    (r"/\S*/(\w+) (crashed|panicked)", "$1 $2"),
];

/// A command, and its answer line by line.
pub type Exchange = (String, Vec<String>);

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

/// Returns the commands of a page to the debugger, and the answers that it shows.
pub fn shown(page: &str) -> Vec<Exchange> {
    let mut answers: Vec<(bool, Exchange)> = Vec::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("    ")) {
        let of_debugger = line.strip_prefix(PROMPT);
        match (of_debugger.or(line.strip_prefix("$ ")), answers.last_mut()) {
            (Some(command), _) => answers.push((of_debugger.is_some(), (command.to_owned(), Vec::new()))),
            (None, Some((_, (_, lines)))) => lines.push(line.to_owned()),
            (None, None) => panic!("an answer without a command: {line}"),
        }
    }
    let of_debugger = answers.into_iter().filter(|(of_debugger, _)| *of_debugger);
    of_debugger.map(|(_, exchange)| exchange).collect()
}

/// Returns the answers in a transcript, each with its command as the first line.
pub fn answers(transcript: &str) -> Vec<String> {
    let mut answers: Vec<String> = Vec::new();
    for line in transcript.lines() {
        if line.starts_with(PROMPT) {
            answers.push(String::new());
        }
        if let Some(answer) = answers.last_mut() {
            answer.push_str(line);
            answer.push('\n');
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

/// Returns the differences between the answers of a page and the real ones, each with its prompt
/// line first; nothing if there are none.
pub fn differences(shown: &[Exchange], real: &[String]) -> String {
    let mut wrong = String::new();
    for ((command, shown), answer) in shown.iter().zip(real) {
        let real: Vec<String> = answer.lines().skip(1).map(str::to_owned).collect();
        if !agrees(shown, &real) {
            let (shown, real) = (shown.join("\n"), real.join("\n"));
            wrong += &format!("{command}\nthe page shows:\n{shown}\nthe debugger says:\n{real}\n\n");
        }
    }
    wrong
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

#[test]
fn commands_of_the_shell_are_left_out() {
    let page = "text\n\n    $ backtrail debug x\n    (backtrail) up\n    #1  f\n\n    (backtrail) down\n";
    let expected: [Exchange; 2] = [
        ("up".to_owned(), vec!["#1  f".to_owned()]),
        ("down".to_owned(), Vec::new()),
    ];
    assert_eq!(shown(page), expected);
}
