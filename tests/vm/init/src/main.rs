//! The first process of a test machine: runs every test, says how it went, and ends the machine.
//!
//! `cargo xtask test-vm` boots it (docs/vm.md). Called in any other way it does nothing, but for `later`, which tests
//! start programs with.

mod child;
mod daemon;
mod feed;
mod hardware;
mod machine;
mod probe;
mod raw;
mod report;
mod stand_in;

use report::Report;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// What a test finds wrong, as a sentence.
type Outcome = Result<(), String>;

/// A test: its name, and what it does. What it hands out goes into the report.
struct Test {
    name: &'static str,
    run: fn(&mut Report) -> Outcome,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["later", processor, program, rest @ ..] = words.as_slice() {
        return child::later(processor, program, rest);
    }
    if std::process::id() != 1 {
        eprintln!("vm-init runs as the first process of a machine that `cargo xtask test-vm` boots");
        return ExitCode::from(2);
    }
    if let Err(why) = run() {
        println!("vm-init: {why}");
    }
    machine::end()
}

fn run() -> Outcome {
    machine::mount()?;
    let mut report = Report::open()?;
    report.note(&machine::described())?;
    let only = fs::read_to_string("/only").unwrap_or_default();
    let tests: Vec<&Test> = [stand_in::TESTS, hardware::TESTS, daemon::TESTS, probe::TESTS]
        .into_iter()
        .flatten()
        .filter(|test| only.is_empty() || only.lines().any(|begin| test.name.starts_with(begin)))
        .collect();
    for test in &tests {
        report.plan(test.name)?;
    }
    machine::load("/modules/intel_pt.ko")?;
    for test in &tests {
        println!("vm-init: {} begins at {} s", test.name, machine::uptime());
        let outcome = catch_unwind(AssertUnwindSafe(|| (test.run)(&mut report)))
            .unwrap_or_else(|_| Err("the test itself broke down; the console has why".into()));
        report.result(test.name, &outcome)?;
    }
    report.note(&format!("{} s after power on", machine::uptime()))?;
    report.done()
}
