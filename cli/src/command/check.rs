//! `backtrail check`.

use crate::args::Check;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_decoder::Gap;
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct CheckReport {
    bundle: String,
    refused: Vec<String>,
    gaps: Vec<GapRow>,
}

#[derive(Serialize)]
struct GapRow {
    /// A position in a thread's history, or `processor N` if the gap belongs to no thread.
    position: String,
    cause: String,
    trace_offset: u64,
    resumed_offset: Option<u64>,
}

impl GapRow {
    fn new(position: String, gap: &Gap) -> Self {
        Self {
            position,
            cause: gap.cause.to_string(),
            trace_offset: gap.trace_offset,
            resumed_offset: gap.resumed_offset,
        }
    }
}

/// Lists everything that a reader would refuse, and every gap. Fails with status 3 if there are
/// faults.
pub fn run(args: &Check) -> Result<(), Failure> {
    let interrupt = Interrupt::install();
    let found = backtrail_bundle::check(&args.bundle)?;
    let refused: Vec<String> = found.findings.iter().map(ToString::to_string).collect();
    let gaps = if found.is_clean() {
        gaps(args, &interrupt)?
    } else {
        Vec::new()
    };
    let report = CheckReport {
        bundle: args.bundle.display().to_string(),
        refused,
        gaps,
    };
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-check/1", &report)?;
    } else {
        for refusal in &report.refused {
            writeln!(output, "refused: {}", plain(refusal))?;
        }
        for GapRow {
            position,
            cause,
            trace_offset,
            ..
        } in &report.gaps
        {
            writeln!(
                output,
                "gap at {position}: {} (trace byte {trace_offset:#x})",
                plain(cause)
            )?;
        }
        if report.refused.is_empty() {
            writeln!(
                output,
                "{}: no faults, {} gap(s)",
                plain(&report.bundle),
                report.gaps.len()
            )?;
        }
    }
    output.finish()?;
    match report.refused.len() {
        0 => Ok(()),
        count => Err(Failure::of(
            format_args!("{}: {count} fault(s) found", report.bundle),
            true,
        )),
    }
}

fn gaps(args: &Check, interrupt: &Interrupt) -> Result<Vec<GapRow>, Failure> {
    let session = open::session(&args.bundle, &open::options(&args.decode), interrupt)?;
    let of_threads = session.threads().iter().flat_map(|thread| {
        let gaps = thread.history.gaps();
        gaps.map(|(index, gap)| GapRow::new(thread.position(index).to_string(), gap))
    });
    let of_processors = session.cpus().iter().flat_map(|report| {
        let gaps = report.lost.iter();
        gaps.map(|gap| GapRow::new(format!("processor {}", report.cpu.0), gap))
    });
    Ok(of_threads.chain(of_processors).collect())
}
