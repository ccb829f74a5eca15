//! Reads the traced processes from the records: their names, threads, mappings and context
//! switches.

use super::aux::{AuxBuffer, Owner};
use backtrail_perf::ContextSwitch;
use backtrail_perf::record::{Mmap, Record, RecordEvent};
use backtrail_perf::switch::Direction;
use backtrail_pt::{Cpu, Nanos, Pid, Tid};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

/// The most bytes of mappings that are copied from parents to children. Further forks count as
/// lost, so that a file of forks cannot fill the memory.
const MAX_INHERITED: usize = 256 << 20;

/// The state built from the records, in time order.
#[derive(Debug, Default)]
pub(super) struct Sideband {
    processes: BTreeMap<Pid, ProcessRecords>,
    switches: BTreeMap<Cpu, Vec<ContextSwitch>>,
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
    mappings: Vec<Mmap>,
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
    /// Executable memory mapped since the last `execve`, in order.
    pub(super) mappings: &'a [Mmap],
}

impl Sideband {
    /// Processes the records of a file, which are in time order only per processor.
    pub(super) fn new(mut records: Vec<Record>) -> Self {
        // Records that perf synthesized at its start have no time and come first. The sort is
        // stable.
        records.sort_by_key(|record| record.id.time.unwrap_or(Nanos(0)));
        let mut sideband = Self::default();
        for record in records {
            sideband.add(record);
        }
        sideband
    }

    fn add(&mut self, record: Record) {
        match record.event {
            RecordEvent::Mmap(mmap) if mmap.user && mmap.executable => {
                let process = self.process(mmap.pid);
                process.mapping_bytes += size_of::<Mmap>() + mmap.path.len();
                process.mappings.push(mmap);
            }
            RecordEvent::Mmap(_) => {}
            RecordEvent::Comm { pid, tid, name, exec } => {
                let process = self.process(pid);
                if exec {
                    process.mappings.clear();
                    process.mapping_bytes = 0;
                }
                process.threads.insert(tid, Some(name));
            }
            RecordEvent::Fork { pid, tid, parent } => {
                if pid != parent {
                    self.inherit(pid, parent);
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
            RecordEvent::Aux { flags, .. } => {
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
            RecordEvent::Lost { count } => self.lost = self.lost.saturating_add(count),
        }
    }

    /// Copies the parent's mappings into a new process.
    fn inherit(&mut self, pid: Pid, parent: Pid) {
        let inherited = self.inherited;
        let parent_records = self.process(parent);
        let after = inherited.saturating_add(parent_records.mapping_bytes);
        if after > MAX_INHERITED {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        let (mappings, mapping_bytes) = (parent_records.mappings.clone(), parent_records.mapping_bytes);
        self.inherited = after;
        let child = self.process(pid);
        child.mappings = mappings;
        child.mapping_bytes = mapping_bytes;
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
        let found = traced.filter(|(_, process)| !process.mappings.is_empty());
        found
            .map(|(pid, process)| TracedProcess {
                pid: *pid,
                threads: process
                    .threads
                    .iter()
                    .map(|(tid, name)| (*tid, name.as_deref()))
                    .collect(),
                mappings: &process.mappings,
            })
            .collect()
    }

    /// Returns the traced thread, if there is only one.
    fn find_only_traced(&self) -> Option<(Pid, Tid)> {
        let mut traced = self.processes.iter().flat_map(|(pid, process)| {
            process
                .threads
                .keys()
                .filter(|tid| self.traced.contains(tid))
                .map(|tid| (*pid, *tid))
        });
        traced.next().filter(|_| traced.next().is_none())
    }

    /// Returns the context switches of a processor, in time order.
    ///
    /// If none were recorded and only one thread was traced, that thread is assumed to have run all
    /// the time, and a note says so.
    pub(super) fn switches(&self, cpu: Cpu, notes: &mut Vec<String>) -> Vec<ContextSwitch> {
        if let Some(switches) = self.switches.get(&cpu) {
            return switches.clone();
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

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_perf::sample_id::SampleId;
    use backtrail_pt::{Avma, FileOffset};
    use std::time::{Duration, Instant};

    fn record(event: RecordEvent) -> Record {
        Record {
            id: SampleId::default(),
            event,
        }
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
            })
        }));
        let sideband = Sideband::new(records);
        let copied = sideband.processes.values();
        let copied: usize = copied.map(|process| process.mappings.len()).sum();
        assert!((40_000..400_000).contains(&copied), "{copied}");
        assert!(sideband.lost > 19_000, "{}", sideband.lost);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
}
