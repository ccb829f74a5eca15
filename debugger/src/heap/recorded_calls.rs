//! Records of the collector at calls of a thread's history.

use super::calls::HeapCall;
use super::matching::{CallMatch, OpenGroup, TimeRange, match_calls};
use super::records::{ProcessRecords, thread_call};
use crate::error::{Error, Result};
use crate::session::{Session, Thread};
use backtrail_bundle::heap::AllocatorFunction;
use backtrail_bundle::heap_records::HeapRecord;
use backtrail_decoder::{CallId, Entered, Forest, PcSet, Stage, Watch};
use backtrail_pt::{Avma, Tid};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The call of an allocator function that runs at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedCall {
    /// The call.
    Known(HeapCall),
    /// Its record is unknown, for this reason.
    Open(String),
}

/// The records of the calls of threads. Each thread is matched once.
#[derive(Default)]
pub struct RecordedCalls(RefCell<FxHashMap<Tid, (u64, Rc<ThreadCalls>)>>);

/// The calls of a thread with their records.
struct ThreadCalls {
    /// Earlier calls have no records.
    from: u64,
    /// The addresses of allocator functions.
    functions: FxHashSet<Avma>,
    /// The calls by the index of their first instruction.
    calls: FxHashMap<u64, Match>,
}

/// The record of a call.
#[derive(Clone)]
enum Match {
    Known(HeapCall),
    Open(Rc<str>),
}

impl RecordedCalls {
    /// Returns the call of an allocator function that runs at instruction `index`; `None`: none
    /// runs.
    ///
    /// # Errors
    ///
    /// If the records are of another process or malformed, or some history is not decoded yet; when
    /// canceled.
    pub fn around(
        &self,
        session: &Session,
        thread: &Thread,
        index: u64,
        watch: &Watch<'_>,
    ) -> Result<Option<RecordedCall>> {
        let forest = session.forest(thread, watch)?;
        let known = self.of_thread(session, thread, forest, watch)?;
        let Some(innermost) = forest.call_at(index) else {
            return Ok(None);
        };
        let pc = thread.history.pc(index);
        for call in forest.ancestors(innermost) {
            let call = forest.call(call);
            match known.calls.get(&call.first) {
                Some(Match::Known(call)) => return Ok(Some(RecordedCall::Known(*call))),
                Some(Match::Open(why)) => return Ok(Some(RecordedCall::Open(why.to_string()))),
                None => {}
            }
            let is_allocator = known.functions.contains(&call.function)
                || pc.is_some_and(|pc| known.functions.contains(&pc));
            if call.first < known.from && is_allocator {
                let why = "the collector's records of the thread begin later";
                return Ok(Some(RecordedCall::Open(why.to_owned())));
            }
        }
        Ok(None)
    }

    fn of_thread(
        &self,
        session: &Session,
        thread: &Thread,
        forest: &Forest,
        watch: &Watch<'_>,
    ) -> Result<Rc<ThreadCalls>> {
        // More history may be decoded later.
        let len = thread.history.len();
        if let Some((known, calls)) = self.0.borrow().get(&thread.tid)
            && *known == len
        {
            return Ok(Rc::clone(calls));
        }
        thread.needs_beginning()?;
        let records = ProcessRecords::of(session)?.filter(|records| records.has(session, thread));
        let records = records.ok_or_else(|| {
            Error::Cannot("the collector noted the heap of another process only".to_owned())
        })?;
        let matching = Matching {
            session,
            thread,
            forest,
            records: &records,
            watch,
        };
        let calls = Rc::new(matching.calls()?);
        let mut all = self.0.borrow_mut();
        all.insert(thread.tid, (len, Rc::clone(&calls)));
        Ok(calls)
    }
}

/// All that the match of a thread's calls needs.
struct Matching<'a> {
    session: &'a Session,
    thread: &'a Thread,
    forest: &'a Forest,
    records: &'a ProcessRecords<'a>,
    watch: &'a Watch<'a>,
}

/// A call of an allocator function in the history.
struct Entry {
    /// The first instruction of the function.
    index: u64,
    /// The first instruction of the call, which may be in the procedure linkage table.
    first: u64,
    /// The return address; `None`: unknown.
    caller: Option<Avma>,
    time: TimeRange,
}

/// The calls and records with one return address.
#[derive(Default)]
struct Caller {
    entries: Vec<usize>,
    records: Vec<usize>,
}

