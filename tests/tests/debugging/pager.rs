//! The pager: which output goes to which program, and that the session outlives it.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use backtrail_tests::terminal::Terminal;
use std::sync::OnceLock;

/// A command with an answer longer than [`ROWS`].
const LONG: &str = "help";
/// A command with a short answer.
const SHORT: &str = "info breakpoints";
/// A row of the long answer.
const LAST_ROW: &str = "Ends the session.";
/// The rows of the terminal.
const ROWS: u16 = 20;
/// The sequence by which the editor switches to bracketed paste, once it is ready for a line.
const READY: &str = "\x1b[?2004h";
/// A pager that marks each line.
const MARKING: (&str, &str) = ("PAGER", "sed 's/^/paged: /'");

fn path() -> &'static str {
    static BUNDLE: OnceLock<Bundle> = OnceLock::new();
    let bundle =
        BUNDLE.get_or_init(|| Bundle::recorded(find("crash_null").unwrap(), Variant::Pie, &["--full"]).0);
    bundle.path.to_str().unwrap()
}

/// Opens the debugger, and returns it at its prompt.
fn debugger(options: &[&str], variables: &[(&str, &str)]) -> Terminal {
    let terminal = Terminal::open(&[&["debug", path()], options].concat(), ROWS, variables);
    terminal.wait_for("(backtrail) ");
    terminal
}

/// Returns how often the editor has been ready for a line.
fn prompts(terminal: &Terminal) -> usize {
    terminal.wait_for(READY).matches(READY).count()
}

/// Types a command, waits until the editor is ready again, and returns the answer. No other line
/// may wait, because then nothing is paged.
#[track_caller]
fn answer(terminal: &mut Terminal, command: &str) -> String {
    let before = terminal.wait_for(READY);
    terminal.type_text(&format!("{command}\r"));
    let after = terminal.wait_for_times(READY, before.matches(READY).count() + 1);
    after[before.len()..].to_owned()
}

#[track_caller]
fn quits(mut terminal: Terminal) {
    terminal.type_text("quit\r");
    let (status, text) = terminal.finish();
    assert_eq!(status, Some(0), "{text}");
}

#[test]
fn output_longer_than_the_terminal_goes_to_the_pager() {
    let mut terminal = debugger(&[], &[MARKING]);
    let text = answer(&mut terminal, LONG);
    assert!(text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    let text = answer(&mut terminal, SHORT);
    assert!(!text.contains("paged: "), "{text}");
    let text = answer(&mut terminal, "show pager");
    assert!(text.contains("pager: on"), "{text}");
    let text = answer(&mut terminal, "set pager off");
    assert!(text.contains("without a pager"), "{text}");
    let text = answer(&mut terminal, LONG);
    assert!(!text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    quits(terminal);
}

#[test]
fn own_variable_comes_before_the_common_one() {
    let own = ("BACKTRAIL_PAGER", "sed 's/^/mine: /'");
    let mut terminal = debugger(&[], &[MARKING, own]);
    let text = answer(&mut terminal, LONG);
    assert!(text.contains("mine: ") && !text.contains("paged: "), "{text}");
    quits(terminal);
    let mut terminal = debugger(&[], &[MARKING, ("BACKTRAIL_PAGER", "")]);
    let text = answer(&mut terminal, LONG);
    assert!(!text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    quits(terminal);
}

#[test]
fn option_turns_the_pager_off() {
    let mut terminal = debugger(&["--no-pager"], &[MARKING]);
    let text = answer(&mut terminal, "show pager");
    assert!(text.contains("pager: off"), "{text}");
    let text = answer(&mut terminal, LONG);
    assert!(!text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    quits(terminal);
}

#[test]
fn pager_that_does_not_exist_leaves_the_text() {
    for command in ["no-such-pager", "no-such-pager --option"] {
        let mut terminal = debugger(&[], &[("PAGER", command)]);
        let text = answer(&mut terminal, LONG);
        assert!(text.contains(LAST_ROW), "{text}");
        assert!(text.contains("cannot run the pager of PAGER"), "{text}");
        let text = answer(&mut terminal, LONG);
        assert!(!text.contains("cannot run"), "{text}");
        quits(terminal);
    }
}

#[test]
fn session_outlives_a_pager_that_ends_early() {
    let mut terminal = debugger(&[], &[("PAGER", "head -n 1")]);
    let text = answer(&mut terminal, LONG);
    assert!(!text.contains(LAST_ROW), "{text}");
    quits(terminal);
}

/// The terminal sends the signal to the debugger too.
#[test]
fn session_outlives_an_interrupted_pager() {
    // A shell between two commands can lose the signal.
    let endless = "awk 'BEGIN { print \"show\" \"ing\"; fflush(); while (1) {} }'";
    let mut terminal = debugger(&[], &[("PAGER", endless)]);
    let ready = prompts(&terminal);
    terminal.type_text(&format!("{LONG}\r"));
    terminal.wait_for("showing");
    terminal.type_text("\x03");
    terminal.wait_for_times(READY, ready + 1);
    let text = answer(&mut terminal, "show pager");
    assert!(text.contains("pager: on"), "{text}");
    quits(terminal);
}

#[test]
fn default_pager_is_less() {
    let mut terminal = debugger(&[], &[]);
    let ready = prompts(&terminal);
    terminal.type_text(&format!("{LONG}\r"));
    // The first screen is full, and less waits for keys.
    terminal.wait_for("\r\n:");
    terminal.type_text("G");
    terminal.wait_for(LAST_ROW);
    terminal.type_text("q");
    terminal.wait_for_times(READY, ready + 1);
    let text = answer(&mut terminal, SHORT);
    assert!(text.contains("No breakpoints"), "{text}");
    quits(terminal);
}

/// Typed-ahead lines would be keys of the pager.
#[test]
fn output_before_waiting_lines_is_not_paged() {
    let mut terminal = debugger(&[], &[MARKING]);
    terminal.type_text(&format!("\x1b[200~{LONG}\n{SHORT}\n\x1b[201~\r"));
    let text = terminal.wait_for("No breakpoints");
    assert!(!text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    quits(terminal);
}

#[test]
fn commands_of_the_command_line_are_not_paged() {
    let cases: [&[&str]; 3] = [
        &["-e", LONG, "-e", "quit"],
        &["--batch", "-e", LONG],
        &["--json", "-e", LONG],
    ];
    for options in cases {
        let arguments = [&["debug", path()], options].concat();
        let (status, text) = Terminal::open(&arguments, ROWS, &[MARKING]).finish();
        assert_eq!(status, Some(0), "{text}");
        assert!(!text.contains("paged: ") && text.contains(LAST_ROW), "{text}");
    }
}
