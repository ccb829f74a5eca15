//! The requests that sampled threads worked on, as labels of their samples.
//!
//! A process publishes its resource, and each of its threads its current request
//! ([`backtrail_process::thread_context`]). An eBPF program copies the record of the sampled thread
//! (`bpf/src/thread_context.h`), because only then the record is sure to be whole. Here the program
//! gets the place of the records of each process, and the copies become labels.

use crate::module_file;
use backtrail_process::thread_context::record::Record;
use backtrail_process::thread_context::tls::TlsSlot;
use backtrail_process::thread_context::{ContextReader, process_context};
use backtrail_process::{maps, memory};
use backtrail_pt::{Avma, Pid};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The time until a process is searched for a context again, at first and at most. Programs publish
/// their context a moment after their start, and update it rarely.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LAST_WAIT: Duration = Duration::from_secs(60);
/// The shortest time between two readings of the names of a process.
const NAMES_WAIT: Duration = Duration::from_millis(100);
/// The most processes that are known.
const MAX_PROCESSES: usize = 16384;
/// The most attributes of a resource that become labels, and the longest one.
const MAX_RESOURCE: usize = 16;
const MAX_VALUE: usize = 255;
/// The labels with the ids of a request.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

/// The contexts of the sampled processes.
#[derive(Debug, Default)]
pub(crate) struct ThreadContexts {
    processes: HashMap<Pid, KnownProcess>,
    /// The processes whose slot the eBPF program does not know.
    changed: Vec<Pid>,
}

/// A process that was searched for a context.
#[derive(Debug)]
struct KnownProcess {
    /// `None`: it had none.
    reader: Option<ContextReader>,
    /// The time from which samples have records of this process (`CLOCK_MONOTONIC`). A process id
    /// may have belonged to another process or program before.
    since: u64,
    looked_up: Instant,
    wait: Duration,
    /// The time of the last search for an update of the context.
    updated: Instant,
}

impl KnownProcess {
    fn slot(&self) -> Option<TlsSlot> {
        self.reader.as_ref()?.slots.first().copied()
    }
}

/// Searches a process for its context.
fn find(pid: Pid) -> Option<ContextReader> {
    let raw = i32::try_from(pid.0).ok()?;
    let maps = maps::maps(raw);
    let mut memory = |address: Avma, out: &mut [u8]| memory::read(raw, address.0, out);
    ContextReader::of_process(&maps, &mut memory, &mut |map| module_file::open_mapping(pid, map))
}

impl ThreadContexts {
    /// Searches the process of a sample for its context, unless that was done a moment ago. `now`
    /// is the time of `CLOCK_MONOTONIC`.
    pub fn look_up(&mut self, pid: Pid, now: u64) {
        let at = Instant::now();
        let known = self.processes.get(&pid);
        if known.is_some_and(|known| at.saturating_duration_since(known.looked_up) < known.wait) {
            return;
        }
        if known.is_none() && self.processes.len() >= MAX_PROCESSES {
            return;
        }
        self.set(pid, find(pid), at, now);
    }

    fn set(&mut self, pid: Pid, reader: Option<ContextReader>, at: Instant, now: u64) {
        let known = self.processes.entry(pid).or_insert(KnownProcess {
            reader: None,
            since: now,
            looked_up: at,
            wait: FIRST_WAIT / 2,
            updated: at,
        });
        let before = known.slot();
        known.reader = reader;
        known.looked_up = at;
        known.wait = (known.wait * 2).min(LAST_WAIT);
        if known.slot() != before {
            known.since = now;
            self.changed.push(pid);
        }
    }

    /// Forgets a process that has ended or runs another program.
    pub fn forget(&mut self, pid: Pid) {
        if self
            .processes
            .remove(&pid)
            .is_some_and(|known| known.slot().is_some())
        {
            self.changed.push(pid);
        }
    }

