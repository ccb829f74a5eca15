//! Merges the pieces of a thread, from all processors, into its history.

use super::owner::Owners;
use super::pieces::Piece;
use super::{CpuReport, CpuTrace, UnattributedReason};
use crate::{
    Event, Execution, Gap, GapCause, History, HistoryBuilder, Image, Mark, MarkKind, Sink, Stamp, Version,
};
use backtrail_pt::{Pid, Tid, Tsc};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A part of a thread's history.
struct Part<'a> {
    trace: &'a CpuTrace,
    /// Its number among the processor's pieces.
    number: usize,
    piece: &'a Piece,
    kind: PartKind<'a>,
}

enum PartKind<'a> {
    /// Flow of the thread.
    Flow(&'a Execution),
    /// Flow of the thread or another.
    Unsure,
    /// A loss of flow while the thread may have run; with `sure`, only this thread can have run.
    Lost { gap: &'a Gap, sure: bool },
}

/// Returns the histories of all threads of the processes of `images`, and the reports.
pub(crate) fn merge(
    mut traces: Vec<CpuTrace>,
    images: &BTreeMap<Pid, Arc<Image>>,
) -> (Vec<History>, Vec<CpuReport>) {
    let mut histories = Vec::new();
    let mut reports: Vec<CpuReport> = traces
        .iter_mut()
        .map(|trace| std::mem::take(&mut trace.report))
        .collect();
    let mut threads: BTreeMap<Tid, Vec<Part<'_>>> = BTreeMap::new();
    for (trace, report) in traces.iter().zip(&mut reports) {
        let wanted = |execution: &&Execution| images.contains_key(&execution.pid);
        for execution in trace.executions.iter().filter(wanted) {
            threads.entry(execution.tid).or_default();
        }
        distribute(trace, images, report, &mut threads);
    }
    // The losses that are in a history, by processor and piece number.
    let mut reported = BTreeSet::new();
    for (tid, mut parts) in threads {
        parts.sort_by_key(|part| (part.piece.time.key(), part.trace.cpu, part.number));
        let parts = from_its_beginning(&parts);
        let lost = parts
            .iter()
            .filter(|part| matches!(part.kind, PartKind::Lost { .. }));
        reported.extend(lost.map(|part| (part.trace.cpu, part.number)));
        histories.push(history(tid, parts, images));
    }
    for (trace, report) in traces.iter().zip(&mut reports) {
        let pieces = trace.pieces.iter().enumerate();
        let unreported = pieces.filter(|(number, _)| !reported.contains(&(trace.cpu, *number)));
        let gaps = unreported.filter_map(|(_, piece)| piece.gap.as_ref());
        report.lost = gaps.cloned().collect();
    }
    (histories, reports)
}

/// Returns the parts from the first instruction, or the first loss of this thread alone, on. The
/// history starts there.
fn from_its_beginning<'a, 'b>(parts: &'b [Part<'a>]) -> &'b [Part<'a>] {
    let begins = |part: &Part<'_>| matches!(part.kind, PartKind::Flow(_) | PartKind::Lost { sure: true, .. });
    let first = parts.iter().position(begins);
    parts.get(first.unwrap_or(0)..).unwrap_or(&[])
}

/// Distributes the pieces of a processor to the threads they may belong to.
fn distribute<'a>(
    trace: &'a CpuTrace,
    images: &BTreeMap<Pid, Arc<Image>>,
    report: &mut CpuReport,
    threads: &mut BTreeMap<Tid, Vec<Part<'a>>>,
) {
    let owners = Owners::new(&trace.executions);
    for (number, piece) in trace.pieces.iter().enumerate() {
        let mut give = |tid: Tid, kind: PartKind<'a>| {
            threads.entry(tid).or_default().push(Part {
                trace,
                number,
                piece,
                kind,
            });
        };
        let mut possible: Vec<&Execution> = owners.possible(&piece.time).collect();
        possible.sort_by_key(|execution| execution.tid);
        possible.dedup_by_key(|execution| execution.tid);
        let sure = possible.len() == 1;
        possible.retain(|execution| images.contains_key(&execution.pid));
        if let Some(gap) = &piece.gap {
            for execution in possible {
                give(execution.tid, PartKind::Lost { gap, sure });
            }
            continue;
        }
        let count = piece.range.end - piece.range.start;
        let reason = match owners.certain(&piece.time) {
            Ok(owner) if images.contains_key(&owner.pid) && piece.code != Some(owner.pid) => {
                give(owner.tid, PartKind::Unsure);
                UnattributedReason::OtherCode
            }
            Ok(owner) if images.contains_key(&owner.pid) => {
                report.attributed += count;
                give(owner.tid, PartKind::Flow(owner));
                continue;
            }
            Ok(owner) => UnattributedReason::ForeignProcess(owner.pid),
            Err(reason) => {
                possible
                    .into_iter()
                    .for_each(|execution| give(execution.tid, PartKind::Unsure));
                reason
            }
        };
        let sum = report.unattributed.entry(reason).or_default();
        sum.instructions += count;
        sum.pieces += 1;
    }
}

