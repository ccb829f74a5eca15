//! The Intel PT source: a trace ring and a sideband ring for each processor, and a bounded history.
//!
//! The daemon owns [`Hardware`], polls [`Hardware::descriptors`] and calls [`Hardware::drain`]. The
//! probe reader has its [`Freezer`], which pauses, copies and resumes the traces.
//! [`Hardware::collect`] adds the processes that ran and their mappings. [`TraceSnapshot::write`]
//! writes all of it into a bundle.

mod calibration;
pub mod clock;
mod counters;
mod freezable;
mod freeze;
mod history;
mod modules;
mod options;
mod procfs_snapshot;
mod record;
mod record_writer;
mod records;
mod self_test;
mod sideband;
mod snapshot;
mod times;
mod trace;
mod world;
mod written;

pub use counters::Counters;
pub use freeze::{Freezer, Frozen, FrozenCpu};
pub use history::{HistoryEntry, HistoryEvent, HistoryInterval, SidebandHistory};
pub use modules::{FindModule, FoundModule, candidates};
pub use options::{Filter, HardwareOptions, Scope};
pub use record::{RecordedHistory, RecordedMapping, RecordedProcess};
pub use self_test::{Check, SelfTest, self_test};
pub use snapshot::TraceSnapshot;
pub use times::{first_timestamp, written_since};
pub use world::{Change, ExecutableMapping, MappedFile, ProcessState, World};
pub use written::{CpuCost, TracedMachine, WrittenHistory};

use crate::{Error, Result};
use backtrail_perf::event::Refusal;
use backtrail_perf::ring::Ring;
use backtrail_perf::{Error as PerfError, cpu_list};
use backtrail_pt::{Cpu, CpuModel, Pid};
use counters::SharedCounters;
use freezable::FreezableTrace;
use sideband::Sideband;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trace::{Trace, TraceSetup};

/// How often to check for processors that went online or offline.
const HOT_PLUG_INTERVAL: Duration = Duration::from_secs(1);
/// The longest time to keep the trace of an offline processor, in nanoseconds. It is dropped
/// earlier when the history no longer reaches back to its end.
const OFFLINE_TRACE_LIMIT: u64 = 600_000_000_000;

/// The Intel PT source.
#[derive(Debug)]
pub struct Hardware {
    options: HardwareOptions,
    setup: TraceSetup,
    machine: TracedMachine,
    shared: Arc<freeze::FreezerState>,
    /// The rings with the records of the trace events.
    rings: BTreeMap<Cpu, Ring>,
    sideband: Sideband,
    last_check: Instant,
    /// The number of freezes at the last check of the kernel's clock. `None`: a check is due.
    freezes_at_check: Option<u64>,
    onlined: u64,
    offlined: u64,
    busy: u64,
    /// Processors that went online and could not be traced. Each is logged once.
    refused: BTreeSet<Cpu>,
}

/// The optional features of Intel PT that work on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCapabilities {
    /// Whether the kernel itself pauses the trace of a crashing processor, or why not.
    pub pause_in_kernel: std::result::Result<(), String>,
    /// Number of address ranges for filters.
    pub address_filters: u32,
    /// Whether `CYC` packets and `PSB` periods are supported.
    pub psb_cyc: bool,
    /// Whether `MTC` packets are supported.
    pub mtc: bool,
    /// Whether the copy buffers are locked in memory.
    pub buffers_locked: bool,
    /// Whether mapping records contain build ids.
    pub build_ids: bool,
}

