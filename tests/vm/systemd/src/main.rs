//! The units that `backtrail install` writes, under the systemd of a test machine, where this runs
//! as a service.
//!
//! `cargo xtask test-vm` boots it (docs/vm.md). As `vm-systemd stranger …` it acts as a hostile
//! user.

mod collector;
mod hub;
mod recorded;
#[path = "../../init/src/report.rs"]
#[expect(
    dead_code,
    reason = "no bundle is handed out: these tests look at them inside"
)]
mod report;
mod stranger;
mod systemd;

use report::Report;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

/// The error of a failed test, as a sentence.
type Outcome = Result<(), String>;

/// A test with its name. Tests run in order on one machine, each in the state that the last one
/// left.
struct Test {
    name: &'static str,
    run: fn() -> Outcome,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["stranger", what, pid] = words.as_slice() {
        return stranger::run(what, pid);
    }
    if systemd::first_process() != "systemd" {
        eprintln!("vm-systemd runs in a machine that `cargo xtask test-vm` boots");
        return ExitCode::from(2);
    }
    if let Err(why) = run() {
        println!("vm-systemd: {why}");
    }
    // The emulator treats a restart as the end.
    let _ = Command::new("systemctl")
        .args(["reboot", "--force", "--force"])
        .status();
    ExitCode::SUCCESS
}

fn run() -> Outcome {
    let mut report = Report::open()?;
    report.note(&systemd::described())?;
    let only = fs::read_to_string("/only").unwrap_or_default();
    let tests: Vec<&Test> = [
        collector::FIRST,
        recorded::TESTS,
        hub::TESTS,
        stranger::TESTS,
        collector::LAST,
    ]
    .into_iter()
    .flatten()
    .filter(|test| only.is_empty() || only.lines().any(|begin| test.name.starts_with(begin)))
    .collect();
    for test in &tests {
        report.plan(test.name)?;
    }
    for test in &tests {
        println!("vm-systemd: {} begins at {} s", test.name, systemd::uptime());
        let outcome = catch_unwind(AssertUnwindSafe(test.run))
            .unwrap_or_else(|_| Err("the test itself broke down; the console has why".into()));
        if outcome.is_err() {
            println!("{}", systemd::journal(&["--lines", "80"]));
        }
        report.result(test.name, &outcome)?;
    }
    report.note(&format!("{} s after power on", systemd::uptime()))?;
    report.done()
}
