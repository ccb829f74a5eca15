//! Triggers on functions of user programs: on entry, or when a call takes too long.
//!
//! An eBPF program (`bpf/src/function.bpf.c`) is attached by a uprobe, a breakpoint in all
//! processes that map the file. Durations need another one on the function's returns. Each call
//! becomes one or two microseconds slower.

use super::bpf::take;
use super::reason::{error_reason, program_error};
use super::{FunctionLocation, ProbeError};
use aya::maps::{Array, MapData, RingBuf};
use aya::programs::UProbe;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeScope};
use aya::{Ebpf, EbpfLoader};
use backtrail_bpf::{FUNCTION, FunctionEvent};
use backtrail_pt::{Cpu, Pid, Tid};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// When a trigger fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// At each entry.
    Entered,
    /// At the return of each call that took longer. Nested calls of the same function count
    /// separately, to a depth of 16. A call that an exception or `longjmp` leaves is not reported.
    /// If the program switches stacks (coroutines), calls on a suspended stack may be lost.
    LongerThan(Duration),
}

/// A function call that fired a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionHit {
    /// The time by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at: u64,
    /// The processor.
    pub cpu: Cpu,
    /// The process, in the initial pid namespace.
    pub pid: Pid,
    /// The thread, in the initial pid namespace.
    pub tid: Tid,
    /// The duration of the call. `None`: it has just started.
    pub lasted: Option<Duration>,
}

/// An attached trigger. Dropping it detaches it. The field order detaches before it unmaps.
pub struct FunctionTrigger {
    _programs: Ebpf,
    ring: RingBuf<MapData>,
    lost: Array<MapData, u64>,
    condition: Condition,
}

impl FunctionTrigger {
    /// Attaches to a function of the file at `path`, in one process or in all that map it, now or
    /// later.
    ///
    /// # Errors
    /// When the file or the function does not exist, or the kernel refuses. CAP_BPF, CAP_PERFMON
    /// and `CONFIG_UPROBE_EVENTS` are needed.
    pub fn attach(
        path: &Path,
        location: &FunctionLocation,
        condition: Condition,
        pid: Option<Pid>,
    ) -> Result<Self, ProbeError> {
        attach(path, location, condition, pid).map_err(|reason| ProbeError::Function {
            path: path.to_owned(),
            location: location.clone(),
            reason,
        })
    }

    /// Returns descriptors of which one becomes readable (`poll`, `epoll`) when there is an event.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.ring.as_fd()]
    }

    /// Takes all events. Never blocks.
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

    /// Returns how many calls were lost because the ring was full, the recursion too deep, or the
    /// threads too many.
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
) -> Result<FunctionTrigger, String> {
    // A bare name would be searched among libraries.
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let (names, longer_than): (&[&str], u64) = match condition {
        Condition::Entered => (&["entered"], 0),
        // The return probe first. A call that starts before it is attached would never end.
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
