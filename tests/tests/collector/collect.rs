//! The collector: programs crash, and their bundles are complete.

mod chain;
mod faults;
mod heap;
mod held;
mod limits;
mod names;
mod runtime;
mod software;
mod spool;
mod triggers;

use backtrail_tests::build;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::process::Command;

/// Returns a program of these tests alone, in `tests/fixtures/collect/`.
fn program(name: &'static str, source: &'static str) -> Command {
    let program = Program {
        name,
        source,
        flags: &["-O1", "-pthread"],
        variants: &[Variant::Pie],
        ending: Ending::Signal(11),
        deterministic: false,
    };
    Command::new(build(&program, Variant::Pie).unwrap())
}

/// Returns one of the programs of all tests.
fn example(name: &str) -> Command {
    Command::new(backtrail_tests::built(name, Variant::Pie).unwrap())
}
