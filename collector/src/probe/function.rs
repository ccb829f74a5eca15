//! Triggers on functions of user space: that one is entered, or that a call of it takes too long.
//!
//! An eBPF program (`bpf/src/function.bpf.c`) on a uprobe, which is a breakpoint in all processes that map the file, and for
//! durations another on the function's returns. A call costs the program about a microsecond or two more.

use super::bpf::take;
use super::reason::{error_reason, program_error};
use super::{Error, Result};
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};
use aya::{Ebpf, EbpfLoader};
use backtrail_bpf::{FUNCTION, FunctionEvent};
use backtrail_pt::{Cpu, FileOffset, Pid, Tid};
use std::fmt;
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Where a function begins in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionLocation {
    /// By its name in the file's symbol tables, mangled as it is there.
    Symbol(String),
    /// The offset in the file of its first instruction.
    Offset(FileOffset),
}

impl fmt::Display for FunctionLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(name) => write!(f, "the function {name}"),
            Self::Offset(offset) => write!(f, "the offset {:#x}", offset.0),
        }
    }
}

/// What is told of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Each time that it is entered.
    Entered,
    /// Each call that took longer, at its return. Calls within calls of the same function count for themselves, to a depth of 16;
    /// a call that is left by an exception or `longjmp` is not told. On stacks that a program switches itself (coroutines), the
    /// open calls of one may be forgotten when another is running.
    LongerThan(Duration),
}

/// A function for which the condition was met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionHit {
    /// When, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The processor.
    pub cpu: Cpu,
    /// The process, in the first pid namespace.
    pub pid: Pid,
    /// The thread, in the first pid namespace.
    pub tid: Tid,
    /// How long the call took; `None`: it has just begun.
    pub lasted: Option<Duration>,
}

/// An attached trigger; dropping it detaches. Fields are dropped in order: detached first, unmapped then.
pub struct FunctionTrigger {
    _programs: Ebpf,
    ring: RingBuf<MapData>,
    lost: Array<MapData, u64>,
    condition: Condition,
}

impl FunctionTrigger {
    /// Attaches to a function of the file at `path`, in one process or in all that map it, now or later.
    ///
    /// # Errors
    /// When the file or the function is not there, or the kernel refuses (CAP_BPF and CAP_PERFMON are needed, and
    /// `CONFIG_UPROBE_EVENTS`).
    pub fn attach(
        path: &Path,
        location: &FunctionLocation,
        condition: Condition,
        pid: Option<Pid>,
    ) -> Result<Self> {
        attach(path, location, condition, pid).map_err(|reason| Error::Function {
            path: path.to_owned(),
            location: location.clone(),
            reason,
        })
    }

    /// Descriptors of which one can be read (`poll`, `epoll`) when an event waits.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ring.as_fd()]
    }

    /// Takes all events that wait. Never blocks.
    pub fn drain(&mut self, each: &mut dyn FnMut(FunctionHit)) {
        while let Some(record) = self.ring.next() {
            let event = FunctionEvent::parse(&record);
            drop(record);
            let Some(event) = event else { continue };
            let lasted = Duration::from_nanos(event.lasted);
            each(FunctionHit {
                at: event.at,
                cpu: Cpu(event.cpu),
                pid: Pid(event.pid),
                tid: Tid(event.tid),
                lasted: (self.condition != Condition::Entered).then_some(lasted),
            });
        }
    }

    /// How many calls were not told or not measured, because the ring was full, the recursion too deep, or the threads too many.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get(&0, 0).unwrap_or(0)
    }
}

fn attach(
    path: &Path,
    location: &FunctionLocation,
    condition: Condition,
    pid: Option<Pid>,
) -> std::result::Result<FunctionTrigger, String> {
    // A bare name would be looked for among libraries.
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let (names, longer_than): (&[&str], u64) = match condition {
        Condition::Entered => (&["entered"], 0),
        // Returns first: a call that begins before they are watched would never end.
        Condition::LongerThan(bound) => (
            &["ended", "began"],
            u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX),
        ),
    };
    let only = pid.map_or(0, |pid| pid.0);
    let scope = match pid {
        Some(pid) => UProbeScope::OneProcess(NonZeroU32::new(pid.0).ok_or("there is no process 0")?),
        None => UProbeScope::AllProcesses,
    };
    let mut programs = EbpfLoader::new()
        .override_global("longer_than", &longer_than, true)
        .override_global("only", &only, true)
        .load(FUNCTION)
        .map_err(|error| error_reason(&error))?;
    let ring = RingBuf::try_from(take(&mut programs, "functions")?).map_err(|error| error_reason(&error))?;
    let lost = Array::try_from(take(&mut programs, "lost")?).map_err(|error| error_reason(&error))?;
    for name in names {
        let program = programs
            .program_mut(name)
            .ok_or_else(|| format!("the object of the trigger lacks the program {name}"))?;
        let location = match location {
            FunctionLocation::Symbol(name) => UProbeAttachLocation::Symbol(name),
            FunctionLocation::Offset(offset) => UProbeAttachLocation::AbsoluteOffset(offset.0),
        };
        <&mut UProbe>::try_from(program)
            .and_then(|program| {
                program.load()?;
                program.attach(location, &path, scope)
            })
            .map_err(|error| program_error(&error))?;
    }
    Ok(FunctionTrigger {
        _programs: programs,
        ring,
        lost,
        condition,
    })
}
