//! `backtrail snapshot`.

use crate::args::Snapshot;
use crate::exit::Failure;
use crate::output::Output;
use crate::shell;
use crate::terminal::plain;
use backtrail_collector::{Config, Runtime, client};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Requests a bundle from the running collector.
pub fn run(args: &Snapshot) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct SnapshotReport<'a> {
        id: &'a str,
        bundle: &'a Path,
    }
    let config = Config::load(args.config.as_deref())?;
    let made = client::snapshot(&Runtime::new(&config.runtime), args.pid)?;
    let mut output = Output::new();
    if args.json {
        let made = SnapshotReport {
            id: &made.id,
            bundle: &made.bundle,
        };
        output.json("backtrail-snapshot/1", &made)?;
    } else {
        writeln!(output, "{}", plain(&made.bundle.display().to_string()))?;
        writeln!(output, "next: backtrail crashes debug {}", shell::word(&made.id))?;
    }
    output.finish()
}
