//! The sideband: one ring of records for each processor, read into the history.

use super::calibration::Calibration;
use super::counters::Counters;
use super::history::{HistoryEntry, HistoryEvent, SidebandHistory};
use super::records::{self, FileTable};
use super::world::Change;
use super::{clock, procfs_snapshot};
use crate::Result;
use backtrail_perf::attr::{Attr, SidebandLevel};
use backtrail_perf::event::{Refusal, Target};
use backtrail_perf::ring::Ring;
use backtrail_perf::{Error as PerfError, Event};
use backtrail_pt::{Cpu, Nanos, TscConversion};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// 512 KiB: some 10 000 records, a tenth of a second on a very busy processor.
const PAGES: usize = 128;
/// The kernel wakes the reader when half of the ring is full.
const WATERMARK: u32 = PAGES as u32 * 4096 / 2;
/// Minimum time between two scans of all processes after records were lost.
const RESCAN_INTERVAL: Duration = Duration::from_secs(10);

/// The rings and the history.
#[derive(Debug)]
pub(super) struct Sideband {
    rings: BTreeMap<Cpu, (Event, Ring)>,
    attr: Attr,
    build_ids: bool,
    history: SidebandHistory,
    limit: usize,
    files: FileTable,
    calibration: Calibration,
    counters: Counters,
    bytes: Vec<u8>,
    rescanned: Option<Instant>,
    /// Whether records were lost since the last scan of all processes.
    has_lost_records: bool,
}

impl Sideband {
    /// Opens and starts the rings. Records wait in them until the first [`Self::drain`].
    pub(super) fn start(cpus: &[Cpu], limit: usize) -> Result<Self> {
        let full = Attr::sideband(WATERMARK);
        let tries = [
            full.clone(),
            full.clone().without_newer(SidebandLevel::Linux5),
            full.without_newer(SidebandLevel::Linux4),
        ];
        let mut refused = None;
        for (index, attr) in tries.into_iter().enumerate() {
            let rings: std::result::Result<BTreeMap<_, _>, PerfError> = cpus
                .iter()
                .map(|cpu| Ok((*cpu, open(&attr, *cpu)?)))
                // A processor that has just gone offline is skipped.
                .filter(|opened| !opened.as_ref().is_err_and(is_off))
                .collect();
            match rings {
                Ok(rings) => {
                    return Ok(Self {
                        rings,
                        attr,
                        build_ids: index == 0,
                        history: SidebandHistory::default(),
                        limit,
                        files: FileTable::default(),
                        calibration: Calibration::default(),
                        counters: Counters::default(),
                        bytes: Vec::new(),
                        rescanned: None,
                        has_lost_records: false,
                    });
                }
                Err(
                    error @ PerfError::Open {
                        refusal: Refusal::Unknown,
                        ..
                    },
                ) => refused = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let none = PerfError::Setting("no online processor can be traced".to_owned());
        Err(refused.unwrap_or(none).into())
    }

    /// Reads all processes as the base of the history. The rings already run, so nothing is missed.
    /// Records from before a process was read are ignored for it.
    pub(super) fn begin(&mut self, procfs: &Path, now: impl Fn() -> Option<Nanos>) {
        let base = procfs_snapshot::take(procfs, &mut self.files, now);
        self.history = SidebandHistory::new(self.limit, base);
    }

    /// Returns the kernel's current conversion from TSC to perf's clock. `None`: the clock is not
    /// the TSC.
    pub(super) fn conversion(&self) -> Option<TscConversion> {
        let (event, ring) = self.rings.values().next()?;
        // If the kernel cannot update it, the conversion at the time of the mapping counts.
        let _ = event.reset();
        ring.tsc_conversion()
    }

    /// Converts all times to a new clock conversion, including those of unread records.
    pub(super) fn recalibrate(&mut self, old: TscConversion, new: TscConversion) {
        if self.calibration.record_change(old, new, clock::tsc()) {
            let calibration = self.calibration;
            self.history.convert_times(|time| calibration.to_current(time));
        }
    }

    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.rings.values().map(|(event, _)| event.as_fd()).collect()
    }

    pub(super) fn history(&self) -> &SidebandHistory {
        &self.history
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            history_bytes: self.history.used() as u64,
            ..self.counters
        }
    }

    pub(super) fn has_build_ids(&self) -> bool {
        self.build_ids
    }

