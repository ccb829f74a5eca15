//! `backtrail check`.

use crate::args::Check;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Bar;
use crate::terminal::plain;
use backtrail_debugger::value_gaps;
use backtrail_decoder::{Gap, Progress, Watch};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct CheckReport {
    bundle: String,
    refused: Vec<String>,
    gaps: Vec<GapRow>,
    /// The parts of histories whose recorded values are unknown.
    value_gaps: Vec<ValueGapRow>,
}

#[derive(Serialize)]
struct ValueGapRow {
    first: String,
    /// The position after the gap.
    end: String,
    reason: String,
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
    let (gaps, value_gaps) = if found.is_clean() {
        gaps(args, &interrupt)?
    } else {
        (Vec::new(), Vec::new())
    };
    let report = CheckReport {
        bundle: args.bundle.display().to_string(),
        refused,
        gaps,
        value_gaps,
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
        for ValueGapRow { first, end, reason } in &report.value_gaps {
            writeln!(output, "values unknown from {first} to {end}: {}", plain(reason))?;
        }
        if report.refused.is_empty() {
            writeln!(
                output,
                "{}: no faults, {} gap(s), {} gap(s) of values",
                plain(&report.bundle),
                report.gaps.len(),
                report.value_gaps.len()
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

fn gaps(args: &Check, interrupt: &Interrupt) -> Result<(Vec<GapRow>, Vec<ValueGapRow>), Failure> {
    let session = open::session(&args.bundle, &open::options(&args.decode), interrupt)?;
    let of_threads = session.threads().iter().flat_map(|thread| {
        let gaps = thread.history.gaps();
        gaps.map(|(index, gap)| GapRow::new(thread.position(index).to_string(), gap))
    });
    let of_processors = session.cpus().iter().flat_map(|report| {
        let gaps = report.lost.iter();
        gaps.map(|gap| GapRow::new(format!("processor {}", report.cpu.0), gap))
    });
    let gaps = of_threads.chain(of_processors).collect();
    let mut values = Vec::new();
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    for thread in session.threads() {
        let found = value_gaps::of_thread(&session, thread, &watch)?;
        values.extend(found.into_iter().flatten().map(|gap| ValueGapRow {
            first: thread.position(gap.range.start).to_string(),
            end: thread.position(gap.range.end).to_string(),
            reason: gap.reason,
        }));
    }
    Ok((gaps, values))
}
