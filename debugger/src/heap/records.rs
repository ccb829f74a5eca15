//! Heap records: the calls of allocator functions that the collector noted.
//!
//! A record has a time and the caller's stack, and no position. Times convert to intervals of
//! positions where the bundle has the history of the thread.

use super::calls::{CallSource, HeapCall, ThreadCall};
use super::place::{CallSite, HeapPlace, line_in};
use crate::error::Result;
use crate::session::{Process, Session, Thread};
use crate::thread_at_time::until;
use crate::unwind::{Memory, unwind_caller};
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_bundle::heap_records::{HeapRecord, HeapRecords};
use backtrail_pt::{Avma, Nanos, Tid, Tsc};
use serde::Serialize;
use std::rc::Rc;

/// The error of a comparison of clocks in nanoseconds.
const CLOCK_ERROR: u64 = 2000;
/// The clocks differ by at most one in this many nanoseconds: clock adjustments are limited to 500
/// parts in a million.
const DRIFT: u64 = 2000;
/// The maximum number of gaps that are shown.
const MAX_GAPS: usize = 8;

/// The heap records of a session, and their process.
pub(super) struct ProcessRecords<'a> {
    session: &'a Session,
    process: &'a Process,
    pub records: HeapRecords,
}

/// The completeness of heap records, for display. Times are nanoseconds from the crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordsView {
    /// Older calls are unknown.
    pub since_ns: i64,
    /// The newest intervals in which calls were lost.
    pub gaps: Vec<GapView>,
    /// The number of other intervals.
    pub more_gaps: usize,
}

/// An interval in which calls were lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GapView {
    /// Its begin.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// The number of lost calls.
    pub calls: u64,
}

impl<'a> ProcessRecords<'a> {
    /// Returns the records of a bundle. `None`: it has none.
    ///
    /// # Errors
    ///
    /// If they are malformed.
    pub fn of(session: &'a Session) -> Result<Option<Self>> {
        let Some(bundle) = session.bundle() else {
            return Ok(None);
        };
        let Some(records) = bundle.heap_records()? else {
            return Ok(None);
        };
        let pid = records.interval.pid;
        let process = session.processes().iter().find(|process| process.pid == pid);
        Ok(process.map(|process| Self {
            session,
            process,
            records,
        }))
    }

    /// Returns whether the records are of the process of a thread.
    pub fn has(&self, session: &Session, thread: &Thread) -> bool {
        let process = session.process(thread);
        process.is_some_and(|process| process.pid == self.records.interval.pid)
    }

