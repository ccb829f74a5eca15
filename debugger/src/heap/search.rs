//! The blocks that covered an address.

use super::calls::{CallSource, HeapChange, ThreadCall, calls as calls_of};
use super::lives::{Life, TimedEvent, lives};
use super::place::{HeapPlace, place};
use super::records::ProcessRecords;
use super::sources::HeapCalls;
use crate::error::{Error, Result};
use crate::own_code::CodeOrigin;
use crate::session::{Session, Thread};
use backtrail_decoder::{Stage, Watch};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

/// The number of calls between two reports of progress.
const OFTEN: usize = 4096;
/// The maximum number of events that are kept. Blocks with older events are left out.
const MAX_EVENTS: usize = 1 << 18;

/// A block that covered an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoveringBlock {
    /// Its address.
    pub start: u64,
    /// Its size; `None`: its allocation is not in the history.
    pub size: Option<u64>,
    /// Its allocation and its free.
    pub life: Life<ThreadCall, ThreadCall>,
}

/// The blocks that covered addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoveringBlocks {
    /// The newest first.
    pub blocks: Vec<CoveringBlock>,
    /// Whether older blocks were left out, because there are too many.
    pub is_cut: bool,
}

/// A block, for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlockView {
    /// Its address.
    pub block: u64,
    /// Its size in bytes; absent: its allocation is not in the history.
    pub size: Option<u64>,
    /// The distance of the address from its start.
    pub offset: u64,
    /// Its allocation; absent: it is not in the history.
    pub allocated: Option<HeapPlace>,
    /// Its free.
    pub freed: Option<HeapPlace>,
    /// Whether the address was allocated again, although the history has no free.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub free_is_missing: bool,
}

impl CoveringBlock {
    /// Returns whether the block contains an address. A block of unknown size contains its start.
    #[must_use]
    pub fn contains(&self, address: u64) -> bool {
        contains(self.start, self.size, address)
    }

    /// Returns whether the history has its end.
    #[must_use]
    pub fn is_freed(&self) -> bool {
        self.life.freed.is_some()
    }

    /// Returns the block for display.
    ///
    /// # Errors
    ///
    /// When canceled.
    pub fn view(&self, session: &Session, address: u64, watch: &Watch<'_>) -> Result<BlockView> {
        let view = |event: &Option<TimedEvent<ThreadCall>>| {
            let Some(TimedEvent { place: at, .. }) = event else {
                return Ok(None);
            };
            place_of(session, at, watch).map(Some)
        };
        Ok(BlockView {
            block: self.start,
            size: self.size,
            offset: address.saturating_sub(self.start),
            allocated: view(&self.life.allocated)?,
            freed: view(&self.life.freed)?,
            free_is_missing: self.life.is_replaced && self.life.freed.is_none(),
        })
    }
}

/// Returns the place of a call.
///
/// # Errors
///
/// When canceled.
pub(super) fn place_of(session: &Session, at: &ThreadCall, watch: &Watch<'_>) -> Result<HeapPlace> {
    if at.source == CallSource::Trace {
        return place(session, session.thread(at.tid)?, &at.call, watch);
    }
    let records = ProcessRecords::of(session)?;
    let records = records.ok_or_else(|| Error::Cannot("the bundle has no heap records".to_owned()))?;
    records.place(at)
}

fn contains(start: u64, size: Option<u64>, address: u64) -> bool {
    let end = start.saturating_add(size.unwrap_or(1).max(1));
    (start..end).contains(&address)
}

/// Returns the blocks that covered any of these addresses, in the process of a thread, the newest
/// first.
///
/// # Errors
///
/// If the trace has no heap events, or they are not decoded yet; when canceled.
pub fn covering(
    session: &Session,
    thread: &Thread,
    addresses: &[u64],
    watch: &Watch<'_>,
) -> Result<CoveringBlocks> {
    let calls = HeapCalls::of(session, thread)?;
    let mut starts: FxHashSet<u64> = addresses.iter().copied().collect();
    let mut reports = Reports::new(&calls, watch);
    for_each_call(&calls, &mut reports, |at| {
        if let Some((start, size)) = at.call.allocated()
            && starts.len() < MAX_EVENTS
            && addresses
                .iter()
                .any(|&address| contains(start, Some(size), address))
        {
            starts.insert(start);
        }
    })?;
    let mut is_cut = starts.len() >= MAX_EVENTS;
    let mut events: FxHashMap<u64, Events> = FxHashMap::default();
    let mut count = 0;
    for_each_call(&calls, &mut reports, |at| {
        for (index, change) in at.call.changes() {
            let (HeapChange::Allocated { block, .. } | HeapChange::Freed { block }) = change;
            if !starts.contains(&block) {
                continue;
            }
            if count >= MAX_EVENTS {
                is_cut = true;
                continue;
            }
            count += 1;
            let events = events.entry(block).or_default();
            let event = timed(session, &at, index, change);
            match change {
                HeapChange::Allocated { .. } => events.allocations.push(event),
                HeapChange::Freed { .. } => events.frees.push(event),
            }
        }
    })?;
    reports.end();
    let mut blocks: Vec<CoveringBlock> = Vec::new();
    for (start, Events { allocations, frees }) in events {
        let lives = lives(allocations, frees);
        for (at, life) in lives.into_iter().enumerate() {
            // The allocator frees a block once more inside, as at the end of a thread.
            let is_again = at > 0 && life.allocated.is_none();
            if is_again
                && life
                    .freed
                    .is_some_and(|freed| is_internal(session, &calls, &freed.place))
            {
                continue;
            }
            let allocated = life.allocated.and_then(|event| event.place.call.allocated());
            let size = allocated.map(|(_, size)| size);
            let block = CoveringBlock { start, size, life };
            if addresses.iter().any(|&address| block.contains(address)) {
                blocks.push(block);
            }
        }
    }
    let earliest =
        |event: Option<TimedEvent<ThreadCall>>| event.map(|event| (event.earliest, event.place.call.index));
    blocks.sort_by_key(|block| std::cmp::Reverse(earliest(block.life.allocated.or(block.life.freed))));
    Ok(CoveringBlocks { blocks, is_cut })
}

