//! Writes a recorded history into a bundle.

use super::modules::{self, FindModule};
use super::record::{RecordedCost, RecordedHistory};
use super::written::{CpuCost, WrittenHistory};
use crate::error::Result;
use backtrail_bundle::manifest::{AddressFilter, CpuTrace, Process, Thread};
use backtrail_bundle::{BundlePath, Writer};
use backtrail_pt::{Avma, Cpu, Pid, Tid};

impl RecordedHistory {
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
                values: None,
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