    /// Returns all calls.
    pub fn calls(&self) -> impl Iterator<Item = ThreadCall> + '_ {
        self.records
            .iter()
            .enumerate()
            .map(|(index, record)| thread_call(index, &record))
    }

    /// Returns the last call of a thread that is in the records.
    pub fn last_call(&self, tid: Tid) -> Option<(ThreadCall, HeapRecord)> {
        let last = (0..self.records.len()).rev().find_map(|index| {
            let record = self.records.get(index)?;
            (record.tid == tid).then_some((index, record))
        });
        last.map(|(index, record)| (thread_call(index, &record), record))
    }

    /// Returns the record of a call.
    pub fn record(&self, call: &HeapCall) -> Option<HeapRecord> {
        self.records.get(usize::try_from(call.index).ok()?)
    }

    /// Returns whether calls were lost at a time or later. Blocks may have lived then that are not
    /// known.
    pub fn has_gap_after(&self, time: u64) -> bool {
        self.records.interval.gaps.iter().any(|gap| gap.to >= time)
    }

    /// Returns the interval of TSC values of a time; `None`: the clocks are not related.
    pub fn tsc_bounds(&self, time: u64) -> Option<[Tsc; 2]> {
        let interval = &self.records.interval;
        let conversion = self.session.times().conversion?;
        let error = CLOCK_ERROR + interval.zero.abs_diff(time) / DRIFT;
        let perf = time.checked_add_signed(interval.perf_offset?)?;
        let latest = conversion.tsc(Nanos(perf.saturating_add(error)));
        Some([
            conversion.tsc(Nanos(perf.saturating_sub(error))),
            // All ticks of that nanosecond.
            Tsc(latest
                .0
                .max(conversion.tsc(Nanos(perf.saturating_add(error + 1))).0)),
        ])
    }

    /// Returns the interval of positions of a time in a thread; `None`: the bundle does not have
    /// its history then.
    fn positions(&self, tid: Tid, time: u64) -> Result<Option<[String; 2]>> {
        let Ok(thread) = self.session.thread(tid) else {
            return Ok(None);
        };
        let Some([earliest, latest]) = self.tsc_bounds(time).filter(|_| !thread.history.is_empty()) else {
            return Ok(None);
        };
        let Some(from) = thread.index_at(earliest)? else {
            return Ok(None);
        };
        let to = until(thread, Some(latest)).unwrap_or(thread.history.len());
        Ok(Some([from, to].map(|index| thread.position(index).to_string())))
    }

    /// Returns the place of a call.
    ///
    /// # Errors
    ///
    /// If history is needed that is not decoded yet.
    pub fn place(&self, call: &ThreadCall) -> Result<HeapPlace> {
        let record = self.record(&call.call);
        let (site, operator) = record
            .as_ref()
            .map(|record| self.site(record))
            .unwrap_or_default();
        let CallSite { function, file, line } = site.as_deref().cloned().unwrap_or_default();
        let began = record.map(|record| record.began);
        let between = began.map(|began| self.positions(call.tid, began)).transpose()?;
        let thread = self.session.thread(call.tid).ok();
        Ok(HeapPlace {
            by: operator.unwrap_or_else(|| call.call.function.name().to_owned()),
            thread: call.tid.0,
            name: thread.and_then(|thread| thread.name.clone()),
            position: None,
            between: between.flatten(),
            function,
            file,
            line,
            time: None,
            ns: began.map(|began| self.ns(began)),
        })
    }

    /// Returns the innermost line of own code on the stack of a call, or else the innermost line.
    /// Also returns the C++ operator that made the call.
    pub fn site(&self, record: &HeapRecord) -> (Option<Rc<CallSite>>, Option<String>) {
        let symbols = self.process.symbols_at_end();
        let (mut other, mut operator) = (None, None);
        for (number, pc) in self.stack(record).into_iter().enumerate() {
            if number == 0 {
                operator = symbols
                    .frames_at(pc)
                    .last()
                    .and_then(|frame| operator_of(&frame.function));
            }
            match line_in(symbols, pc) {
                Some((site, true)) => return (Some(site), operator),
                Some((site, false)) => other = other.or(Some(site)),
                None => {}
            }
        }
        (other, operator)
    }

    /// Returns the addresses inside the call instructions of a call's stack, innermost first, as
    /// far as its saved words reach.
    fn stack(&self, record: &HeapRecord) -> Vec<Avma> {
        let caller = Avma(record.caller.0.wrapping_sub(1));
        let Some(core) = self.session.core() else {
            return vec![caller];
        };
        let memory = Memory::of_stack(core, &self.process.image, Avma(record.sp), record.stack());
        if !memory.is_behind_call(record.caller) {
            return vec![caller];
        }
        let registers = [record.sp, record.bp];
        let symbols = self.process.symbols_at_end();
        let frames = unwind_caller(record.caller, registers, symbols, &memory).frames;
        frames.iter().map(|frame| frame.look_up()).collect()
    }

    /// Returns whether a call was made by code of the library that has the called function.
    pub fn is_internal(&self, call: &HeapCall) -> bool {
        let symbols = self.process.symbols_at_end();
        let module = |at: Avma| symbols.module_at(at).map(|module| &module.name);
        let caller = self.record(call).and_then(|record| module(record.caller));
        let functions = symbols.functions_named(call.function.name());
        let mut modules = functions.iter().map(|function| module(function.entry));
        caller.is_some() && modules.any(|module| module == caller)
    }

    /// Returns a time as nanoseconds from the crash.
    pub fn ns(&self, time: u64) -> i64 {
        time.wrapping_sub(self.records.interval.zero).cast_signed()
    }

    /// Returns what is known of the completeness.
    pub fn view(&self) -> RecordsView {
        let interval = &self.records.interval;
        let more_gaps = interval.gaps.len().saturating_sub(MAX_GAPS);
        let gaps = interval.gaps.iter().skip(more_gaps).map(|gap| GapView {
            from_ns: self.ns(gap.from),
            to_ns: self.ns(gap.to),
            calls: gap.lost,
        });
        RecordsView {
            since_ns: self.ns(interval.since),
            gaps: gaps.collect(),
            more_gaps,
        }
    }
}

/// Returns the completeness of the heap records of a session. `None`: it has none.
///
/// # Errors
///
/// If they are malformed.
pub fn records_view(session: &Session) -> Result<Option<RecordsView>> {
    Ok(ProcessRecords::of(session)?.map(|records| records.view()))
}

/// Returns the call of a record. Its index is the number of the record.
pub(super) fn thread_call(index: usize, record: &HeapRecord) -> ThreadCall {
    let function = record.function;
    let index = index as u64;
    ThreadCall {
        tid: record.tid,
        call: HeapCall {
            index,
            function,
            argument: record.argument,
            size: (function == AllocatorFunction::Realloc).then_some(record.size),
            result: function.gives_block().then_some((index, record.result)),
        },
        source: CallSource::Record {
            began: record.began,
            ended: record.ended,
        },
    }
}

/// Returns the name of an allocation operator: `operator new[]`.
fn operator_of(function: &str) -> Option<String> {
    let name = function.split('(').next()?;
    let is_operator = [
        "operator new",
        "operator new[]",
        "operator delete",
        "operator delete[]",
    ];
    is_operator.contains(&name).then(|| name.to_owned())
}
