//! `backtrail doctor`.

use crate::args::Doctor;
use crate::exit::Failure;
use crate::output::Output;
use backtrail_perf::capability::{self, Capability, State};
use backtrail_recorder::Capabilities;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct Report {
    capabilities: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    state: &'static str,
    reason: String,
    fix: Option<String>,
}

/// Asks the machine and prints what it can do, why not, and the fix.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    let mut rows: Vec<Row> = capability::all().into_iter().map(row).collect();
    rows.extend(recorder_rows(&backtrail_recorder::capabilities()));
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-doctor/1", &Report { capabilities: rows })?;
        return output.finish();
    }
    for row in &rows {
        let sign = match row.state {
            "works" => "yes",
            "missing" => "no ",
            _ => "?  ",
        };
        writeln!(output, "{sign}  {}: {}", row.name, row.reason)?;
        if let Some(fix) = &row.fix {
            writeln!(output, "       fix: {fix}")?;
        }
    }
    output.finish()
}

fn row(capability: Capability) -> Row {
    let (state, reason) = match capability.state {
        State::Works(found) => ("works", found),
        State::Missing(why) => ("missing", why),
        State::Untried(why) => ("untried", why),
    };
    Row {
        name: capability.name.to_owned(),
        state,
        reason,
        fix: capability.fix,
    }
}

/// What the software recorder needs: starting a program under it, stepping, attaching.
fn recorder_rows(found: &Capabilities) -> Vec<Row> {
    let row = |name: &str, result: &Result<(), String>, works: &str, fix: Option<&str>| Row {
        name: name.to_owned(),
        state: if result.is_ok() { "works" } else { "missing" },
        reason: result.clone().err().unwrap_or_else(|| works.to_owned()),
        fix: fix.map(str::to_owned),
    };
    let attach = match found.ptrace_scope {
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}"),
        None => "no security module restricts whom ptrace may attach to".to_owned(),
    };
    vec![
        row(
            "software recorder",
            &found.trace,
            "a program can be started under ptrace",
            None,
        ),
        row(
            "single-stepping",
            &found.step,
            "a step runs one instruction",
            None,
        ),
        row(
            "recording a running process",
            &found.trace,
            &attach,
            found.attach_fix(),
        ),
    ]
}
