//! Reads the traced processes from the records: their names, threads, mappings and context
//! switches.

use super::aux::{AuxBuffer, Owner};
use super::code_map::{CodeRecords, NewestFiles};
use backtrail_perf::ContextSwitch;
use backtrail_perf::record::{Mmap, Record, RecordEvent};
use backtrail_perf::switch::{AuxEnd, Direction};
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most bytes of mappings that are copied from parents to children. Further forks count as
/// lost, so that a file of forks cannot fill the memory.
const MAX_INHERITED: usize = 256 << 20;

/// The kernel's id of a thread that exits, in its last switch.
const EXITED: Tid = Tid(u32::MAX);

/// A thread of no process, for threads that are unknown because records were lost.
const UNKNOWN: (Pid, Tid) = (Pid(u32::MAX - 1), Tid(u32::MAX - 1));

/// The state built from the records, in time order.
#[derive(Debug, Default)]
pub(super) struct Sideband {
    processes: BTreeMap<Pid, ProcessRecords>,
    files: NewestFiles,
    switches: BTreeMap<Cpu, Vec<ContextSwitch>>,
    /// The ends of the parts of each processor's trace, with offsets in the stream of its buffer.
    aux_ends: BTreeMap<Cpu, Vec<AuxEnd>>,
    /// Whether only threads of the known processes were traced, whatever else ran.
    task_bound: bool,
    /// Threads with an `ITRACE_START` record.
    traced: BTreeSet<Tid>,
    /// The cached result of [`Self::find_only_traced`].
    only_traced: OnceCell<Option<(Pid, Tid)>>,
    /// Bytes of mappings copied from parent to child.
    inherited: usize,
    lost: u64,
    truncated: u64,
    partial: u64,
    collided: u64,
}

#[derive(Clone, Debug, Default)]
struct ProcessRecords {
    code: CodeRecords,
    /// The size of a copy of the mappings in bytes.
    mapping_bytes: usize,
    threads: BTreeMap<Tid, Option<String>>,
}

/// A process that has a trace.
#[derive(Debug)]
pub(super) struct TracedProcess<'a> {
    pub(super) pid: Pid,
    /// The process's threads and their names.
    pub(super) threads: Vec<(Tid, Option<&'a str>)>,
    /// The code that was mapped.
    pub(super) code: &'a CodeRecords,
    /// The last files of all processes.
    pub(super) files: &'a NewestFiles,
}

impl Sideband {
    /// Processes the records of a file, which are in time order only per processor. `task_bound`:
    /// the trace was bound to threads, not to processors.
    pub(super) fn new(mut records: Vec<Record>, task_bound: bool) -> Self {
        bound_losses(&mut records);
        // Records that perf synthesized at its start have no time and come first. The sort is
        // stable.
        records.sort_by_key(|record| record.id.time.unwrap_or(Nanos(0)));
        let mut sideband = Self {
            task_bound,
            ..Self::default()
        };
        for record in records {
            sideband.add(record);
        }
        sideband
    }

    fn add(&mut self, record: Record) {
        match record.event {
            RecordEvent::Mmap(mmap) if mmap.user && mmap.executable => {
                self.files.add(&mmap);
                let process = self.process(mmap.pid);
                process.mapping_bytes += size_of::<Mmap>() + mmap.path.len();
                process.code.map(mmap, record.id.time);
            }
            RecordEvent::Mmap(_) => {}
            RecordEvent::Comm { pid, tid, name, exec } => {
                let process = self.process(pid);
                if exec {
                    process.code.execute();
                }
                process.threads.insert(tid, Some(name));
            }
            RecordEvent::Fork {
                pid,
                tid,
                parent,
                copies_mappings,
            } => {
                // perf's own records of running processes have no time.
                let is_new = record.id.time.is_some_and(|time| time.0 != 0);
                if pid != parent && copies_mappings && is_new {
                    self.inherit(pid, parent, record.id.time);
                }
                self.process(pid).threads.entry(tid).or_default();
            }
            RecordEvent::Exit { pid, tid } => {
                self.process(pid).threads.entry(tid).or_default();
            }
            RecordEvent::ItraceStart { pid, tid } => {
                self.process(pid).threads.entry(tid).or_default();
                self.traced.insert(tid);
            }
            RecordEvent::Aux { flags, offset, size } => {
                if let (Some(cpu), Some(time)) = (record.id.cpu, record.id.time) {
                    self.aux_ends.entry(cpu).or_default().push(AuxEnd {
                        offset: offset.saturating_add(size),
                        time,
                    });
                }
                self.truncated += u64::from(flags.truncated());
                self.partial += u64::from(flags.partial());
                self.collided += u64::from(flags.collision());
            }
            RecordEvent::Switch(switch) => {
                if let Some(cpu) = record.id.cpu {
                    self.switches.entry(cpu).or_default().push(switch);
                }
                // Thread 0 is the idle task and has no process. An exited thread has the number -1.
                if let Some(process) = self
                    .processes
                    .get_mut(&switch.pid)
                    .filter(|_| ![Tid(0), Tid(u32::MAX)].contains(&switch.tid))
                {
                    process.threads.entry(switch.tid).or_default();
                }
            }
            RecordEvent::Lost { count } => {
                self.lost = self.lost.saturating_add(count);
                self.lose_switches(record.id.cpu, record.id.time);
            }
        }
    }