/// Returns the history of one thread from its parts in order.
fn history(tid: Tid, parts: &[Part<'_>], images: &BTreeMap<Pid, Arc<Image>>) -> History {
    let mut builder = HistoryBuilder::new(tid);
    let mut version = Version::default();
    let mut before: Option<&Part<'_>> = None;
    if let Some(part) = parts.first() {
        let resumed_offset = Some(0);
        let start = Gap {
            cause: GapCause::Start,
            trace_offset: 0,
            resumed_offset,
        };
        builder.mark(MarkKind::Gap(start), part.piece.time.after);
    }
    for part in parts {
        match part.kind {
            PartKind::Flow(execution) => {
                if let Some(image) = images
                    .get(&execution.pid)
                    .filter(|_| part.piece.version != version)
                {
                    let changed = image.changed_between(version, part.piece.version);
                    version = part.piece.version;
                    builder.change_code(version, &changed);
                }
                connect(&mut builder, before, part, execution);
                copy(&mut builder, part, execution);
            }
            PartKind::Unsure => {
                if !before.is_some_and(|before| matches!(before.kind, PartKind::Unsure)) {
                    let cause = GapCause::UnattributedSwitch;
                    let gap = Gap {
                        cause,
                        trace_offset: 0,
                        resumed_offset: None,
                    };
                    builder.mark(MarkKind::Gap(gap), part.piece.time.after);
                }
            }
            PartKind::Lost { gap, sure } => {
                builder.mark(MarkKind::Gap(gap.clone()), part.piece.time.after);
                builder.add_errors(u64::from(sure && gap.cause.is_decode_error()));
            }
        }
        before = Some(part);
    }
    builder.finish()
}

/// Adds the marks between a part and the part before it.
fn connect(builder: &mut HistoryBuilder, before: Option<&Part<'_>>, part: &Part<'_>, execution: &Execution) {
    let came = part.piece.time.after.unwrap_or_default();
    let back = Some(came.max(execution.start));
    let Some(Part {
        kind: PartKind::Flow(last),
        trace,
        number,
        ..
    }) = before
    else {
        return;
    };
    let follows = std::ptr::eq(*trace, part.trace) && number + 1 == part.number;
    if follows && std::ptr::eq(*last, execution) {
        let at = part.piece.range.start;
        for Mark { kind, tsc, .. } in part.trace.history.marks_in(at..at.saturating_add(1)) {
            builder.mark(kind.clone(), *tsc);
        }
    } else {
        builder.mark(MarkKind::Descheduled { back }, builder.last_stamp());
    }
}

/// Copies the instructions of a part, with the marks between them, and their times.
fn copy(builder: &mut HistoryBuilder, part: &Part<'_>, execution: &Execution) {
    let Part { trace, piece, .. } = part;
    let history = &trace.history;
    let range = piece.range.clone();
    let stamp = |tsc: Tsc| {
        Event::Time(Stamp {
            tsc,
            lost_mtc: 0,
            lost_cyc: 0,
        })
    };
    builder.event(Event::Cpu(trace.cpu));
    if let Some(after) = piece.time.after {
        builder.event(stamp(after.max(execution.start)));
    }
    let mut stamps = history.clock.between(range.start, range.end).peekable();
    let mut marks = history
        .marks_in(range.start.saturating_add(1)..range.end)
        .iter()
        .peekable();
    for (index, instruction) in (range.clone()).zip(history.walk(range.start)) {
        while let Some((_, tsc)) = stamps.next_if(|&(at, _)| at <= index) {
            builder.event(stamp(tsc));
        }
        while let Some(mark) = marks.next_if(|mark| mark.index <= index) {
            builder.mark(mark.kind.clone(), mark.tsc);
        }
        builder.instruction(instruction.pc, instruction.len, instruction.cofi);
    }
    let until = piece.time.until().unwrap_or(Tsc(u64::MAX)).min(execution.end);
    if until < Tsc(u64::MAX) {
        builder.event(stamp(until));
        builder.pin();
    }
}
