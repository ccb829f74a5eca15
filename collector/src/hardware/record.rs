//! A snapshot as plain data, which the daemon passes to a worker.
//!
//! The daemon has privileges and opens no file of a traced process. The worker opens and parses
//! such files without privileges.

use super::clock;
use super::written::{CpuCost, TracedMachine};
use backtrail_bundle::manifest::AddressFilter;
use backtrail_bundle::module_file;
use backtrail_process::beneath::FileId;
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{BuildId, Cpu, CpuModel, Pid, TimingParams, TscConversion};
use serde::{Deserialize, Serialize};
use std::fs::File;

/// A snapshot without its bytes. The bytes follow it: for each processor the trace, then the
/// switches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedHistory {
    pub(super) cpus: Vec<RecordedCpu>,
    /// The processes and their mappings.
    pub processes: Vec<RecordedProcess>,
    pub(super) filters: Vec<(u64, u64)>,
    pub(super) costs: Vec<RecordedCost>,
    pub(super) notes: Vec<String>,
    pub(super) machine: RecordedMachine,
}

impl RecordedHistory {
    /// Returns the time of perf's clock minus that of `CLOCK_MONOTONIC`, now.
    #[must_use]
    pub fn perf_offset(&self) -> i64 {
        let now = clock::monotonic();
        let perf = clock::perf_of_monotonic(&self.machine.machine().tsc, now);
        perf.0.wrapping_sub(now).cast_signed()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedCpu {
    pub(super) cpu: u32,
    /// Bytes of the processor's trace.
    pub(super) trace: u64,
    /// Bytes of its switch records.
    pub(super) switches: u64,
}

/// A process in a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// The process id.
    pub pid: u32,
    pub(super) threads: Vec<(u32, String)>,
    /// The executable mappings.
    pub mappings: Vec<RecordedMapping>,
}

/// A mapping in a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedMapping {
    /// The first address.
    pub start: u64,
    /// The size in bytes.
    pub size: u64,
    /// The file offset at `start`.
    pub offset: u64,
    /// The path of the file, or a name of other memory.
    pub path: String,
    build_id: Option<Vec<u8>>,
    /// Device and inode, if the kernel reported them.
    id: Option<((u32, u32), u64)>,
}

impl RecordedMapping {
    /// Returns the file's build id, if the kernel reported it.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        self.build_id.as_deref().and_then(BuildId::new)
    }

    /// Returns whether an open file may be the mapped one: it has the reported build id, if there
    /// is one. This parses the file.
    #[must_use]
    pub fn may_be(&self, file: &File) -> bool {
        let Some(reported) = self.build_id() else {
            return true;
        };
        module_file::build_id(file, &self.path).is_ok_and(|found| found == Some(reported))
    }

    /// Returns the identity of the mapped file, if the kernel reported it.
    #[must_use]
    pub fn id(&self) -> Option<FileId> {
        self.id.map(|(device, inode)| FileId { device, inode })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedCost {
    pub(super) cpu: u32,
    pub(super) bytes: usize,
    pub(super) wrapped: bool,
    pub(super) crash_to_pause: Option<u64>,
    pub(super) written_since_crash: Option<usize>,
    pub(super) paused_for: Option<u64>,
    pub(super) paused_by_kernel: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct RecordedMachine {
    tsc: (u16, u32, u64),
    timing: (u8, u8, u32, u32),
    intel: bool,
    model: (u16, u8, u8),
}

impl RecordedMachine {
    fn of(machine: TracedMachine) -> Self {
        let (tsc, timing, cpu) = (machine.tsc, machine.timing, machine.cpu);
        Self {
            tsc: (tsc.shift, tsc.mult, tsc.zero),
            timing: (
                timing.mtc_freq,
                timing.nom_freq,
                timing.cpuid_15h_eax,
                timing.cpuid_15h_ebx,
            ),
            intel: cpu.vendor == Vendor::Intel,
            model: (cpu.family, cpu.model, cpu.stepping),
        }
    }

    pub(super) fn machine(self) -> TracedMachine {
        let (shift, mult, zero) = self.tsc;
        let (mtc_freq, nom_freq, cpuid_15h_eax, cpuid_15h_ebx) = self.timing;
        let (family, model, stepping) = self.model;
        let vendor = match self.intel {
            true => Vendor::Intel,
            false => Vendor::Other,
        };
        TracedMachine {
            tsc: TscConversion { shift, mult, zero },
            timing: TimingParams {
                mtc_freq,
                nom_freq,
                cpuid_15h_eax,
                cpuid_15h_ebx,
            },
            cpu: CpuModel {
                vendor,
                family,
                model,
                stepping,
            },
        }
    }
}

/// The parts of a [`RecordedHistory`].
pub(super) struct Parts {
    pub(super) cpus: Vec<(Cpu, Vec<u8>, Vec<u8>)>,
    pub(super) processes: Vec<RecordedProcess>,
    pub(super) filters: Vec<AddressFilter>,
    pub(super) costs: Vec<CpuCost>,
    pub(super) notes: Vec<String>,
    pub(super) machine: TracedMachine,
}

impl RecordedProcess {
    pub(super) fn new(pid: Pid, state: &super::world::ProcessState) -> Self {
        let mapping = |mapped: &super::world::ExecutableMapping| RecordedMapping {
            start: mapped.start.0,
            size: mapped.size,
            offset: mapped.offset.0,
            path: mapped.file.path.clone(),
            build_id: mapped.file.build_id.as_ref().map(|id| id.as_bytes().to_vec()),
            id: mapped.file.id.map(|id| (id.device, id.inode)),
        };
        Self {
            pid: pid.0,
            threads: state
                .threads
                .iter()
                .map(|(tid, name)| (tid.0, name.to_string()))
                .collect(),
            mappings: state.mappings.iter().map(mapping).collect(),
        }
    }
}

impl RecordedHistory {
    /// Returns the data and the bytes that follow it.
    pub(super) fn new(parts: Parts) -> (Self, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut cpus = Vec::new();
        for (cpu, trace, switches) in parts.cpus {
            cpus.push(RecordedCpu {
                cpu: cpu.0,
                trace: trace.len() as u64,
                switches: switches.len() as u64,
            });
            bytes.extend(trace);
            bytes.extend(switches);
        }
        let cost = |cost: CpuCost| RecordedCost {
            cpu: cost.cpu.0,
            bytes: cost.bytes,
            wrapped: cost.wrapped,
            crash_to_pause: cost.crash_to_pause,
            written_since_crash: cost.written_since_crash,
            paused_for: cost.paused_for,
            paused_by_kernel: cost.paused_by_kernel,
        };
        let recorded = Self {
            cpus,
            processes: parts.processes,
            filters: parts
                .filters
                .iter()
                .map(|filter| (filter.from.0, filter.to.0))
                .collect(),
            costs: parts.costs.into_iter().map(cost).collect(),
            notes: parts.notes,
            machine: RecordedMachine::of(parts.machine),
        };
        (recorded, bytes)
    }
}
