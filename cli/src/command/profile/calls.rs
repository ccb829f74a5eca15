//! `backtrail profile report --calls`: the slowest and a typical call of a function.

use super::selected::Selected;
use crate::args::ProfileReport;
use crate::exit::Failure;
use crate::output::Output;
use crate::shell;
use backtrail_debugger::latency::{Span, Unit, Unmeasured};
use backtrail_profile::CallExample;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// The calls of a function.
#[derive(Serialize)]
struct CallReport<'a> {
    file: String,
    function: &'a str,
    unit: Unit,
    calls: u64,
    measured: u64,
    /// The number of calls without a length, by reason.
    left_out: BTreeMap<Unmeasured, u64>,
    /// The number of calls of all functions that are too deep for the profile.
    too_deep: u64,
    slowest: Option<Example>,
    typical: Option<Example>,
}

/// A call.
#[derive(Serialize)]
struct Example {
    length: Span,
    instructions: u64,
    position: String,
    /// The command that opens the debugger there, for a shell.
    command: String,
}

/// Prints the slowest and a typical call of a function.
pub fn run(args: &ProfileReport, name: &str) -> Result<(), Failure> {
    let selected = Selected::open_all_events(&args.file, &args.selection)?;
    let Some(calls) = &selected.calls else {
        return Err(Failure::failed(format_args!(
            "{} has samples and no calls; --calls needs a bundle, as `backtrail record` writes it",
            args.file.display()
        )));
    };
    let symbol = selected.function(name)?;
    let (function, unit) = (selected.functions.name(symbol), calls.times.timer_unit());
    let found = calls.of_function(&selected.functions, symbol);
    let example = |call: CallExample| Example {
        length: Span {
            least: call.least,
            most: call.most,
        },
        instructions: call.instructions,
        command: format!("{}{}", command(&args.file), shell::word(&call.position)),
        position: call.position,
    };
    let report = CallReport {
        file: args.file.display().to_string(),
        function,
        unit,
        calls: found.summary.measured + found.summary.left_out,
        measured: found.summary.measured,
        left_out: found.left_out,
        too_deep: calls.times.deep(),
        slowest: found.summary.slowest.map(example),
        typical: found.summary.typical.map(example),
    };
    let mut output = Output::new();
    match args.json {
        true => output.json("backtrail-profile-calls/1", &report)?,
        false => print(&report, &mut output)?,
    }
    output.finish()
}

/// Returns the command that opens a bundle in the debugger, without the position at its end.
pub fn command(file: &Path) -> String {
    format!("backtrail debug {} --at ", shell::path(file))
}

fn print(report: &CallReport<'_>, output: &mut Output) -> Result<(), Failure> {
    writeln!(
        output,
        "{}: calls of {}: {}, with a known length: {}",
        report.file, report.function, report.calls, report.measured
    )?;
    for (reason, count) in &report.left_out {
        writeln!(output, "note: left out: {count} that {reason}")?;
    }
    if report.too_deep > 0 {
        writeln!(
            output,
            "note: left out of all functions: {} below stacks of 1024 calls",
            report.too_deep
        )?;
    }
    let named = [("slowest", &report.slowest), ("typical", &report.typical)];
    let mut rows = vec![["call", "length", "instructions", "position", "command"].map(str::to_owned)];
    for (name, call) in named {
        rows.extend(call.as_ref().map(|call| {
            [
                name.to_owned(),
                call.length.describe(report.unit),
                call.instructions.to_string(),
                call.position.clone(),
                call.command.clone(),
            ]
        }));
    }
    if rows.len() > 1 {
        print_columns(&rows, output)?;
        writeln!(output, "typical is the median: half of the calls are not longer")?;
    }
    Ok(())
}

/// Prints columns with two spaces between them.
fn print_columns(rows: &[[String; 5]], output: &mut Output) -> Result<(), Failure> {
    let width = |column: usize| {
        let widths = rows
            .iter()
            .filter_map(|row| Some(row.get(column)?.chars().count()));
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..5).map(width).collect();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<String>>().join("  ");
        writeln!(output, "{}", line.trim_end())?;
    }
    Ok(())
}
