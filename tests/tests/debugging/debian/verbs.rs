//! Every command is used in a walk through a real program and in the transcript of a capture.

use crate::debian::walk::Step;
use crate::debian::{captures, orders, python, redis, sqlite};
use backtrail_console::commands::{self, parse};
use std::collections::BTreeSet;

/// Commands that need recorded values. `watchpoints.rs` uses them.
const OF_VALUES: [&str; 5] = ["watch", "rwatch", "awatch", "info watchpoints", "origin"];

/// Returns the names of the typed commands.
fn used<'a>(lines: impl IntoIterator<Item = &'a str>) -> BTreeSet<&'static str> {
    lines
        .into_iter()
        .filter_map(|line| Some(parse(line).ok()?.0.name))
        .collect()
}

fn missing(used: &BTreeSet<&str>) -> Vec<&'static str> {
    let names = commands::commands().map(|command| command.name);
    names.filter(|name| !used.contains(name)).collect()
}

#[test]
fn every_command_is_used_on_a_real_program() {
    let walks: [&[Step]; 4] = [sqlite::WALK, redis::WALK, python::WALK, orders::WALK];
    let typed = walks
        .iter()
        .flat_map(|walk| walk.iter().map(|(command, _)| *command));
    // `compare` takes calls by name, which differ between runs. A separate test finds two in
    // sqlite.
    let typed = typed.chain(["compare"]).chain(OF_VALUES);
    assert_eq!(missing(&used(typed)), [""; 0]);
}

#[test]
fn every_command_is_used_on_a_capture() {
    // These fail there: the sources are missing, and the trace has no heap events.
    let typed = captures::COMMANDS.iter().copied().chain(captures::REFUSED);
    let typed = typed.chain(OF_VALUES);
    assert_eq!(missing(&used(typed)), [""; 0]);
}