/// Returns whether the code that made a call is library code in the module of the called function.
fn is_internal(session: &Session, calls: &HeapCalls<'_>, place: &ThreadCall) -> bool {
    if let HeapCalls::Records(records) = calls {
        return records.is_internal(&place.call);
    }
    let Ok(thread) = session.thread(place.tid) else {
        return false;
    };
    let module_of = |index: u64| {
        let symbols = session.symbols_at(thread, index)?;
        let module = symbols.module_at(thread.history.pc(index)?)?;
        Some(module.name.clone())
    };
    let Some(caller) = place.call.index.checked_sub(1) else {
        return false;
    };
    let Some((symbols, pc)) = session.symbols_at(thread, caller).zip(thread.history.pc(caller)) else {
        return false;
    };
    let module = module_of(caller);
    let frames = symbols.frames_at(pc);
    let origin = CodeOrigin::of(frames.first(), module.as_deref());
    module.is_some() && module == module_of(place.call.index) && origin.library().is_some()
}

/// The events of one address.
#[derive(Default)]
struct Events {
    allocations: Vec<TimedEvent<ThreadCall>>,
    frees: Vec<TimedEvent<ThreadCall>>,
}

/// Returns an event of a call that is known before instruction `index`.
///
/// A call takes effect between its first instruction and its return. Records have exact times. A
/// program cannot use a block before its allocation returns. The address of a block cannot be
/// returned again before its free begins.
fn timed(session: &Session, at: &ThreadCall, index: u64, change: HeapChange) -> TimedEvent<ThreadCall> {
    let bounds = match (at.source, change) {
        (CallSource::Record { began, .. }, HeapChange::Freed { .. }) => [Some(began); 2],
        (CallSource::Record { ended, .. }, HeapChange::Allocated { .. }) => [Some(ended); 2],
        (CallSource::Trace, _) => session.thread(at.tid).map_or([None; 2], |thread| {
            let time = thread.history.time(index);
            let latest = match time {
                Some(time) => time.latest(),
                None => thread.history.first_stamp(),
            };
            [time.map(|time| time.tsc.0), latest.map(|latest| latest.0)]
        }),
    };
    let [earliest, latest] = bounds;
    TimedEvent {
        place: *at,
        earliest,
        latest,
    }
}

/// The progress of reading events.
pub(super) struct Reports<'a> {
    watch: &'a Watch<'a>,
    done: u64,
    total: u64,
}

impl<'a> Reports<'a> {
    pub(super) fn new(calls: &HeapCalls<'_>, watch: &'a Watch<'a>) -> Self {
        let total = match calls {
            HeapCalls::Trace(threads) => threads
                .iter()
                .map(|thread| thread.history.paused_values().len() as u64)
                .sum(),
            HeapCalls::Records(records) => records.records.len() as u64,
        };
        Self {
            watch,
            done: 0,
            // Each event is read twice.
            total: total.saturating_mul(2),
        }
    }

    /// Counts a call.
    pub(super) fn passed(&mut self) -> Result<()> {
        self.done += 1;
        if self.done.is_multiple_of(OFTEN as u64) {
            self.watch
                .report(Stage::Search, self.done, self.total.max(self.done))?;
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.watch.end(Stage::Search);
    }
}

/// Calls `each` for every call.
fn for_each_call(
    calls: &HeapCalls<'_>,
    reports: &mut Reports<'_>,
    mut each: impl FnMut(ThreadCall),
) -> Result<()> {
    match calls {
        HeapCalls::Trace(threads) => {
            for thread in threads {
                for call in calls_of(&thread.history, 0) {
                    reports.passed()?;
                    each(ThreadCall {
                        tid: thread.tid,
                        call,
                        source: CallSource::Trace,
                    });
                }
            }
        }
        HeapCalls::Records(records) => {
            for call in records.calls() {
                reports.passed()?;
                each(call);
            }
        }
    }
    Ok(())
}