impl Matching<'_> {
    fn calls(&self) -> Result<ThreadCalls> {
        let mut by_function: FxHashMap<AllocatorFunction, Vec<(usize, HeapRecord)>> = FxHashMap::default();
        let mut earliest = u64::MAX;
        for (number, record) in self.records.records.iter().enumerate() {
            if record.tid == self.thread.tid {
                earliest = earliest.min(record.began);
                by_function
                    .entry(record.function)
                    .or_default()
                    .push((number, record));
            }
        }
        let history = &self.thread.history;
        let bounds = self.records.tsc_bounds(earliest);
        let bounds = bounds.filter(|_| earliest != u64::MAX);
        let mut found = ThreadCalls {
            from: bounds.map_or(history.len(), |[from, _]| history.index_at(from).unwrap_or(0)),
            functions: FxHashSet::default(),
            calls: FxHashMap::default(),
        };
        let missing = self.missing_history(found.from);
        for function in AllocatorFunction::ALL {
            let mut records = by_function.remove(&function).unwrap_or_default();
            // The file has them in the order of their ends.
            records.sort_by_key(|(_, record)| record.began);
            self.match_function(function, &records, &missing, &mut found)?;
        }
        Ok(found)
    }

    /// Adds the calls of a function.
    fn match_function(
        &self,
        function: AllocatorFunction,
        records: &[(usize, HeapRecord)],
        missing: &[TimeRange],
        found: &mut ThreadCalls,
    ) -> Result<()> {
        let symbols = self.session.symbols_at(self.thread, self.thread.history.len());
        let named = symbols.map(|symbols| symbols.functions_named(function.name()));
        let mut named = named.unwrap_or_default();
        // Functions of C++ classes may have the same last name.
        let is_operator = function.name().starts_with("operator");
        named.retain(|named| is_operator || named.linkage_name == named.name);
        found.functions.extend(named.iter().map(|named| named.entry));
        let pcs = named.iter().map(|named| named.entry).collect();
        let entries = self.entries(found.from, &pcs)?;
        let times: Option<Vec<TimeRange>> = records
            .iter()
            .map(|(_, record)| Some(self.records.tsc_bounds(record.began)?.map(|tsc| tsc.0)))
            .collect();
        let name = function.name();
        let refusal = if records.is_empty() && is_operator {
            Some(format!(
                "the collector notes the calls of C functions, and none of {name}"
            ))
        } else if times.is_none() {
            Some("the clocks of the records and of the trace are not related".to_owned())
        } else if !named.iter().all(|named| self.has_all_entries(&named.range)) {
            Some(format!("the trace lacks first instructions of {name}"))
        } else {
            None
        };
        let times = times.unwrap_or_default();
        if let Some(why) = refusal {
            let why: Rc<str> = why.into();
            for entry in &entries {
                found.add(entry.first, Match::Open(Rc::clone(&why)));
            }
            return Ok(());
        }
        for caller in callers(&entries, records) {
            let entry_times: Vec<TimeRange> = select(&caller.entries, &entries, |entry| entry.time);
            let record_times: Vec<TimeRange> = select(&caller.records, &times, |time| *time);
            let mut last: Option<(OpenGroup, Rc<str>)> = None;
            let matched = match_calls(&entry_times, &record_times, missing);
            for (&at, matched) in caller.entries.iter().zip(matched) {
                let Some(entry) = entries.get(at) else { continue };
                let record = |at: usize| records.get(*caller.records.get(at)?);
                match matched {
                    CallMatch::Record(at) => {
                        if let Some((number, record)) = record(at) {
                            found.add(entry.first, Match::Known(thread_call(*number, record).call));
                        }
                    }
                    CallMatch::Open(group) => {
                        let why = match last.take().filter(|(of, _)| *of == group) {
                            Some((_, why)) => why,
                            None => {
                                let ends = group.calls.map(|at| entries.get(*caller.entries.get(at)?));
                                self.describe(function, group, ends).into()
                            }
                        };
                        found.add(entry.first, Match::Open(Rc::clone(&why)));
                        last = Some((group, why));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the calls at these addresses from instruction `from` on, in order.
    fn entries(&self, from: u64, pcs: &PcSet) -> Result<Vec<Entry>> {
        let history = &self.thread.history;
        let (mut found, mut from) = (Vec::new(), from);
        while let Some(index) = history.next_at(from, pcs) {
            from = index + 1;
            if found.len() % 4096 == 0 {
                self.watch.report(Stage::Search, index, history.len())?;
            }
            let call = self.forest.call_at(index);
            found.push(Entry {
                index,
                first: call.map_or(index, |call| self.forest.call(call).first),
                caller: call.and_then(|call| self.return_address(call)),
                time: [self.earliest(index), self.latest(index)],
            });
        }
        Ok(found)
    }

    /// Returns the earliest time at which instruction `index` may have been reached.
    fn earliest(&self, index: u64) -> u64 {
        let time = self.thread.history.arrival(index);
        time.map_or(0, |time| time.tsc.0)
    }

    /// Returns the latest time at which instruction `index` may have run.
    fn latest(&self, index: u64) -> u64 {
        let history = &self.thread.history;
        let latest = match history.departure(index) {
            Some(time) => time.latest(),
            None => history.first_stamp(),
        };
        latest.map_or(u64::MAX, |tsc| tsc.0)
    }

    /// Returns the address after the call instruction of a call.
    fn return_address(&self, call: CallId) -> Option<Avma> {
        for call in self.forest.ancestors(call) {
            match self.forest.call(call).entered {
                Entered::Call { site } => return Some(self.thread.history.instruction(site)?.next()),
                Entered::TailCall { .. } => {}
                _ => return None,
            }
        }
        None
    }

    /// Returns whether each execution of a function is in the history from its first instruction
    /// on. A breakpoint of the kernel lets another copy of that instruction run.
    fn has_all_entries(&self, range: &std::ops::Range<Avma>) -> bool {
        let history = &self.thread.history;
        let count = |at: Avma| history.count_at(0..history.len(), &PcSet::from_iter([at]));
        let first = history.next_at(0, &PcSet::from_iter([range.start]));
        let Some(first) = first.and_then(|index| history.instruction(index)) else {
            let executed = history.executed_in(&PcSet::from_ranges([range.clone()]));
            return executed.is_empty();
        };
        count(first.next()) <= count(range.start)
    }

    /// Returns the times at which calls may not be in the history from instruction `begin` on.
    fn missing_history(&self, begin: u64) -> Vec<TimeRange> {
        let history = &self.thread.history;
        let mut missing = vec![[0, self.latest(begin)]];
        let gaps = history.gaps().filter(|&(index, _)| index > begin);
        missing.extend(gaps.map(|(index, _)| [self.earliest(index), self.latest(index)]));
        // A crashed thread has run no more.
        if self.session.crash_of(self.thread.tid).is_none() {
            missing.push([self.earliest(history.len()), u64::MAX]);
        }
        missing
    }

    /// Returns the reason of an open match.
    fn describe(&self, function: AllocatorFunction, group: OpenGroup, ends: [Option<&Entry>; 2]) -> String {
        let position = |entry: Option<&Entry>| entry.map(|entry| self.thread.position(entry.index));
        let place = match ends.map(position) {
            [Some(first), Some(last)] if first != last => format!("between {first} and {last}"),
            [Some(first), _] => format!("at {first}"),
            _ => "there".to_owned(),
        };
        let counted = |count: usize, noun: &str| match count {
            1 => format!("1 {noun}"),
            count => format!("{count} {noun}s"),
        };
        let (calls, records) = (
            counted(group.call_count, "call"),
            counted(group.record_count, "record"),
        );
        let missing = if group.is_incomplete {
            ", where history is missing"
        } else {
            ""
        };
        let name = function.name();
        format!("{calls} of {name} {place} and {records} of the collector{missing}: the match is open")
    }
}

impl ThreadCalls {
    /// Adds the match of a call. Two functions may begin at one address, and one has the records.
    fn add(&mut self, first: u64, found: Match) {
        match self.calls.get(&first) {
            Some(Match::Known(_)) => {}
            _ => {
                self.calls.insert(first, found);
            }
        }
    }
}

/// Groups calls and records by their return addresses. A call with an unknown one is in each group.
fn callers(entries: &[Entry], records: &[(usize, HeapRecord)]) -> Vec<Caller> {
    let mut by_address: BTreeMap<Avma, Caller> = BTreeMap::new();
    // Without all return addresses of records, there is one group.
    let is_known = records.iter().all(|(_, record)| record.caller != Avma(0));
    let key = |caller: Avma| if is_known { caller } else { Avma(0) };
    for (at, (_, record)) in records.iter().enumerate() {
        by_address.entry(key(record.caller)).or_default().records.push(at);
    }
    for entry in entries {
        by_address
            .entry(key(entry.caller.unwrap_or(Avma(0))))
            .or_default();
    }
    let mut unknown = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match entry.caller.filter(|_| is_known) {
            Some(caller) => by_address.entry(caller).or_default().entries.push(at),
            None => unknown.push(at),
        }
    }
    let mut callers: Vec<Caller> = by_address.into_values().collect();
    for caller in callers.iter_mut().filter(|_| !unknown.is_empty()) {
        caller.entries.extend(&unknown);
        caller.entries.sort_unstable();
    }
    callers
}

/// Returns a property of the selected items.
fn select<T, U>(numbers: &[usize], all: &[T], of: impl Fn(&T) -> U) -> Vec<U> {
    numbers.iter().filter_map(|&at| all.get(at)).map(of).collect()
}
