//! Completion at the prompt: variables, members, and functions that are only inlined.

use backtrail_console::commands;
use backtrail_console::complete::complete;
use backtrail_debugger::navigator::Navigator;
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};

/// A program that crashed.
struct Crashed {
    navigator: Navigator,
    _bundle: Bundle,
}

impl Crashed {
    fn new(program: &str) -> Self {
        let bundle = Bundle::recorded(find(program).unwrap(), Variant::Static, &["--full"]).0;
        let session = Session::open(&bundle.path, &OpenOptions::default(), &Watch::none()).unwrap();
        Self {
            navigator: Navigator::new(session).unwrap(),
            _bundle: bundle,
        }
    }

    fn run(&mut self, command: &str) {
        commands::execute(&mut self.navigator, command, &Watch::none()).unwrap();
    }

    /// Returns the lines that a line can become.
    fn lines(&self, line: &str) -> Vec<String> {
        let (begin, found) = complete(&self.navigator, line);
        let whole = |word: String| format!("{}{word}", &line[..begin]);
        found.into_iter().map(whole).collect()
    }

    #[track_caller]
    fn offers(&self, line: &str, expected: &str) {
        let lines = self.lines(line);
        assert!(lines.iter().any(|line| line == expected), "{line}: {lines:?}");
    }

    #[track_caller]
    fn offers_no_more_than(&self, line: &str, expected: &[&str]) {
        assert_eq!(self.lines(line), expected);
    }
}

#[test]
fn functions_that_are_only_inlined_are_offered() {
    let crashed = Crashed::new("inlined");
    for command in ["break", "count", "list", "latency", "callers"] {
        for function in ["visit", "total"] {
            let line = format!("{command} {}", &function[..4]);
            let lines = crashed.lines(&line);
            let is_it = |offered: &String| offered.starts_with(&format!("{command} {function}"));
            assert!(lines.iter().any(is_it), "{line}: {lines:?}");
        }
    }
}

#[test]
fn variables_of_the_selected_frame_and_globals_are_offered() {
    let mut crashed = Crashed::new("inlined");
    crashed.run("frame function report");
    crashed.offers("print co", "print count");
    crashed.offers("print/x 1+li", "print/x 1+list");
    crashed.offers("display len", "display length");
    crashed.offers("printf \"%d\", thi", "printf \"%d\", third");
    crashed.offers("break report if cou", "break report if count");
    crashed.run("frame function main");
    crashed.offers("output ri", "output right");
    assert!(!crashed.lines("print ").contains(&"print list".to_owned()));
}

#[test]
fn members_are_offered_after_a_dot_and_an_arrow() {
    let mut crashed = Crashed::new("inlined");
    crashed.run("frame function report");
    crashed.offers_no_more_than("print list->", &["print list->next", "print list->value"]);
    crashed.offers_no_more_than("print third.v", &["print third.value"]);
    crashed.offers_no_more_than("print list->next->ne", &["print list->next->next"]);
    crashed.offers_no_more_than("print (*list).va", &["print (*list).value"]);
    crashed.offers_no_more_than("print nothing.", &[]);
    crashed.offers_no_more_than("print length.", &[]);
}

#[test]
fn members_of_bases_are_offered() {
    let mut crashed = Crashed::new("classes");
    crashed.run("frame function look");
    crashed.offers_no_more_than(
        "print both->",
        &["print both->l", "print both->own", "print both->r"],
    );
    crashed.offers_no_more_than("print duck.le", &["print duck.legs"]);
    crashed.offers("print shop::OnlyStatic::", "print shop::OnlyStatic::x");
}
