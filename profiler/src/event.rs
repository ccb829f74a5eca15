//! Events that samples are taken of.

use crate::{Error, Result};
use backtrail_perf::sampling::Counter;
use backtrail_perf::{Pmu, tracefs};
use backtrail_pt::{FileOffset, Pid, Tid};
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An event that samples are taken of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SampledEvent {
    /// Processor time.
    Cpu,
    /// Time in which threads wait.
    OffCpu,
    /// Cycles of the processor. Where the machine cannot count them, processor time.
    Cycles,
    /// Cycles, with the last branches that the program took (LBR).
    LastBranches,
    /// Instructions.
    Instructions,
    /// Cache misses.
    CacheMisses,
    /// Page faults.
    PageFaults,
    /// A tracepoint of the kernel.
    Tracepoint(Tracepoint),
    /// Executions of an instruction.
    Uprobe(Uprobe),
    /// The ends of waits, by the threads that end them. [`SampledEvent::OffCpu`] adds it where the
    /// kernel allows.
    Wakeups(WakeupTracepoint),
}

/// A tracepoint of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tracepoint {
    name: Arc<str>,
    id: u64,
}

impl Tracepoint {
    /// Finds a tracepoint by its group and name, such as `sched:sched_switch`.
    ///
    /// # Errors
    ///
    /// [`Error::NoEvent`] if the kernel has no such tracepoint, or the user may not read tracefs.
    pub fn find(name: &str) -> Result<Self> {
        let no_event = |reason: String| Error::NoEvent {
            event: format!("tracepoint:{name}"),
            reason,
        };
        let (group, point) = name
            .split_once(':')
            .ok_or_else(|| no_event("expected GROUP:NAME, such as sched:sched_switch".to_owned()))?;
        let id = tracefs::tracepoint_id(group, point).map_err(|error| no_event(error.to_string()))?;
        Ok(Self {
            name: name.into(),
            id,
        })
    }
}

/// An instruction of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Uprobe {
    name: Arc<str>,
    pmu: u32,
    path: Arc<CStr>,
    offset: FileOffset,
}

impl Uprobe {
    /// Returns a file that a process has mapped, by the name without its folder. The path is valid
    /// in this mount namespace.
    #[must_use]
    pub fn mapped_file(pid: Pid, name: &OsStr) -> Option<PathBuf> {
        let maps = backtrail_process::maps::maps(i32::try_from(pid.0).ok()?);
        let mut files = maps
            .iter()
            .filter(|map| map.is_file())
            .map(|map| Path::new(&map.path));
        let found = files.find(|file| file.file_name() == Some(name))?;
        let inside = found.strip_prefix("/").unwrap_or(found);
        Some(Path::new(&format!("/proc/{pid}/root")).join(inside))
    }

    /// Returns the probe of an instruction. `name` is its name in profiles.
    ///
    /// # Errors
    ///
    /// [`Error::NoEvent`] if the kernel has no such events.
    pub fn new(name: &str, file: &Path, offset: FileOffset) -> Result<Self> {
        let no_event = |reason: &str| Error::NoEvent {
            event: name.to_owned(),
            reason: reason.to_owned(),
        };
        let pmu = Pmu::read(Path::new("/sys"), "uprobe")?;
        let pmu = pmu.ok_or_else(|| no_event("the kernel has no uprobes (CONFIG_UPROBE_EVENTS)"))?;
        let path = CString::new(file.as_os_str().as_bytes());
        let path = path.map_err(|_| no_event("the path has a NUL byte"))?;
        Ok(Self {
            name: name.into(),
            pmu: pmu.kind,
            path: path.into(),
            offset,
        })
    }
}

/// The tracepoint at which the wait of a thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeupTracepoint {
    id: u64,
    /// The offsets in the payload of the woken thread, and of the flags of the processor's state.
    thread: usize,
    flags: usize,
}

/// The end of a wait, by the payload of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wakeup {
    /// The thread that waited.
    pub woken: Tid,
    /// Whether an interrupt ended the wait. The thread that was interrupted did not.
    pub by_interrupt: bool,
}

impl WakeupTracepoint {
    /// Finds `sched:sched_waking`. Source: `include/trace/events/sched.h`.
    pub(crate) fn find() -> Result<Self> {
        let (group, name) = ("sched", "sched_waking");
        Ok(Self {
            id: tracefs::tracepoint_id(group, name)?,
            thread: tracefs::field_offset(group, name, "pid", 4)?,
            flags: tracefs::field_offset(group, name, "common_flags", 1)?,
        })
    }

    pub(crate) fn parse(self, payload: &[u8]) -> Option<Wakeup> {
        /// `TRACE_FLAG_HARDIRQ`, `TRACE_FLAG_SOFTIRQ` and `TRACE_FLAG_NMI` of
        /// `include/linux/trace_events.h`.
        const INTERRUPT: u8 = 0x08 | 0x10 | 0x40;
        let thread = payload.get(self.thread..)?.first_chunk()?;
        Some(Wakeup {
            woken: Tid(u32::from_ne_bytes(*thread)),
            by_interrupt: payload.get(self.flags)? & INTERRUPT != 0,
        })
    }
}

impl SampledEvent {
    /// Returns the name in profiles.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Cpu => "cpu",
            Self::OffCpu => "off-cpu",
            Self::Cycles => "cycles",
            Self::LastBranches => "lbr",
            Self::Instructions => "instructions",
            Self::CacheMisses => "cache-misses",
            Self::PageFaults => "page-faults",
            Self::Tracepoint(tracepoint) => &tracepoint.name,
            Self::Uprobe(uprobe) => &uprobe.name,
            Self::Wakeups(_) => "wakeups",
        }
    }

    /// Returns the unit of weights.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Cpu | Self::OffCpu | Self::Wakeups(_) => "nanoseconds",
            _ => "count",
        }
    }

    pub(crate) fn counter(&self) -> Counter {
        match self {
            Self::Cpu => Counter::CpuClock,
            Self::OffCpu => Counter::ContextSwitches,
            Self::Cycles | Self::LastBranches => Counter::Cycles,
            Self::Instructions => Counter::Instructions,
            Self::CacheMisses => Counter::CacheMisses,
            Self::PageFaults => Counter::PageFaults,
            Self::Tracepoint(Tracepoint { id, .. }) => Counter::Tracepoint(*id),
            Self::Uprobe(uprobe) => Counter::Uprobe {
                pmu: uprobe.pmu,
                path: Arc::clone(&uprobe.path),
                offset: uprobe.offset.0,
            },
            Self::Wakeups(wakeups) => Counter::Tracepoint(wakeups.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakeups_are_parsed() {
        let tracepoint = WakeupTracepoint {
            id: 1,
            thread: 4,
            flags: 2,
        };
        let parse = |flags: u8| tracepoint.parse(&[9, 9, flags, 9, 0x21, 3, 0, 0]);
        let wakeup = |by_interrupt| Wakeup {
            woken: Tid(0x321),
            by_interrupt,
        };
        assert_eq!(parse(0x21), Some(wakeup(false)));
        assert_eq!(parse(0x10), Some(wakeup(true)));
        assert_eq!(tracepoint.parse(&[0; 7]), None);
    }

    #[test]
    fn unknown_tracepoints_are_refused() {
        for name in ["sched", "sched:none", "../x:y", ""] {
            let error = Tracepoint::find(name).unwrap_err();
            assert!(matches!(error, Error::NoEvent { .. }), "{error}");
        }
    }
}
