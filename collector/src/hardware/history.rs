//! The recent scheduling and mapping events of all processors, bounded in bytes. Events that are
//! removed update a base state, so that every remaining moment is complete.

use super::world::{Change, World};
use backtrail_perf::ContextSwitch;
use backtrail_perf::switch::Direction;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use std::collections::{BTreeMap, VecDeque};

/// An event with its time and processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The time on perf's clock.
    pub time: Nanos,
    /// The processor.
    pub cpu: Cpu,
    /// The event.
    pub event: HistoryEvent,
}

/// An event of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// A context switch.
    Switch(ContextSwitch),
    /// A change of a process's state.
    Change(Box<Change>),
}

impl HistoryEntry {
    /// Returns whether the event is a trace that stopped because its buffer was full.
    pub(super) fn is_truncated(&self) -> bool {
        matches!(&self.event, HistoryEvent::Change(change) if matches!(**change, Change::Trace(flags) if flags.truncated()))
    }

    /// Converts all times of the entry to another clock.
    pub(super) fn convert_times(&mut self, clock: &impl Fn(Nanos) -> Nanos) {
        self.time = clock(self.time);
        match &mut self.event {
            HistoryEvent::Switch(switch) => switch.time = clock(switch.time),
            HistoryEvent::Change(change) => {
                if let Change::Rescan(_, Some(state)) = &mut **change {
                    state.convert_times(clock);
                }
            }
        }
    }

    /// Returns the approximate memory use in bytes.
    fn bytes(&self) -> usize {
        let more = match &self.event {
            HistoryEvent::Switch(_) => 0,
            HistoryEvent::Change(change) => {
                size_of::<Change>()
                    + match &**change {
                        Change::Map(_, mapped) => mapped.file.path.len() + 64,
                        Change::Comm { name, .. } => name.len() + 16,
                        Change::Rescan(_, Some(state)) => 64 * (state.threads.len() + state.mappings.len()),
                        _ => 0,
                    }
            }
        };
        size_of::<Self>() + more
    }
}

/// The bounded history.
#[derive(Debug, Default)]
pub struct SidebandHistory {
    limit: usize,
    used: usize,
    /// Sorted by time.
    entries: VecDeque<HistoryEntry>,
    /// The state before the first entry.
    base: World,
    /// The last switch of each processor before the first entry.
    running: BTreeMap<Cpu, ContextSwitch>,
    /// The time of the newest entry that was removed into the base.
    folded: Nanos,
}

/// The events in a time interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryInterval {
    /// The processes at the end of the interval, including those that ended in it.
    pub world: World,
    /// The switches of each processor in the interval, and the last one before it.
    pub switches: BTreeMap<Cpu, Vec<ContextSwitch>>,
    /// The changes in the interval that affect no process: lost records, trace errors, kernel code.
    pub other: Vec<(Nanos, Cpu, Change)>,
    /// Whether the interval starts before the history.
    pub cut: bool,
}

impl SidebandHistory {
    /// Creates a history with a base state.
    #[must_use]
    pub fn new(limit: usize, base: World) -> Self {
        Self {
            limit,
            base,
            ..Self::default()
        }
    }

    /// Adds entries in any order. They may be older than existing entries, because processors are
    /// read one after another. Entries that are older than the whole history go into the base.
    pub fn add(&mut self, mut batch: Vec<HistoryEntry>) {
        batch.sort_by_key(|entry| entry.time);
        let Some(first) = batch.first().map(|entry| entry.time) else {
            return;
        };
        let later = self.entries.partition_point(|entry| entry.time <= first);
        let tail: Vec<HistoryEntry> = self.entries.drain(later..).collect();
        self.used += batch.iter().map(HistoryEntry::bytes).sum::<usize>();
        // The sort merges two sorted runs.
        batch.extend(tail);
        batch.sort_by_key(|entry| entry.time);
        self.entries.extend(batch);
        while self.used > self.limit
            && let Some(oldest) = self.entries.pop_front()
        {
            self.used -= oldest.bytes();
            self.fold(oldest);
        }
    }

