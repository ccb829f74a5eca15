//! Runs one measurement of `cargo xtask bench decode`, and prints one JSON object. Each measurement
//! is a process, so that cold caches, memory and crashes do not affect others.

mod arguments;
mod code;
mod edges;
mod libipt;
mod ours;
mod peers;
mod report;
mod search;
mod stream;
mod threads;

use arguments::{Arguments, Kind};
use std::process::ExitCode;

/// An error message of one sentence.
type Failure = String;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Arguments::parse(&arguments).and_then(|arguments| run(&arguments)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("backtrail-bench: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<serde_json::Value, Failure> {
    match arguments.kind {
        Kind::Engines => Ok(ours::engines()),
        Kind::Prefix => peers::prefix(arguments),
        Kind::Insn => peers::insn(arguments),
        Kind::Blk => peers::blk(arguments),
        Kind::Edges => edges::run(arguments),
        Kind::Ours => ours::run(arguments),
        Kind::Search => search::run(arguments),
        Kind::Threads => threads::run(arguments),
    }
}
