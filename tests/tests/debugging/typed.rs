//! The prompt on a terminal: lines that are pasted or typed ahead, Ctrl-C, and the pager.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded;
use backtrail_tests::programs::{Variant, find};
use backtrail_tests::terminal::Terminal;
use std::sync::OnceLock;

/// The number of lines that are typed at once. Their text is longer than the editor's buffer.
const LINES: usize = 150;

/// Returns the recording of a program that crashes.
fn bundle() -> &'static Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(|| Bundle::recorded(find("crash_null").unwrap(), Variant::Pie, &["--full"]).0)
}

/// Opens the debugger on a terminal of that many rows.
fn debugger(rows: u16, options: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let path = bundle().path.to_str().unwrap();
    Terminal::open(&[&["debug", path], options].concat(), rows, variables)
}

/// Returns commands that print their number, which the typed line does not contain.
fn numbered() -> impl Iterator<Item = String> {
    (0..LINES).map(|number| format!("printf \"answer=%d.\\n\", {number}"))
}

/// Checks that each number was printed once, in order.
#[track_caller]
fn all_answered(text: &str) {
    let answers = text.split("answer=").skip(1);
    let numbers: Vec<usize> = answers
        .filter_map(|answer| answer.split_once('.')?.0.parse().ok())
        .collect();
    assert_eq!(numbers, (0..LINES).collect::<Vec<_>>(), "{text}");
}

#[track_caller]
fn ends_well(terminal: Terminal) -> String {
    let (status, text) = terminal.finish();
    assert_eq!(status, Some(0), "{text}");
    text
}

#[test]
fn lines_typed_at_once_all_run_in_order() {
    let mut terminal = debugger(50, &["--no-pager"], &[]);
    terminal.wait_for("(backtrail) ");
    let lines: String = numbered().map(|line| line + "\r").collect();
    terminal.type_text(&(lines + "quit\r"));
    all_answered(&ends_well(terminal));
}

#[test]
fn lines_typed_before_the_prompt_all_run_in_order() {
    let mut terminal = debugger(50, &["--no-pager"], &[]);
    for line in numbered() {
        terminal.type_text(&(line + "\r"));
    }
    terminal.type_text("quit\r");
    all_answered(&ends_well(terminal));
}

#[test]
fn bracketed_paste_runs_each_of_its_lines() {
    let mut terminal = debugger(50, &["--no-pager"], &[]);
    terminal.wait_for("(backtrail) ");
    let lines: Vec<String> = numbered().collect();
    terminal.type_text(&format!("\x1b[200~{}\n\n# end\n\x1b[201~", lines.join("\n")));
    terminal.type_text("\rquit\r");
    all_answered(&ends_well(terminal));
}

#[test]
fn line_split_between_writes_is_one_command() {
    let mut terminal = debugger(50, &["--no-pager"], &[]);
    terminal.type_text("printf \"answer=%d.\\n");
    terminal.wait_for("(backtrail) ");
    terminal.type_text("\", 6*7\rquit\r");
    let text = ends_well(terminal);
    assert!(text.contains("answer=42."), "{text}");
}

/// The first Ctrl-C is the editor's, because its terminal sends no signals.
#[test]
fn interrupt_at_the_prompt_keeps_later_lines() {
    let mut terminal = debugger(50, &["--no-pager"], &[]);
    terminal.wait_for("(backtrail) ");
    terminal.type_text("printf \"answer=%d.\\n\", 1\x03printf \"answer=%d.\\n\", 42\rquit\r");
    let text = ends_well(terminal);
    assert!(
        text.contains("answer=42.") && !text.contains("answer=1."),
        "{text}"
    );
}

/// A search through many hits, of which none counts.
const LONG_SEARCH: &str = "break hop if $instructions > 1000000000\rreverse-continue\r";

/// Returns the recording of a program with many calls of one function.
fn hops() -> &'static Bundle {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    BUNDLE.get_or_init(|| compiled_and_recorded("cc", &["-g", "-O1"], "typed/hops.c"))
}

fn searching() -> Terminal {
    let path = hops().path.to_str().unwrap();
    let mut terminal = Terminal::open(&["debug", path, "--no-pager"], 50, &[]);
    terminal.wait_for("(backtrail) ");
    terminal.type_text(LONG_SEARCH);
    terminal.wait_for("searching [");
    terminal
}

#[test]
fn lines_typed_during_a_long_command_all_run() {
    let mut terminal = searching();
    for line in numbered() {
        terminal.type_text(&(line + "\r"));
    }
    terminal.type_text("quit\r");
    let text = ends_well(terminal);
    assert!(text.contains("No more history"), "{text}");
    all_answered(&text);
}

/// As in GDB: the terminal drops the lines that it has, and the editor those that it has read.
#[test]
fn interrupt_ends_the_command_and_drops_lines_before_it() {
    let mut terminal = searching();
    terminal.type_text("printf \"answer=%d.\\n\", 1\rprintf \"answer=%d.\\n\", 2\r\x03");
    terminal.wait_for("canceled");
    terminal.type_text("printf \"answer=%d.\\n\", 42\rquit\r");
    let text = ends_well(terminal);
    assert!(text.contains("answer=42."), "{text}");
    assert!(
        !text.contains("answer=1.") && !text.contains("answer=2."),
        "{text}"
    );
}

/// The editor reads all of them with the line of the search.
#[test]
fn interrupt_drops_lines_that_were_pasted_with_the_command() {
    let path = hops().path.to_str().unwrap();
    let mut terminal = Terminal::open(&["debug", path, "--no-pager"], 50, &[]);
    terminal.wait_for("(backtrail) ");
    terminal.type_text(&format!("{LONG_SEARCH}printf \"answer=%d.\\n\", 1\r"));
    terminal.wait_for("searching [");
    terminal.type_text("\x03");
    terminal.wait_for("canceled");
    terminal.type_text("printf \"answer=%d.\\n\", 42\rquit\r");
    let text = ends_well(terminal);
    assert!(
        text.contains("answer=42.") && !text.contains("answer=1."),
        "{text}"
    );
}