    /// Converts all times to another clock.
    pub(super) fn convert_times(&mut self, clock: impl Fn(Nanos) -> Nanos) {
        for entry in &mut self.entries {
            entry.convert_times(&clock);
        }
        // At the moment of the change, the clocks may differ by a nanosecond.
        self.entries.make_contiguous().sort_by_key(|entry| entry.time);
        for switch in self.running.values_mut() {
            switch.time = clock(switch.time);
        }
        for state in self.base.processes.values_mut() {
            state.convert_times(&clock);
        }
        self.folded = clock(self.folded);
    }

    fn fold(&mut self, entry: HistoryEntry) {
        self.folded = self.folded.max(entry.time);
        match entry.event {
            HistoryEvent::Switch(switch) => {
                self.running.insert(entry.cpu, switch);
            }
            HistoryEvent::Change(change) => self.base.apply(entry.time, &change, false),
        }
    }

    /// Returns the time of the oldest entry.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        self.entries.front().map(|entry| entry.time)
    }

    /// Returns the time of the newest entry.
    #[must_use]
    pub fn newest(&self) -> Option<Nanos> {
        self.entries.back().map(|entry| entry.time)
    }

    /// Returns the approximate memory use of the entries in bytes.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(super) fn entries_for_test(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.entries.iter()
    }

    /// Returns the events from `from` to `until`, both included.
    #[must_use]
    pub fn interval(&self, from: Nanos, until: Nanos) -> HistoryInterval {
        let mut interval = HistoryInterval {
            world: self.base.clone(),
            switches: self
                .running
                .iter()
                .map(|(cpu, switch)| (*cpu, vec![*switch]))
                .collect(),
            other: Vec::new(),
            cut: from < self.folded,
        };
        let mut running = Running::new(&self.running);
        for entry in self.entries.iter().take_while(|entry| entry.time <= until) {
            let before = entry.time < from;
            match &entry.event {
                HistoryEvent::Switch(switch) => {
                    let switch = running.named(entry.cpu, *switch);
                    let switches = interval.switches.entry(entry.cpu).or_default();
                    if before {
                        // Only the last of these switches shows the thread that ran at the start.
                        switches.clear();
                    }
                    switches.push(switch);
                }
                HistoryEvent::Change(change) => {
                    if matches!(**change, Change::Lost(_)) {
                        running.0.remove(&entry.cpu);
                    }
                    interval.world.apply(entry.time, change, !before);
                    if !before
                        && matches!(
                            &**change,
                            Change::Lost(_) | Change::Trace(_) | Change::KernelCode(_)
                        )
                    {
                        interval.other.push((entry.time, entry.cpu, (**change).clone()));
                    }
                }
            }
        }
        interval
    }
}

/// The thread that runs on each processor, where it is known.
struct Running(BTreeMap<Cpu, (Pid, Tid)>);

impl Running {
    fn new(last: &BTreeMap<Cpu, ContextSwitch>) -> Self {
        let began = last
            .iter()
            .filter(|(_, switch)| switch.direction == Direction::In);
        Self(
            began
                .map(|(cpu, switch)| (*cpu, (switch.pid, switch.tid)))
                .collect(),
        )
    }

    /// Completes a switch with its thread. A reaped thread has no id when it leaves the processor
    /// for the last time, and the kernel reports -1 (`perf_event_pid`). It is the thread that was
    /// switched in before.
    fn named(&mut self, cpu: Cpu, mut switch: ContextSwitch) -> ContextSwitch {
        if switch.direction == Direction::In {
            self.0.insert(cpu, (switch.pid, switch.tid));
        } else if let Some((pid, tid)) = self.0.remove(&cpu)
            && switch.tid.0 == u32::MAX
        {
            (switch.pid, switch.tid) = (pid, tid);
        }
        switch
    }
}

#[cfg(test)]
mod tests;
