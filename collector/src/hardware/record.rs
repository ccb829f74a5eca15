//! A snapshot as plain data, which the daemon passes to a worker.
//!
//! The daemon has privileges and opens no file of a traced process. The worker opens and parses
//! such files without privileges.

use super::modules::{self, FindModule};
use super::snapshot::{CpuCost, TracedMachine, WrittenHistory};
use crate::error::Result;
use backtrail_bundle::manifest::{AddressFilter, CpuTrace, Process, Thread};
use backtrail_bundle::{BundlePath, Writer, module_file};
use backtrail_process::beneath::FileId;
use backtrail_pt::cpu::Vendor;
use backtrail_pt::{Avma, BuildId, Cpu, CpuModel, Pid, Tid, TimingParams, TscConversion};
use serde::{Deserialize, Serialize};
use std::fs::File;

/// A snapshot without its bytes. The bytes follow it: for each processor the trace, then the
/// switches.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedHistory {
    cpus: Vec<RecordedCpu>,
    /// The processes and their mappings.
    pub processes: Vec<RecordedProcess>,
    filters: Vec<(u64, u64)>,
    costs: Vec<RecordedCost>,
    notes: Vec<String>,
    machine: RecordedMachine,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedCpu {
    cpu: u32,
    /// Bytes of the processor's trace.
    trace: u64,
    /// Bytes of its switch records.
    switches: u64,
}

/// A process in a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedProcess {
    /// The process id.
    pub pid: u32,
    threads: Vec<(u32, String)>,
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
        let Some(told) = self.build_id() else { return true };
        module_file::build_id(file, &self.path).is_ok_and(|found| found == Some(told))
    }

    /// Returns the identity of the mapped file, if the kernel reported it.
    #[must_use]
    pub fn id(&self) -> Option<FileId> {
        self.id.map(|(device, inode)| FileId { device, inode })
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedCost {
    cpu: u32,
    bytes: usize,
    wrapped: bool,
    crash_to_pause: Option<u64>,
    written_since_crash: Option<usize>,
    paused_for: Option<u64>,
    paused_by_kernel: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct RecordedMachine {
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

    fn machine(self) -> TracedMachine {
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

    /// Writes traces, switches and the modules that `find` returns. `bytes` are the bytes that
    /// follow the data.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(self, bytes: &[u8], writer: &Writer, find: &mut FindModule<'_>) -> Result<WrittenHistory> {
        let mut notes = self.notes;
        let mut rest = bytes;
        let mut take = |size: u64| {
            let size = usize::try_from(size).unwrap_or(usize::MAX).min(rest.len());
            let (taken, after) = rest.split_at(size);
            rest = after;
            taken
        };
        let mut cpus = Vec::new();
        for cpu in self.cpus {
            let trace = BundlePath::new(&format!("traces/cpu-{}.pt", cpu.cpu))?;
            let switches = BundlePath::new(&format!("sideband/cpu-{}.switches", cpu.cpu))?;
            writer.add_bytes(&trace, take(cpu.trace))?;
            writer.add_bytes(&switches, take(cpu.switches))?;
            cpus.push(CpuTrace {
                cpu: Cpu(cpu.cpu),
                trace,
                switches,
            });
        }
        let mut processes = Vec::new();
        for process in self.processes {
            let pid = Pid(process.pid);
            let modules = modules::modules(writer, pid, &process.mappings, find, &mut notes)?;
            let threads = process.threads.into_iter().map(|(tid, name)| Thread {
                tid: Tid(tid),
                name: Some(name).filter(|name| !name.is_empty()),
                trace: None,
            });
            processes.push(Process {
                pid,
                threads: threads.collect(),
                modules,
                ..Process::default()
            });
        }
        let filter = |(from, to)| AddressFilter {
            from: Avma(from),
            to: Avma(to),
        };
        let cost = |cost: RecordedCost| CpuCost {
            cpu: Cpu(cost.cpu),
            bytes: cost.bytes,
            wrapped: cost.wrapped,
            crash_to_pause: cost.crash_to_pause,
            written_since_crash: cost.written_since_crash,
            paused_for: cost.paused_for,
            paused_by_kernel: cost.paused_by_kernel,
        };
        Ok(WrittenHistory {
            cpus,
            machine: self.machine.machine(),
            filters: self.filters.into_iter().map(filter).collect(),
            processes,
            costs: self.costs.into_iter().map(cost).collect(),
            notes,
        })
    }
}
