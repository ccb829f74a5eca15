//! The first screen of a crash: it fits a terminal, and shows the user's own code.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{PROGRAMS, Variant, find};

/// Lines of a terminal, with the prompt and one line more.
pub const MAX_LINES: usize = 30;

/// Returns what `crash` prints.
pub fn first_screen(bundle: &Bundle) -> String {
    let text = bundle.debug(&["crash"]);
    let (_, screen) = text.split_once("(backtrail) crash\n").unwrap();
    screen.to_owned()
}

#[test]
fn first_screen_of_every_crash_fits_a_terminal() {
    for program in PROGRAMS.iter().filter(|program| program.crashes()) {
        let (bundle, _) = Bundle::recorded(program, Variant::Pie, &["--full"]);
        let screen = first_screen(&bundle);
        println!("{}: {} lines", program.name, screen.lines().count());
        assert!(screen.lines().count() <= MAX_LINES, "{}:\n{screen}", program.name);
        assert!(screen.contains(" crashed: SIG"), "{screen}");
        assert!(screen.contains("Next: "), "{screen}");
    }
}

#[test]
fn frames_of_libraries_are_folded() {
    let (bundle, _) = Bundle::recorded(find("terminate").unwrap(), Variant::Pie, &["--full"]);
    let screen = first_screen(&bundle);
    let stack: Vec<&str> = screen
        .lines()
        .skip_while(|line| *line != "Stack:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .collect();
    // The frames of abort and the C++ library, then those of the program.
    assert!(
        stack[0].contains(" frames of libc.so.6 and libstdc++.so.6"),
        "{screen}"
    );
    assert!(stack[1].contains(" at terminate.cpp:"), "{screen}");
    assert!(
        stack
            .iter()
            .any(|frame| frame.contains(" in main () ") || frame.contains(" main () ")),
        "{screen}"
    );
    // The source, the last calls and lines are of the program.
    assert!(screen.contains("\nterminate.cpp:"), "{screen}");
    let last = screen.split("Last lines, newest last:\n").nth(1).unwrap();
    for line in last.lines().take_while(|line| !line.is_empty()) {
        assert!(line.starts_with("  terminate.cpp:"), "{screen}");
    }
    let full = bundle.debug(&["crash full"]);
    assert!(full.contains("abort") && !full.contains(" frames of "), "{full}");

    let frames = &bundle.results(&["backtrace"])[0]["frames"];
    let library = |function: &str| {
        let frames = frames.as_array().unwrap().iter();
        let mut named = frames.filter(|frame| frame["function"].as_str() == Some(function));
        named.next().unwrap()["library"].clone()
    };
    assert_eq!(library("main"), serde_json::Value::Null);
    assert_eq!(frames[0]["library"], "libc.so.6");
}

#[test]
fn panic_shows_the_line_of_the_program() {
    let (bundle, run) = Bundle::recorded(find("lease").unwrap(), Variant::Pie, &["--full"]);
    assert!(run.stderr.contains(" at lease.rs:"), "{}", run.stderr);
    let screen = first_screen(&bundle);
    assert!(screen.contains("\nlease.rs:"), "{screen}");
    assert!(screen.contains("frames of "), "{screen}");
}
