//! What happened on all processors lately, bounded in bytes: what falls out is folded into a state, so that every moment
//! that is still in can be told in full.

use super::world::{Change, World};
use backtrail_perf::ContextSwitch;
use backtrail_perf::switch::Direction;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use std::collections::{BTreeMap, VecDeque};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When, on perf's clock.
    pub time: Nanos,
    /// Where.
    pub cpu: Cpu,
    /// What.
    pub event: HistoryEvent,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEvent {
    /// Another task runs.
    Switch(ContextSwitch),
    /// Something that changes the state of a process.
    Change(Box<Change>),
}

impl HistoryEntry {
    /// Whether it says that a trace was stopped for want of room.
    pub(super) fn is_truncated(&self) -> bool {
        matches!(&self.event, HistoryEvent::Change(change) if matches!(**change, Change::Trace(flags) if flags.truncated()))
    }

    /// Has another clock tell its times.
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

    /// About how much memory it takes.
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
    /// In order of time.
    entries: VecDeque<HistoryEntry>,
    /// How things were before the first entry.
    base: World,
    /// The last switch of each processor before the first entry.
    running: BTreeMap<Cpu, ContextSwitch>,
    /// Everything up to here is folded into the base.
    folded: Nanos,
}

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryInterval {
    /// The processes as they were at its end, those included that ended in it.
    pub world: World,
    /// The switches of each processor in it, and the last one before it.
    pub switches: BTreeMap<Cpu, Vec<ContextSwitch>>,
    /// The changes in it that are of no process: lost records, trouble of traces, kernel code.
    pub other: Vec<(Nanos, Cpu, Change)>,
    /// It begins before the history does.
    pub cut: bool,
}

impl SidebandHistory {
    /// Begins with a state.
    #[must_use]
    pub fn new(limit: usize, base: World) -> Self {
        Self {
            limit,
            base,
            ..Self::default()
        }
    }

    /// Adds what happened, in any order; some of it may be older than what is there, for processors are read one after
    /// another. What is older than all that is kept goes into the base at once.
    pub fn add(&mut self, mut batch: Vec<HistoryEntry>) {
        batch.sort_by_key(|entry| entry.time);
        let Some(first) = batch.first().map(|entry| entry.time) else {
            return;
        };
        let later = self.entries.partition_point(|entry| entry.time <= first);
        let tail: Vec<HistoryEntry> = self.entries.drain(later..).collect();
        self.used += batch.iter().map(HistoryEntry::bytes).sum::<usize>();
        // Two runs in order: the sort merges them.
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

    /// Has another clock tell all its times.
    pub(super) fn convert_times(&mut self, clock: impl Fn(Nanos) -> Nanos) {
        for entry in &mut self.entries {
            entry.convert_times(&clock);
        }
        // Where the clocks meet they may differ by a nanosecond.
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

    /// When the oldest thing happened that is kept.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        self.entries.front().map(|entry| entry.time)
    }

    /// When the newest thing happened.
    #[must_use]
    pub fn newest(&self) -> Option<Nanos> {
        self.entries.back().map(|entry| entry.time)
    }

    /// About how many bytes the entries take.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many entries are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing happened yet, or nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    #[cfg(test)]
    pub(super) fn entries_for_test(&self) -> impl Iterator<Item = &HistoryEntry> {
        self.entries.iter()
    }

    /// What happened from `from` to `until`, both included.
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
                        // Only the last of them says who ran at the beginning.
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

/// Who runs on each processor, where it is known.
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

    /// The switch, with the name of the thread that it is of. A thread that has ended, and was waited for, has no number any more when
    /// it leaves the processor for the last time: the kernel tells -1 (`perf_event_pid`). It is the one that had come.
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
