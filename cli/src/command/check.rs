//! `backtrail check`.

use crate::args::Check;
use crate::exit::Failure;
use crate::interrupt::Interrupt;
use crate::open;
use crate::output::Output;
use crate::progress::Bar;
use crate::terminal::plain;
use backtrail_debugger::value_check::{self, ValueCheck};
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
    /// Memory that changed although no recorded access or system call did it.
    unseen_changes: Vec<UnseenChangeRow>,
    /// The replay of recorded values, if there are any.
    replay: Option<ReplayRow>,
}

/// The extent of a replay.
#[derive(Default, Serialize)]
struct ReplayRow {
    instructions: u64,
    /// The segments of the value logs. Each begins with the registers of the processor.
    segments: u64,
}

#[derive(Serialize)]
struct UnseenChangeRow {
    /// The position of the load that found it.
    position: String,
    address: u64,
}

/// The gaps of a bundle, and what else a replay of its values finds.
#[derive(Default)]
struct Found {
    gaps: Vec<GapRow>,
    values: Vec<ValueGapRow>,
    unseen: Vec<UnseenChangeRow>,
    replay: Option<ReplayRow>,
}

/// The most unseen changes that the text lists.
const MOST_LISTED: usize = 10;

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
    let Found {
        gaps,
        values: value_gaps,
        unseen: unseen_changes,
        replay,
    } = if found.is_clean() {
        gaps(args, &interrupt)?
    } else {
        Found::default()
    };
    let report = CheckReport {
        bundle: args.bundle.display().to_string(),
        refused,
        gaps,
        value_gaps,
        unseen_changes,
        replay,
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
        for UnseenChangeRow { position, address } in report.unseen_changes.iter().take(MOST_LISTED) {
            writeln!(output, "memory at {address:#x} changed unseen before {position}")?;
        }
        if let Some(ReplayRow {
            instructions,
            segments,
        }) = &report.replay
        {
            writeln!(
                output,
                "values: {instructions} instructions replayed, in {segments} segment(s)"
            )?;
        }
        if report.refused.is_empty() {
            writeln!(
                output,
                "{}: no faults, {} gap(s), {} gap(s) of values, {} unseen change(s) of memory",
                plain(&report.bundle),
                report.gaps.len(),
                report.value_gaps.len(),
                report.unseen_changes.len()
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

fn gaps(args: &Check, interrupt: &Interrupt) -> Result<Found, Failure> {
    let session = open::session(&args.bundle, &open::options(&args.decode), interrupt)?;
    let of_threads = session.threads().iter().flat_map(|thread| {
        let gaps = thread.history.gaps();
        gaps.map(|(index, gap)| GapRow::new(thread.position(index).to_string(), gap))
    });
    let of_processors = session.cpus().iter().flat_map(|report| {
        let gaps = report.lost.iter();
        gaps.map(|gap| GapRow::new(format!("processor {}", report.cpu.0), gap))
    });
    let mut found = Found {
        gaps: of_threads.chain(of_processors).collect(),
        ..Found::default()
    };
    let bar = Bar::default();
    let progress = |progress: Progress| bar.update(progress);
    let watch = Watch {
        cancel: interrupt.flag(),
        progress: &progress,
    };
    for thread in session.threads() {
        let Some(checked) = value_check::of_thread(&session, thread, &watch)? else {
            continue;
        };
        let ValueCheck {
            gaps,
            unseen,
            segments,
            instructions,
        } = checked;
        let replay = found.replay.get_or_insert_default();
        replay.segments += segments;
        replay.instructions += instructions;
        found.values.extend(gaps.into_iter().map(|gap| ValueGapRow {
            first: thread.position(gap.range.start).to_string(),
            end: thread.position(gap.range.end).to_string(),
            reason: gap.reason,
        }));
        found.unseen.extend(unseen.iter().map(|change| UnseenChangeRow {
            position: thread.position(change.index).to_string(),
            address: change.address,
        }));
    }
    Ok(found)
}
