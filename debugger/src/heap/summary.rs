//! All blocks at a position: how many live, and which code allocated them.

use super::calls::{CallSource, HeapCall, HeapChange, calls};
use super::place::{CallSite, CallSites};
use super::records::{ProcessRecords, RecordsView};
use super::search::Reports;
use super::sources::HeapCalls;
use crate::error::{Error, Result};
use crate::session::{Session, Thread};
use crate::thread_order::{positions_before, rank};
use backtrail_decoder::{Stage, Watch};
use backtrail_pt::Tid;
use rustc_hash::FxHashMap;
use serde::Serialize;
use std::rc::Rc;

/// The maximum number of live blocks that are tracked.
const MAX_LIVE: usize = 1 << 22;
/// The number of call sites that are shown.
const SITES: usize = 10;

/// All blocks of a process at a position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HeapSummary {
    /// The live blocks that the history has the allocations of.
    pub live_blocks: u64,
    /// Their bytes, as requested.
    pub live_bytes: u64,
    /// All allocations so far.
    pub allocations: u64,
    /// All frees so far.
    pub frees: u64,
    /// The allocations that failed.
    pub failed: u64,
    /// The frees of blocks whose allocations are not in the history.
    pub unknown_frees: u64,
    /// Whether blocks were not tracked because there are too many.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The lines of own code that allocated the most live bytes.
    pub sites: Vec<HeapSite>,
    /// The number of other lines.
    pub more_sites: usize,
    /// The completeness of the collector's records; absent: the calls are in the trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<RecordsView>,
}

/// A line that allocated live blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeapSite {
    /// The function; absent: unknown.
    pub function: Option<String>,
    /// The file.
    pub file: Option<String>,
    /// The line.
    pub line: Option<u32>,
    /// Its live blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The events of a thread that are still to be read.
struct Source<'a> {
    thread: &'a Thread,
    calls: Box<dyn Iterator<Item = HeapCall> + 'a>,
    /// Changes of the last call that were not applied yet, the next last.
    waiting: Vec<(u64, HeapChange, HeapCall)>,
    /// The events at this index and later ones are not meant.
    end: u64,
}

/// A live block, or a free that came before its allocation by the earliest times.
#[derive(Clone, Copy)]
enum Tracked {
    Live { tid: Tid, index: u64, size: u64 },
    Freed { latest: Option<u64> },
}

/// Returns the summary at position `index` of a thread.
///
/// # Errors
///
/// If the trace has no heap events, or they are not decoded yet; when canceled.
pub fn summary(session: &Session, here: &Thread, index: u64, watch: &Watch<'_>) -> Result<HeapSummary> {
    let calls_of_process = HeapCalls::of(session, here)?;
    let mut reports = Reports::new(&calls_of_process, watch);
    let threads = match calls_of_process {
        HeapCalls::Trace(threads) => threads,
        HeapCalls::Records(records) if index >= here.history.len() => {
            return of_records(&records, reports, watch);
        }
        HeapCalls::Records(_) => {
            return Err(Error::Cannot(
                "the collector noted calls by their times, so that blocks are counted at the end only; `goto end` goes there".to_owned(),
            ));
        }
    };
    let now = rank(session, here, index)?;
    let mut sources = Vec::new();
    for thread in threads {
        let end = match now {
            Some(now) if thread.tid != here.tid => positions_before(session, here, now, thread)?,
            _ => None,
        };
        let end = match thread.tid == here.tid {
            true => index,
            // Without times, all events of other threads are meant.
            false => end.unwrap_or(u64::MAX),
        };
        sources.push(Source {
            thread,
            calls: Box::new(calls(&thread.history, 0)),
            waiting: Vec::new(),
            end,
        });
    }
    let mut summary = HeapSummary::default();
    let mut tracked: FxHashMap<u64, Tracked> = FxHashMap::default();
    while let Some((thread, at, change, _)) = next(&mut sources, &mut summary, &mut reports)? {
        let time = thread.history.time(at);
        let earliest = time.map(|time| time.tsc.0);
        let latest = time.and_then(|time| time.latest()).map(|latest| latest.0);
        apply(
            &mut tracked,
            &mut summary,
            (thread.tid, at),
            [earliest, latest],
            change,
        );
    }
    reports.end();
    let mut call_sites = CallSites::new(session);
    let site_of = |tid, index| {
        let thread = session.thread(tid)?;
        Ok(call_sites.find(thread, session.forest(thread, watch)?, index))
    };
    sites(&tracked, &mut summary, site_of, watch)?;
    Ok(summary)
}

