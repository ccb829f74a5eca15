//! Compares the transcript in `docs/tutorial.md` with the debugger's answers.

use crate::debian::sqlite::{extension, recorded};
use crate::debian::walk::present;
use crate::transcript::{differences, shown};
use backtrail_tests::backtrail::repository;

#[test]
fn tutorial_matches_the_debugger() {
    let page = std::fs::read_to_string(repository().join("docs/tutorial.md")).unwrap();
    let shown = shown(&page);
    let Some((sqlite3, extension)) = present("/usr/bin/sqlite3").zip(extension()) else {
        return;
    };
    let crash = recorded(sqlite3, &extension, &["--values"]);
    assert!(shown.len() > 8, "the page has lost its transcript");
    let commands: Vec<&str> = shown.iter().map(|(command, _)| command.as_str()).collect();
    let wrong = differences(&shown, &crash.answers(&commands));
    assert!(wrong.is_empty(), "{wrong}");
}
