//! Loops and mispredicted branches, as tables or JSON.

use crate::exit::Failure;
use backtrail_profile::fdo::{BranchReport, CodePlace};
use serde::Serialize;
use std::fmt::Write as _;

/// Returns a report as two tables of at most `limit` rows.
pub fn text(report: &BranchReport, limit: usize) -> String {
    let place = |place: &CodePlace| {
        let function = match place.function.is_empty() {
            true => "unknown",
            false => &*place.function,
        };
        format!("{:#x} {function}:{}", place.address.0, place.line)
    };
    let mut text = format!("{:>14} {:>12} {:>10}  loop\n", "iterations", "entries", "mean");
    for found in report.loops.iter().take(limit) {
        let mean = found
            .mean()
            .map_or_else(|| "?".to_owned(), |mean| format!("{mean:.1}"));
        let (iterations, entries) = (found.iterations, found.entries);
        let head = place(&found.head);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{iterations:>14} {entries:>12} {mean:>10}  {head}");
    }
    add_rest(&mut text, report.loops.len(), limit, "loops");
    if report.mispredicted.is_empty() {
        text.push_str("\nNo branch is marked as mispredicted. Traces do not say it.\n");
        return text;
    }
    let _ = writeln!(
        text,
        "\n{:>14} {:>12} {:>10}  branch",
        "mispredicted", "taken", "part"
    );
    for branch in report.mispredicted.iter().take(limit) {
        let part = 100.0 * branch.mispredicted as f64 / branch.taken.max(1) as f64;
        let (missed, taken) = (branch.mispredicted, branch.taken);
        let _ = writeln!(
            text,
            "{missed:>14} {taken:>12} {part:>9.1}%  {}",
            place(&branch.from)
        );
    }
    add_rest(&mut text, report.mispredicted.len(), limit, "branches");
    text
}

fn add_rest(text: &mut String, rows: usize, limit: usize, what: &str) {
    let rest = rows.saturating_sub(limit);
    if rest > 0 {
        let _ = writeln!(text, "… {rest} more {what}; --limit shows them");
    }
}

/// Returns a report as JSON, with all rows.
pub fn json(report: &BranchReport) -> Result<String, Failure> {
    let place = |place: &CodePlace| Place {
        address: format!("{:#x}", place.address.0),
        function: Some(place.function.to_string()).filter(|name| !name.is_empty()),
        line: Some(place.line).filter(|line| *line > 0),
    };
    let loops = report.loops.iter().map(|found| LoopRow {
        head: place(&found.head),
        iterations: found.iterations,
        entries: found.entries,
    });
    let mispredicted = report.mispredicted.iter().map(|branch| BranchRow {
        branch: place(&branch.from),
        taken: branch.taken,
        mispredicted: branch.mispredicted,
    });
    let report = Report {
        schema: "backtrail-fdo-report/1",
        loops: loops.collect(),
        mispredicted: mispredicted.collect(),
    };
    let mut text = serde_json::to_string(&report).map_err(|error| Failure::failed(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    loops: Vec<LoopRow>,
    mispredicted: Vec<BranchRow>,
}

/// A place in the code. An unknown function or line is `null`.
#[derive(Serialize)]
struct Place {
    address: String,
    function: Option<String>,
    line: Option<u32>,
}

#[derive(Serialize)]
struct LoopRow {
    #[serde(flatten)]
    head: Place,
    iterations: u64,
    entries: u64,
}

#[derive(Serialize)]
struct BranchRow {
    #[serde(flatten)]
    branch: Place,
    taken: u64,
    mispredicted: u64,
}
