//! `backtrail snapshot`.

use crate::args::Snapshot;
use crate::exit::Failure;
use crate::output::{Output, plain};
use crate::shell;
use backtrail_collector::{Config, Runtime, client};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Has the running collector make a bundle.
pub fn run(args: &Snapshot) -> Result<(), Failure> {
    #[derive(Serialize)]
    struct Made<'a> {
        id: &'a str,
        bundle: &'a Path,
    }
    let config = Config::load(args.config.as_deref())?;
    let made = client::snapshot(&Runtime::new(&config.runtime), args.pid)?;
    let mut output = Output::new();
    if args.json {
        let made = Made {
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
