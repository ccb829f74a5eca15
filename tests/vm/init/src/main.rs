//! The first process of a test machine: runs every test, reports the results, and ends the machine.
//!
//! `cargo xtask test-vm` boots it (docs/vm.md), with the words `power-loss TASK` if the machine has
//! a disk. Called in any other way it does nothing, except for `later`, with which tests start
//! programs.

mod child;
mod daemon;
mod feed;
mod hardware;
mod machine;
mod power;
mod probe;
mod raw;
mod report;
mod stand_in;

use report::Report;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// The error of a failed test, as a sentence.
type Outcome = Result<(), String>;

/// A test with its name. Bundles for the host go to the report.
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
    let outcome = match words.as_slice() {
        ["power-loss", task] => run_on_a_disk(task),
        _ => run(),
    };
    if let Err(why) = outcome {
        println!("vm-init: {why}");
    }
    machine::end()
}

/// Runs a task of the power loss test: more crashes, or the last check.
fn run_on_a_disk(task: &str) -> Outcome {
    machine::mount()?;
    let mut report = Report::open()?;
    let task = power::Task::named(task).ok_or_else(|| format!("there is no task {task:?}"))?;
    power::run(task, &mut report)?;
    report.done()
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
    for said in machine::clock() {
        report.note(&said)?;
    }
    report.note(&format!("{} s after power on", machine::uptime()))?;
    report.done()
}