    /// Opens the ring of a new processor.
    pub(super) fn add(&mut self, cpu: Cpu) -> Result<()> {
        let ring = open(&self.attr, cpu)?;
        self.rings.insert(cpu, ring);
        Ok(())
    }

    /// Reads the rest of the ring of an offline processor, and closes it.
    pub(super) fn stop(&mut self, cpu: Cpu) {
        let mut entries = Vec::new();
        if let Some((_, mut ring)) = self.rings.remove(&cpu) {
            self.read(cpu, &mut ring, &mut entries);
        }
        self.history.add(entries);
    }

    /// Reads all rings, including those of the trace events. Returns the processors whose trace the
    /// kernel stopped because its buffer was full (`perf_aux_output_end`,
    /// `PERF_AUX_FLAG_TRUNCATED`).
    pub(super) fn drain(
        &mut self,
        others: &mut BTreeMap<Cpu, Ring>,
        procfs: &Path,
        now: impl Fn() -> Option<Nanos>,
    ) -> BTreeSet<Cpu> {
        let mut entries = Vec::new();
        let mut rings = std::mem::take(&mut self.rings);
        let before = self.counters.lost;
        for (cpu, (_, ring)) in &mut rings {
            self.read(*cpu, ring, &mut entries);
        }
        self.rings = rings;
        self.has_lost_records |= self.counters.lost > before;
        for (cpu, ring) in others {
            self.read(*cpu, ring, &mut entries);
        }
        // Records lost from the rings of trace events concern no process.
        let due = self
            .rescanned
            .is_none_or(|rescanned| rescanned.elapsed() >= RESCAN_INTERVAL);
        if self.has_lost_records && due {
            self.has_lost_records = false;
            self.rescanned = Some(Instant::now());
            self.rescan(procfs, now, &mut entries);
        }
        let stopped = entries
            .iter()
            .filter(|entry| entry.is_truncated())
            .map(|entry| entry.cpu);
        let stopped = stopped.collect();
        self.history.add(entries);
        stopped
    }

    /// Reads all processes again, and adds the result to the history.
    fn rescan(&mut self, procfs: &Path, now: impl Fn() -> Option<Nanos>, entries: &mut Vec<HistoryEntry>) {
        let Some(time) = now() else { return };
        let seen = procfs_snapshot::take(procfs, &mut self.files, now);
        let known = self.history.interval(Nanos(u64::MAX), Nanos(u64::MAX)).world;
        let gone = known
            .processes
            .keys()
            .filter(|pid| !seen.processes.contains_key(pid))
            .map(|pid| Change::Rescan(*pid, None));
        let changes: Vec<Change> = gone.collect();
        let there = seen.processes.into_iter().map(|(pid, mut state)| {
            // After dropping privileges, the mappings of other users' processes cannot be read.
            if state.mappings.is_empty()
                && let Some(known) = known.processes.get(&pid)
            {
                state.mappings = known.mappings.clone();
            }
            Change::Rescan(pid, Some(state))
        });
        entries.extend(changes.into_iter().chain(there).map(|change| HistoryEntry {
            time,
            cpu: Cpu(0),
            event: HistoryEvent::Change(Box::new(change)),
        }));
    }

    fn read(&mut self, cpu: Cpu, ring: &mut Ring, entries: &mut Vec<HistoryEntry>) {
        self.bytes.clear();
        let known = entries.len();
        match ring.take(&mut self.bytes) {
            Ok(_) => records::read(&self.bytes, cpu, &mut self.files, &mut self.counters, entries),
            Err(_) => self.counters.malformed += 1,
        }
        for entry in &mut entries[known..] {
            entry.convert_times(&|time| self.calibration.to_current(time));
        }
    }
}

/// Returns whether an event was refused because its processor is offline.
pub(super) fn is_off(error: &PerfError) -> bool {
    matches!(
        error,
        PerfError::Open {
            refusal: Refusal::CpuOff,
            ..
        }
    )
}

fn open(attr: &Attr, cpu: Cpu) -> std::result::Result<(Event, Ring), PerfError> {
    let what = format!("the sideband of processor {cpu}");
    let event = Event::open(&what, attr, Target::Everyone, Some(cpu), None)?;
    let ring = Ring::map(&event, PAGES)?;
    event.enable()?;
    Ok((event, ring))
}

#[cfg(test)]
mod tests;