/// Returns the summary of the collector's records at their end.
fn of_records(
    records: &ProcessRecords<'_>,
    mut reports: Reports<'_>,
    watch: &Watch<'_>,
) -> Result<HeapSummary> {
    let mut summary = HeapSummary {
        records: Some(records.view()),
        ..HeapSummary::default()
    };
    let mut changes = Vec::new();
    for at in records.calls() {
        reports.passed()?;
        summary.failed +=
            u64::from(at.call.result.is_some_and(|(_, block)| block == 0) && at.call.size != Some(0));
        for (index, change) in at.call.changes() {
            let time = match (at.source, change) {
                (CallSource::Record { began, .. }, HeapChange::Freed { .. }) => Some(began),
                (CallSource::Record { ended, .. }, HeapChange::Allocated { .. }) => Some(ended),
                (CallSource::Trace, _) => None,
            };
            changes.push((time, at.tid, index, change));
        }
    }
    // The order of changes at one time is that of the records.
    changes.sort_by_key(|(time, ..)| *time);
    let mut tracked: FxHashMap<u64, Tracked> = FxHashMap::default();
    for (time, tid, index, change) in changes {
        apply(&mut tracked, &mut summary, (tid, index), [time; 2], change);
    }
    reports.end();
    let site_of = |_, index: u64| {
        let record = usize::try_from(index)
            .ok()
            .and_then(|index| records.records.get(index));
        Ok(record.and_then(|record| records.site(&record).0))
    };
    sites(&tracked, &mut summary, site_of, watch)?;
    Ok(summary)
}

/// Takes the change with the earliest time.
fn next<'a>(
    sources: &mut [Source<'a>],
    summary: &mut HeapSummary,
    reports: &mut Reports<'_>,
) -> Result<Option<(&'a Thread, u64, HeapChange, HeapCall)>> {
    let mut nearest: Option<(usize, Option<u64>)> = None;
    for (number, source) in sources.iter_mut().enumerate() {
        while source.waiting.is_empty() {
            let Some(call) = source.calls.next().filter(|call| call.index < source.end) else {
                break;
            };
            reports.passed()?;
            summary.failed +=
                u64::from(call.result.is_some_and(|(_, block)| block == 0) && call.size != Some(0));
            source
                .waiting
                .extend(call.changes().map(|(index, change)| (index, change, call)));
            source.waiting.reverse();
        }
        let Some(&(index, ..)) = source.waiting.last() else {
            continue;
        };
        let time = source.thread.history.time(index).map(|time| time.tsc.0);
        if nearest.is_none_or(|(_, earliest)| time < earliest) {
            nearest = Some((number, time));
        }
    }
    let source = nearest.and_then(|(number, _)| sources.get_mut(number));
    Ok(source.and_then(|source| {
        let (index, change, call) = source.waiting.pop()?;
        Some((source.thread, index, change, call))
    }))
}

fn apply(
    tracked: &mut FxHashMap<u64, Tracked>,
    summary: &mut HeapSummary,
    (tid, index): (Tid, u64),
    [earliest, latest]: [Option<u64>; 2],
    change: HeapChange,
) {
    match change {
        HeapChange::Allocated { block, size } => {
            summary.allocations += 1;
            let is_freed = match tracked.get(&block) {
                Some(Tracked::Freed { latest }) => {
                    earliest.is_none_or(|earliest| latest.is_none_or(|latest| earliest <= latest))
                }
                _ => false,
            };
            if is_freed {
                tracked.remove(&block);
                summary.unknown_frees -= 1;
            } else if tracked.len() < MAX_LIVE || tracked.contains_key(&block) {
                tracked.insert(block, Tracked::Live { tid, index, size });
            } else {
                summary.is_cut = true;
            }
        }
        HeapChange::Freed { block } => {
            summary.frees += 1;
            if let Some(Tracked::Live { .. }) = tracked.get(&block) {
                tracked.remove(&block);
                return;
            }
            summary.unknown_frees += 1;
            if tracked.len() < MAX_LIVE {
                tracked.insert(block, Tracked::Freed { latest });
            }
        }
    }
}

/// Counts the live blocks by the lines that allocated them.
fn sites(
    tracked: &FxHashMap<u64, Tracked>,
    summary: &mut HeapSummary,
    mut site_of: impl FnMut(Tid, u64) -> Result<Option<Rc<CallSite>>>,
    watch: &Watch<'_>,
) -> Result<()> {
    let mut sites: FxHashMap<Option<Rc<CallSite>>, (u64, u64)> = FxHashMap::default();
    let mut blocks = 0;
    for tracked in tracked.values() {
        let Tracked::Live { tid, index, size } = *tracked else {
            continue;
        };
        blocks += 1;
        watch.report(Stage::Calls, blocks, blocks)?;
        summary.live_blocks += 1;
        summary.live_bytes = summary.live_bytes.saturating_add(size);
        let site = site_of(tid, index)?;
        let (count, bytes) = sites.entry(site).or_default();
        *count += 1;
        *bytes = bytes.saturating_add(size);
    }
    watch.end(Stage::Calls);
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_by(|(one, (_, bytes)), (other, (_, more))| more.cmp(bytes).then_with(|| one.cmp(other)));
    summary.more_sites = sites.len().saturating_sub(SITES);
    let views = sites.into_iter().take(SITES).map(|(site, (blocks, bytes))| {
        let CallSite { function, file, line } = site.as_deref().cloned().unwrap_or_default();
        HeapSite {
            function,
            file,
            line,
            blocks,
            bytes,
        }
    });
    summary.sites = views.collect();
    Ok(())
}