impl Hardware {
    /// Starts tracing on all online processors.
    ///
    /// # Errors
    /// When Intel PT is missing, busy or not permitted, an option is not supported, or perf's clock
    /// is not the TSC. The message states the remedy.
    pub fn start(options: &HardwareOptions) -> Result<Self> {
        let setup = TraceSetup::new(options)?;
        let cpus = traced_cpus(options, &setup)?;
        let mut sideband = Sideband::start(&cpus, options.history)?;
        let mut traces: Vec<Arc<dyn FreezableTrace>> = Vec::new();
        let mut rings = BTreeMap::new();
        for cpu in cpus {
            match Trace::open(&setup, cpu) {
                Ok((trace, ring)) => {
                    traces.push(Arc::new(trace));
                    rings.insert(cpu, ring);
                }
                // The processor has just gone offline.
                Err(Error::Perf(error)) if sideband::is_off(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let tsc = sideband.conversion().ok_or_else(unstable_clock)?;
        sideband.begin(&options.procfs, || Some(clock::perf(&tsc)));
        let machine = TracedMachine {
            tsc,
            timing: setup.pt.timing(&setup.setting),
            cpu: processor(options)?,
        };
        Ok(Self {
            options: options.clone(),
            setup,
            machine,
            shared: freeze::FreezerState::new(traces, tsc, options.lock_memory)?,
            rings,
            sideband,
            last_check: Instant::now(),
            freezes_at_check: None,
            onlined: 0,
            offlined: 0,
            busy: 0,
            refused: BTreeSet::new(),
        })
    }

    /// Returns descriptors that become readable when [`Self::drain`] has work. The set changes with
    /// the online processors, so get it again after each call of `drain`. Call `drain` at least
    /// once a second in any case.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.sideband.descriptors()
    }

    /// Reads the sideband into the history, and follows processors that go online or offline.
    pub fn drain(&mut self) {
        if self.last_check.elapsed() >= HOT_PLUG_INTERVAL {
            self.last_check = Instant::now();
            self.update_cpus();
            self.shared.end_stale_pauses();
            self.freezes_at_check = None;
        }
        // The clock of a new freeze must be the current one.
        let freezes = SharedCounters::read(&self.shared.counters.freezes);
        if self.freezes_at_check != Some(freezes) {
            self.freezes_at_check = Some(freezes);
            self.update_clock();
        }
        let tsc = self.machine.tsc;
        let stopped = self
            .sideband
            .drain(&mut self.rings, &self.options.procfs, || Some(clock::perf(&tsc)));
        stopped.into_iter().for_each(|cpu| self.shared.restart(cpu));
    }

    /// Returns a handle that freezes the traces.
    #[must_use]
    pub fn freezer(&self) -> Freezer {
        Freezer(self.shared.clone())
    }

    /// Returns the counters since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let shared = &self.shared.counters;
        Counters {
            cpus_onlined: self.onlined,
            cpus_offlined: self.offlined,
            cpus_traced: self.rings.len() as u64,
            busy: self.busy,
            freezes: SharedCounters::read(&shared.freezes),
            paused_by_kernel: SharedCounters::read(&shared.paused_by_kernel),
            buffers_missing: SharedCounters::read(&shared.buffers_missing),
            resume_failures: SharedCounters::read(&shared.resume_failures),
            ..self.sideband.counters()
        }
    }

    /// Returns the optional features that work here.
    #[must_use]
    pub fn capabilities(&self) -> TraceCapabilities {
        let traces = self.shared.traces();
        let pauses = traces.iter().all(|trace| trace.pauses_in_kernel());
        let refused = "this kernel does not support aux_pause (added in Linux 6.13)";
        TraceCapabilities {
            pause_in_kernel: match &self.setup.pause {
                Ok(_) if pauses => Ok(()),
                Ok(_) => Err(refused.to_owned()),
                Err(why) => Err(why.clone()),
            },
            address_filters: self.setup.pt.pmu.address_filters,
            psb_cyc: self.setup.pt.caps.psb_cyc,
            mtc: self.setup.pt.caps.mtc,
            buffers_locked: self.shared.buffers_locked(),
            build_ids: self.sideband.has_build_ids(),
        }
    }

    /// Adds to frozen traces the processes that ran in their time span, and their mappings. `pid`
    /// selects one process. Call [`Self::drain`] after the freeze and before this.
    #[must_use]
    pub fn collect<'a>(&self, frozen: &'a Frozen, pid: Option<Pid>) -> TraceSnapshot<'a> {
        let (from, until) = TraceSnapshot::span(frozen, &self.machine.tsc, clock::tsc());
        TraceSnapshot {
            frozen,
            interval: self.sideband.history().interval(from, until),
            pid,
            machine: self.machine,
            procfs: self.options.procfs.clone(),
            filters: self.options.filters.clone(),
        }
    }

    /// Returns the conversion from TSC to perf's clock, the trace timing parameters and the
    /// processor.
    #[must_use]
    pub fn machine(&self) -> TracedMachine {
        self.machine
    }

    /// Adopts the kernel's current clock conversion. The kernel refines the TSC calibration some
    /// seconds after boot.
    fn update_clock(&mut self) {
        let Some(tsc) = self.sideband.conversion() else {
            return;
        };
        let known = self.machine.tsc;
        if tsc != known {
            tracing::debug!("the kernel has recalibrated its clock from {known:?} to {tsc:?}");
            self.sideband.recalibrate(known, tsc);
            self.machine.tsc = tsc;
            self.shared.set_conversion(tsc);
        }
    }

    /// Opens traces of new processors, and closes those of offline processors.
    fn update_cpus(&mut self) {
        let Ok(online) = traced_cpus(&self.options, &self.setup) else {
            return;
        };
        let offline: Vec<Cpu> = self
            .rings
            .keys()
            .filter(|cpu| !online.contains(cpu))
            .copied()
            .collect();
        for cpu in offline {
            self.offlined += 1;
            self.sideband.stop(cpu);
            self.rings.remove(&cpu);
            let traces = self.shared.traces();
            traces
                .iter()
                .filter(|trace| trace.cpu() == cpu && trace.offline_since().is_none())
                .for_each(|trace| trace.mark_offline());
        }
        let onlined: Vec<Cpu> = online
            .into_iter()
            .filter(|cpu| !self.rings.contains_key(cpu))
            .collect();
        for cpu in onlined {
            match self.add_cpu(cpu) {
                Ok(()) => {
                    self.onlined += 1;
                    self.refused.remove(&cpu);
                }
                // Each call tries again, but counts and logs a failure once.
                Err(error) if self.refused.insert(cpu) => {
                    let busy = matches!(
                        &error,
                        Error::Perf(PerfError::Open {
                            refusal: Refusal::Busy,
                            ..
                        })
                    );
                    self.busy += u64::from(busy);
                    tracing::warn!("processor {cpu} is online, but cannot be traced: {error}");
                }
                Err(_) => {}
            }
        }
        self.drop_offline_traces();
    }

    fn add_cpu(&mut self, cpu: Cpu) -> Result<()> {
        let (trace, ring) = Trace::open(&self.setup, cpu)?;
        self.sideband.add(cpu)?;
        self.shared.grow(trace.size())?;
        self.rings.insert(cpu, ring);
        self.shared.traces_mut().push(Arc::new(trace));
        Ok(())
    }

    /// Drops traces of offline processors when their content is too old.
    fn drop_offline_traces(&self) {
        let now = clock::monotonic();
        let oldest = self.sideband.history().oldest().unwrap_or_default();
        let mut traces = self.shared.traces_mut();
        let before = traces.len();
        traces.retain(|trace| {
            trace.offline_since().is_none_or(|offlined| {
                let end = clock::perf_of_monotonic(&self.machine.tsc, offlined);
                now.saturating_sub(offlined) < OFFLINE_TRACE_LIMIT && end >= oldest
            })
        });
        (traces.len()..before).for_each(|_| self.shared.shrink());
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Returns the online processors that the PMU covers.
fn traced_cpus(options: &HardwareOptions, setup: &TraceSetup) -> Result<Vec<Cpu>> {
    let mut cpus = cpu_list::online(&options.sysfs)?;
    if let Some(mask) = &setup.pt.pmu.cpus {
        cpus.retain(|cpu| mask.contains(cpu));
    }
    Ok(cpus)
}

/// Returns the processor model, which selects the errata for the decoder.
fn processor(options: &HardwareOptions) -> Result<CpuModel> {
    backtrail_process::machine::processor(&options.procfs).ok_or_else(|| {
        Error::Unable(format!(
            "{}/cpuinfo does not show the family, model and stepping of the processor",
            options.procfs.display()
        ))
    })
}

fn unstable_clock() -> Error {
    Error::Unable(
        " grep -i tsc`), or leave the hypervisor's clock|perf's clock is not the time-stamp counter, so traces would have no times: boot with a stable TSC (see `dmesg | grep -i tsc`), or do not use the hypervisor's clock| grep -i tsc`), or leave the hypervisor's clock"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests;
