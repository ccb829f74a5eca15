//! The frozen traces, with the processes that ran in their time span and their mappings.

use super::freeze::Frozen;
use super::history::HistoryInterval;
use super::options::Filter;
use super::record::{Parts, RecordedHistory, RecordedMapping, RecordedProcess};
use super::times::{first_timestamp, written_since};
use super::world::Change;
use super::written::{CpuCost, TracedMachine, WrittenHistory};
use super::{clock, modules};
use crate::Result;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::AddressFilter;
use backtrail_bundle::module_file::Allowance;
use backtrail_pt::{Avma, Cpu, Nanos, Pid, Tsc, TscConversion};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The content of a bundle from Intel PT.
#[derive(Debug)]
pub struct TraceSnapshot<'a> {
    pub(super) frozen: &'a Frozen,
    /// The events in the time span of the traces.
    pub interval: HistoryInterval,
    /// Restricts the snapshot to this process.
    pub pid: Option<Pid>,
    /// The clocks and the processor.
    pub machine: TracedMachine,
    pub(super) procfs: PathBuf,
    pub(super) filters: Vec<Filter>,
}

impl TraceSnapshot<'_> {
    /// Writes traces, switches and modules.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, writer: &Writer) -> Result<WrittenHistory> {
        let (recorded, bytes) = self.record();
        let mut find = |pid: Pid, mapped: &RecordedMapping, _: &mut Allowance| {
            let files = modules::candidates(&self.procfs, pid, mapped, &|_| true);
            let file = files.into_iter().find(|file| mapped.may_be(file))?;
            Some(modules::FoundModule { file, ready: None })
        };
        recorded.write(&bytes, writer, &mut find)
    }

    /// Returns the snapshot as plain data, and the bytes that belong to it. Opens no file.
    #[must_use]
    pub fn record(&self) -> (RecordedHistory, Vec<u8>) {
        let mut notes = self.notes();
        let mut by_cpu: BTreeMap<Cpu, Vec<&[u8]>> = BTreeMap::new();
        // A processor that went offline and online again has two traces. The ended one is the
        // older.
        let mut frozen: Vec<_> = self.frozen.cpus.iter().collect();
        frozen.sort_by_key(|cpu| cpu.paused_at);
        for cpu in frozen {
            by_cpu.entry(cpu.cpu).or_default().push(cpu.bytes());
        }
        let cpus = by_cpu.into_iter().map(|(cpu, pieces)| {
            let known = self
                .interval
                .switches
                .get(&cpu)
                .map(Vec::as_slice)
                .unwrap_or_default();
            let switches = known.iter().flat_map(|switch| switch.to_bytes()).collect();
            (cpu, pieces.concat(), switches)
        });
        let cpus = cpus.collect();
        let mut processes = Vec::new();
        for pid in self.pids() {
            match self.interval.world.processes.get(&pid) {
                Some(state) => processes.push(RecordedProcess::new(pid, state)),
                None => notes.push(format!("process {pid} is unknown")),
            }
        }
        RecordedHistory::new(Parts {
            cpus,
            processes,
            filters: self.address_filters(&mut notes),
            costs: self.costs(),
            notes,
            machine: self.machine,
        })
    }

    /// Returns the cost of freezing for each processor.
    #[must_use]
    pub fn costs(&self) -> Vec<CpuCost> {
        let tsc = &self.machine.tsc;
        let crash = self
            .frozen
            .crash_at
            .map(|at| tsc.tsc(clock::perf_of_monotonic(tsc, at)));
        let costs = self.frozen.cpus.iter().map(|cpu| CpuCost {
            cpu: cpu.cpu,
            bytes: cpu.bytes().len(),
            wrapped: cpu.wrapped,
            crash_to_pause: self.frozen.crash_at.map(|at| cpu.paused_at.saturating_sub(at)),
            written_since_crash: if cpu.paused_by_kernel {
                Some(0)
            } else {
                crash.and_then(|crash| written_since(cpu.bytes(), crash, clock::tsc()))
            },
            paused_for: cpu.resumed_at.map(|at| at.saturating_sub(cpu.paused_at)),
            paused_by_kernel: cpu.paused_by_kernel,
        });
        costs.collect()
    }

    /// Converts the filters to addresses. A file may be mapped several times. A file that is not
    /// mapped was not traced.
    fn address_filters(&self, notes: &mut Vec<String>) -> Vec<AddressFilter> {
        let range = |from: u64, size: u64| AddressFilter {
            from: Avma(from),
            to: Avma(from.saturating_add(size.saturating_sub(1))),
        };
        let mut found = Vec::new();
        for filter in &self.filters {
            let Some(file) = &filter.file else {
                found.push(range(filter.start, filter.size));
                continue;
            };
            let mappings = self
                .pids()
                .into_iter()
                .filter_map(|pid| self.interval.world.processes.get(&pid));
            let mappings = mappings.flat_map(|process| process.mappings.iter());
            let before = found.len();
            for mapped in mappings.filter(|mapped| std::path::Path::new(&mapped.file.path) == file.as_path())
            {
                let from = filter.start.max(mapped.offset.0);
                let end = filter
                    .start
                    .saturating_add(filter.size)
                    .min(mapped.offset.0.saturating_add(mapped.size));
                if from < end {
                    found.push(range(
                        mapped.start.0.wrapping_add(from - mapped.offset.0),
                        end - from,
                    ));
                }
            }
            if found.len() == before {
                notes.push(format!(
                    "{} has a filter but is not mapped, so it was not traced",
                    file.display()
                ));
            }
        }
        found
    }

    /// Returns the processes of the snapshot: the requested one, or all that ran.
    fn pids(&self) -> BTreeSet<Pid> {
        match self.pid {
            Some(pid) => BTreeSet::from([pid]),
            None => {
                let switches = self.interval.switches.values().flatten();
                let ran = switches.map(|switch| switch.pid);
                ran.filter(|pid| pid.0 != 0 && pid.0 != u32::MAX).collect()
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.interval.cut {
            notes.push(
                "the history of mappings and switches is shorter than the trace: the oldest part belongs to unknown processes".to_owned(),
            );
        }
        let lost: u64 = self
            .interval
            .other
            .iter()
            .map(|(_, _, change)| match change {
                Change::Lost(count) => *count,
                _ => 0,
            })
            .sum();
        if lost != 0 {
            notes.push(format!(
                "{lost} records were lost: mappings, names or switches may be missing"
            ));
        }
        for (_, cpu, change) in &self.interval.other {
            let Change::Trace(flags) = change else { continue };
            if flags.truncated() {
                notes.push(format!(
                    "a part of the trace of processor {cpu} was lost because a buffer was full"
                ));
            }
            if flags.partial() {
                notes.push(format!(
                    "the trace of processor {cpu} has gaps because a hypervisor used the hardware"
                ));
            }
        }
        for cpu in self.frozen.cpus.iter().filter(|cpu| cpu.off) {
            notes.push(format!(
                "processor {} went offline: its trace ends earlier",
                cpu.cpu
            ));
        }
        notes
    }

    /// Returns the time span of the traces, on perf's clock.
    pub(super) fn span(frozen: &Frozen, conversion: &TscConversion, now: Tsc) -> (Nanos, Nanos) {
        let begins = frozen
            .cpus
            .iter()
            .filter_map(|cpu| first_timestamp(cpu.bytes(), now))
            .map(|tsc| conversion.nanos(tsc))
            .min();
        let ends = frozen.cpus.iter().map(|cpu| cpu.paused).max();
        let ends = ends.map(|tsc| conversion.nanos(tsc));
        (begins.unwrap_or_default(), ends.unwrap_or(Nanos(u64::MAX)))
    }
}

#[cfg(test)]
mod tests;