    /// Notes that switches may be missing since the last one on a processor: an unknown thread may
    /// have run.
    fn lose_switches(&mut self, cpu: Option<Cpu>, time: Option<Nanos>) {
        let (Some(cpu), Some(time)) = (cpu, time) else {
            return;
        };
        self.switches.entry(cpu).or_default().push(ContextSwitch {
            time,
            pid: UNKNOWN.0,
            tid: UNKNOWN.1,
            direction: Direction::Out { preempted: false },
            next_prev_pid: Pid(0),
            next_prev_tid: Tid(0),
        });
    }

    /// Copies the parent's mappings into a new process.
    fn inherit(&mut self, pid: Pid, parent: Pid, at: Option<Nanos>) {
        let inherited = self.inherited;
        let parent_records = self.process(parent);
        let copied = parent_records.mapping_bytes + parent_records.code.memory();
        let after = inherited.saturating_add(copied);
        if after > MAX_INHERITED {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let (code, mapping_bytes) = (parent_records.code.clone(), parent_records.mapping_bytes);
        self.inherited = after;
        let child = self.process(pid);
        child.code.fork(&code, at);
        child.mapping_bytes = child.mapping_bytes.saturating_add(mapping_bytes);
    }

    fn process(&mut self, pid: Pid) -> &mut ProcessRecords {
        self.processes.entry(pid).or_default()
    }

    /// Returns notes about gaps in the recording.
    pub(super) fn notes(&self) -> Vec<String> {
        let counts = [
            (
                self.lost,
                "records were lost: mappings, names or switches may be missing",
            ),
            (
                self.truncated,
                "times a trace buffer was full and packets were lost",
            ),
            (
                self.partial,
                "pieces of trace have gaps because the hardware was shared",
            ),
            (
                self.collided,
                "pieces of trace collided with another user of the hardware",
            ),
        ];
        counts
            .iter()
            .filter(|(count, _)| *count != 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect()
    }

    /// Returns the processes whose packets `buffers` may hold: those with an `ITRACE_START` record,
    /// and those that ran on a traced processor.
    pub(super) fn traced(&self, buffers: &[AuxBuffer<'_>]) -> Vec<TracedProcess<'_>> {
        let mut tids = self.traced.clone();
        for buffer in buffers {
            match buffer.owner {
                Owner::Thread(tid) => {
                    tids.insert(tid);
                }
                Owner::Cpu(cpu) => {
                    tids.extend(
                        self.switches
                            .get(&cpu)
                            .into_iter()
                            .flatten()
                            .map(|switch| switch.tid),
                    );
                }
            }
        }
        let is_traced = |(pid, process): &(&Pid, &ProcessRecords)| {
            pid.0 != 0 && pid.0 != u32::MAX && process.threads.keys().any(|tid| tids.contains(tid))
        };
        let traced = self.processes.iter().filter(is_traced);
        let found = traced.filter(|(_, process)| !process.code.is_empty());
        found
            .map(|(pid, process)| TracedProcess {
                pid: *pid,
                threads: process
                    .threads
                    .iter()
                    .map(|(tid, name)| (*tid, name.as_deref()))
                    .collect(),
                code: &process.code,
                files: &self.files,
            })
            .collect()
    }

    /// Returns the traced thread, if there certainly is only one.
    ///
    /// A trace that is bound to threads has records about each of them: of its start, or of its
    /// state when recording began.
    fn find_only_traced(&self) -> Option<(Pid, Tid)> {
        let mut known = self.processes.iter().flat_map(|(pid, process)| {
            let threads = process.threads.keys();
            threads.map(|tid| (*pid, *tid))
        });
        let first = known.next().filter(|_| known.next().is_none());
        first.filter(|_| self.task_bound && self.lost == 0)
    }

    /// Returns the ends of the parts of a processor's trace, with offsets in the stream of its
    /// buffer.
    pub(super) fn aux_ends(&self, cpu: Cpu) -> &[AuxEnd] {
        self.aux_ends.get(&cpu).map_or(&[], Vec::as_slice)
    }

    /// Returns the switches of threads that may have been traced. Other threads made no packets, so
    /// it does not matter when they ran.
    fn traced_switches(&self, switches: &[ContextSwitch]) -> Vec<ContextSwitch> {
        // With lost records, any thread may have been traced.
        if !self.task_bound || self.lost != 0 {
            return switches.to_vec();
        }
        let mut runs = false;
        let may_be_traced = |switch: &&ContextSwitch| {
            let known = self.processes.contains_key(&switch.pid);
            match switch.direction {
                Direction::In => runs = known,
                // An exited thread has no id any more. It is the one that ran.
                Direction::Out { .. } if switch.tid == EXITED => return std::mem::take(&mut runs),
                Direction::Out { .. } => runs = false,
            }
            known
        };
        switches.iter().filter(may_be_traced).copied().collect()
    }

    /// Returns the context switches of a processor, in time order.
    ///
    /// If none were recorded and only one thread was traced, that thread ran whenever there is a
    /// trace, and a note says so.
    pub(super) fn switches(&self, cpu: Cpu, notes: &mut Vec<String>) -> Vec<ContextSwitch> {
        if let Some(switches) = self.switches.get(&cpu) {
            return self.traced_switches(switches);
        }
        let Some((pid, tid)) = *self.only_traced.get_or_init(|| self.find_only_traced()) else {
            notes.push(format!(
                "no context switches were recorded on processor {cpu}; its trace belongs to no thread"
            ));
            return Vec::new();
        };
        notes.push(format!(
            "no context switches were recorded on processor {cpu}; its trace is attributed to thread {tid}"
        ));
        let idle = (Pid(0), Tid(0));
        vec![ContextSwitch {
            time: Nanos(0),
            pid,
            tid,
            direction: Direction::In,
            next_prev_pid: idle.0,
            next_prev_tid: idle.1,
        }]
    }
}

/// Sets the times of losses. The kernel reports a loss with the next record that fits: that record
/// follows, and may have an earlier time.
fn bound_losses(records: &mut [Record]) {
    let mut next: HashMap<Cpu, Nanos> = HashMap::new();
    for record in records.iter_mut().rev() {
        let (Some(cpu), Some(time)) = (record.id.cpu, &mut record.id.time) else {
            continue;
        };
        if matches!(record.event, RecordEvent::Lost { .. })
            && let Some(next) = next.get(&cpu)
        {
            *time = (*time).min(Nanos(next.0.saturating_sub(1)));
        }
        next.insert(cpu, *time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_perf::sample_id::SampleId;
    use backtrail_pt::{Avma, FileOffset};
    use std::time::{Duration, Instant};

    fn record(event: RecordEvent) -> Record {
        let id = SampleId {
            time: Some(Nanos(1)),
            ..SampleId::default()
        };
        Record { id, event }
    }

    fn mapping(pid: u32, path: String) -> Record {
        record(RecordEvent::Mmap(Mmap {
            pid: Pid(pid),
            start: Avma(0x1000),
            size: 0x1000,
            offset: FileOffset(0),
            path,
            build_id: None,
            file: None,
            executable: true,
            user: true,
        }))
    }

    /// Checks the bound before copying the mappings of a fork.
    #[test]
    fn forks_beyond_the_bound_copy_nothing() {
        let began = Instant::now();
        let mut records: Vec<Record> = (0..40_000)
            .map(|_| mapping(1, "/".to_owned() + &"x".repeat(1000)))
            .collect();
        records.extend((2..20_000).map(|pid| {
            record(RecordEvent::Fork {
                pid: Pid(pid),
                tid: Tid(pid),
                parent: Pid(1),
                copies_mappings: true,
            })
        }));
        let sideband = Sideband::new(records, false);
        let copied = sideband.processes.values();
        let copied: usize = copied.map(|process| process.code.len()).sum();
        assert!((40_000..400_000).contains(&copied), "{copied}");
        assert!(sideband.lost > 19_000, "{}", sideband.lost);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }

    #[test]
    fn processes_that_ran_before_the_recording_inherit_nothing() {
        let fork = |pid, copies_mappings| RecordEvent::Fork {
            pid: Pid(pid),
            tid: Tid(pid),
            parent: Pid(1),
            copies_mappings,
        };
        let synthesized = Record {
            id: SampleId {
                time: Some(Nanos(0)),
                ..SampleId::default()
            },
            event: fork(2, true),
        };
        let own = Record {
            event: mapping(2, "/b".to_owned()).event,
            ..synthesized
        };
        let sideband = Sideband::new(
            vec![
                mapping(1, "/a".to_owned()),
                synthesized,
                own,
                record(fork(3, false)),
                record(fork(4, true)),
            ],
            false,
        );
        let lens = [1, 2, 3, 4].map(|pid| sideband.processes[&Pid(pid)].code.len());
        assert_eq!(lens, [1, 1, 0, 1]);
        assert_eq!(sideband.processes[&Pid(2)].code.program(), Some("/b"));
    }

    /// Each child of a chain has the mappings of its parent, and no more.
    #[test]
    fn a_chain_of_forks_stays_small() {
        let mut records = vec![mapping(1, "/a".to_owned())];
        for pid in 2..50_000 {
            records.push(record(RecordEvent::Fork {
                pid: Pid(pid),
                tid: Tid(pid),
                parent: Pid(pid - 1),
                copies_mappings: true,
            }));
            let exec = RecordEvent::Comm {
                pid: Pid(pid),
                tid: Tid(pid),
                name: String::new(),
                exec: true,
            };
            records.extend([record(exec.clone()), record(exec)]);
        }
        let sideband = Sideband::new(records, false);
        assert_eq!(sideband.lost, 0);
        let last = &sideband.processes[&Pid(49_999)].code;
        assert!(last.len() == 1 && last.memory() < 1000, "{}", last.memory());
        let all: usize = sideband
            .processes
            .values()
            .map(|process| process.code.len())
            .sum();
        assert_eq!(all, 49_999);
    }

    /// The kernel reports a loss with the time of the next record, or a later one.
    #[test]
    fn an_unknown_thread_may_have_run_where_records_were_lost() {
        let at = |time, event| Record {
            id: SampleId {
                time: Some(Nanos(time)),
                cpu: Some(Cpu(0)),
                ..SampleId::default()
            },
            event,
        };
        let switch = |time, direction| {
            let switch = ContextSwitch {
                time: Nanos(time),
                pid: Pid(1),
                tid: Tid(1),
                direction,
                next_prev_pid: Pid(0),
                next_prev_tid: Tid(0),
            };
            at(time, RecordEvent::Switch(switch))
        };
        let out = Direction::Out { preempted: false };
        for lost in [30, 31, 35] {
            let sideband = Sideband::new(
                vec![
                    mapping(1, "/a".to_owned()),
                    switch(10, Direction::In),
                    at(lost, RecordEvent::Lost { count: 3 }),
                    switch(30, Direction::In),
                    switch(40, out),
                ],
                true,
            );
            let switches = sideband.switches(Cpu(0), &mut Vec::new());
            let found: Vec<_> = switches.iter().map(|one| (one.time.0, one.pid)).collect();
            let expected = [(10, Pid(1)), (29, UNKNOWN.0), (30, Pid(1)), (40, Pid(1))];
            assert_eq!(found, expected);
        }
    }
}