    /// Returns the processes whose slots changed since the last call, with their slots.
    pub fn take_changed(&mut self) -> Vec<(Pid, Option<TlsSlot>)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let slot = |pid: &Pid| self.processes.get(pid).and_then(KnownProcess::slot);
        changed.map(|pid| (pid, slot(&pid))).collect()
    }

    /// Returns the slots of all processes that have one.
    pub fn all_slots(&self) -> Vec<(Pid, Option<TlsSlot>)> {
        let slots = self.processes.iter().map(|(pid, known)| (*pid, known.slot()));
        slots.filter(|(_, slot)| slot.is_some()).collect()
    }

    /// Returns the labels of a sample of a process, taken at `time` (`CLOCK_MONOTONIC`). `record`
    /// is the copied record of the thread, or empty.
    pub fn labels(&mut self, pid: Pid, time: u64, record: &[u8]) -> Vec<(String, String)> {
        let mut labels = Vec::new();
        let record = Record::parse(record);
        if let Some(record) = &record {
            self.learn_names(pid, record);
        }
        let Some(known) = self.processes.get(&pid).filter(|known| known.since <= time) else {
            return labels;
        };
        let Some(reader) = &known.reader else {
            return labels;
        };
        let resource = reader.process.resource.iter();
        let resource = resource.filter(|(name, value)| name.len() <= MAX_VALUE && value.len() <= MAX_VALUE);
        labels.extend(
            resource
                .take(MAX_RESOURCE)
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        let Some(record) = record else {
            return labels;
        };
        if let Some(span) = &record.span {
            labels.push((TRACE_ID.to_owned(), span.trace_id.to_string()));
            labels.push((SPAN_ID.to_owned(), span.span_id.to_string()));
        }
        let named = record.named(&reader.process.keys).into_iter();
        labels.extend(named.filter(|(name, _)| name != TRACE_ID && name != SPAN_ID));
        labels
    }

    /// Reads the names of attributes again if a record has one without a name (OTEP 4947).
    fn learn_names(&mut self, pid: Pid, record: &Record) {
        let Some(known) = self.processes.get_mut(&pid) else {
            return;
        };
        let (Some(reader), Ok(raw)) = (&mut known.reader, i32::try_from(pid.0)) else {
            return;
        };
        let names = reader.process.keys.len();
        let is_named = |(index, _): &(u8, String)| usize::from(*index) < names;
        let is_early = known.updated.elapsed() < NAMES_WAIT;
        if is_early || record.attributes.iter().all(is_named) {
            return;
        }
        known.updated = Instant::now();
        let mut memory = |address: Avma, out: &mut [u8]| memory::read(raw, address.0, out);
        if let Some(update) = process_context::read_update(&reader.process, &mut memory) {
            reader.process = update;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_process::thread_context::process_context::ProcessContext;

    const PID: Pid = Pid(u32::MAX - 9);

    fn reader(names: &[&str], slot: i64) -> Option<ContextReader> {
        let text = |text: &str| text.to_owned();
        Some(ContextReader {
            process: ProcessContext {
                address: 0,
                published_at: 1,
                resource: [(text("service.name"), text("shop"))].into(),
                schema: Some(text("tls_v1")),
                keys: names.iter().map(|name| Some(text(name))).collect(),
            },
            slots: vec![TlsSlot::Static(slot)],
        })
    }

    fn record(valid: u8) -> Vec<u8> {
        let mut bytes = vec![0xab; 24];
        bytes.extend([valid, 1, 7, 0]);
        bytes.extend(b"\x00\x05/cart");
        bytes
    }

    fn labels(contexts: &mut ThreadContexts, time: u64, record: &[u8]) -> Vec<String> {
        let labels = contexts.labels(PID, time, record).into_iter();
        labels.map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn record_and_resource_become_labels() {
        let mut contexts = ThreadContexts::default();
        contexts.set(PID, reader(&["route", "user"], -8), Instant::now(), 100);
        assert_eq!(
            labels(&mut contexts, 100, &record(1)),
            [
                "service.name=shop",
                &format!("trace_id={}", "ab".repeat(16)),
                &format!("span_id={}", "ab".repeat(8)),
                "route=/cart"
            ]
        );
        assert_eq!(labels(&mut contexts, 100, &record(0)), ["service.name=shop"]);
        assert_eq!(labels(&mut contexts, 100, &[]), ["service.name=shop"]);
        assert_eq!(contexts.labels(Pid(1), 100, &record(1)), []);
    }

    #[test]
    fn samples_before_the_slot_was_known_have_no_labels() {
        let mut contexts = ThreadContexts::default();
        contexts.set(PID, reader(&["route"], -8), Instant::now(), 100);
        assert_eq!(labels(&mut contexts, 99, &record(1)), [""; 0]);
        // A refresh that changes only names leaves earlier samples.
        contexts.set(PID, reader(&["route", "user"], -8), Instant::now(), 200);
        assert_eq!(labels(&mut contexts, 150, &record(1)).len(), 4);
        contexts.set(PID, reader(&["route"], -16), Instant::now(), 300);
        assert_eq!(labels(&mut contexts, 150, &record(1)), [""; 0]);
    }

    #[test]
    fn changed_slots_are_taken_once() {
        let mut contexts = ThreadContexts::default();
        contexts.set(PID, None, Instant::now(), 1);
        assert_eq!(contexts.take_changed(), []);
        contexts.set(PID, reader(&[], -8), Instant::now(), 2);
        contexts.set(PID, reader(&[], -8), Instant::now(), 3);
        assert_eq!(contexts.take_changed(), [(PID, Some(TlsSlot::Static(-8)))]);
        assert_eq!(contexts.take_changed(), []);
        contexts.forget(PID);
        assert_eq!(contexts.take_changed(), [(PID, None)]);
        assert_eq!(labels(&mut contexts, 9, &record(1)), [""; 0]);
    }

    #[test]
    fn process_without_a_context_is_searched_rarely() {
        let mut contexts = ThreadContexts::default();
        let own = Pid(std::process::id());
        contexts.look_up(own, 1);
        let known = &contexts.processes[&own];
        let (looked_up, wait) = (known.looked_up, known.wait);
        assert_eq!((known.reader.is_none(), wait), (true, FIRST_WAIT));
        contexts.look_up(own, 2);
        assert_eq!(contexts.processes[&own].looked_up, looked_up);
        for _ in 0..9 {
            contexts.set(own, None, Instant::now(), 3);
        }
        assert_eq!(contexts.processes[&own].wait, LAST_WAIT);
    }
}
