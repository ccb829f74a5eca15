//! The trace of one processor: its events, its AUX area, and the events that pause it in the
//! kernel.

use super::clock;
use super::freezable::FreezableTrace;
use super::options::{HardwareOptions, Scope, filter_text};
use crate::{Error, Result};
use backtrail_perf::attr::{Attr, AuxAction};
use backtrail_perf::event::{Refusal, Target};
use backtrail_perf::intel_pt::{IntelPt, PtOptions, PtSetting};
use backtrail_perf::ring::{AuxArea, AuxCopy, Ring};
use backtrail_perf::{Error as PerfError, Event};
use backtrail_process::status;
use backtrail_pt::{Cpu, Tid};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Pages of the ring for a trace event's own records. There are few, unless single processes are
/// traced.
const RECORD_PAGES: usize = 8;
/// Time until the resume timer fires, in nanoseconds, and the maximum number of such periods to
/// wait.
const RESUME_AFTER: u64 = 100_000;
const RESUME_PATIENCE: u32 = 100;

/// The common settings of all processors' traces.
#[derive(Debug)]
pub(super) struct TraceSetup {
    pub(super) pt: IntelPt,
    pub(super) setting: PtSetting,
    pub(super) filter: Option<String>,
    attr: Attr,
    scope: Scope,
    cgroup: Option<File>,
    ring: usize,
    /// The id of the tracepoint that pauses traces, or the reason why there is none.
    pub(super) pause: std::result::Result<u64, String>,
}

impl TraceSetup {
    /// Checks the options against the processor's capabilities.
    pub(super) fn new(options: &HardwareOptions) -> Result<Self> {
        let pt = IntelPt::read(&options.sysfs)?.ok_or_else(|| Error::NoPt {
            why: format!(
                "{} has no PMU intel_pt (the processor does not support it, the firmware or hypervisor disables it, or the kernel lacks CONFIG_PERF_EVENTS_INTEL_PT)",
                options.sysfs.display()
            ),
        })?;
        if !options.ring.is_power_of_two() || options.ring < 4096 {
            return Err(Error::Unable(format!(
                "the ring size of {} bytes is not a power of two of at least 4096; use for example 1048576 or 4194304",
                options.ring
            )));
        }
        let setting = pt.setting(&PtOptions {
            psb_period: options.psb_period,
            mtc_period: options.mtc_period,
            cyc_threshold: options.cyc_threshold,
            compress_returns: options.compress_returns,
        })?;
        let mut attr = Attr::intel_pt(&pt, &setting, options.kernel);
        let cgroup = match &options.scope {
            Scope::System => None,
            Scope::Cgroup(path) => {
                Some(File::open(path).map_err(Error::file("open the control group", path))?)
            }
            Scope::Processes(pids) if pids.is_empty() => {
                return Err(Error::Unable(
                    "the scope is processes, but none is named; name one, or trace the system".to_owned(),
                ));
            }
            Scope::Processes(_) => {
                attr = attr.inherited();
                None
            }
        };
        Ok(Self {
            filter: filter_text(options, pt.pmu.address_filters)?,
            pause: match &options.scope {
                _ if !options.pause_in_kernel => Err("it is disabled (`pause_in_kernel`)".to_owned()),
                Scope::Processes(_) => {
                    Err("it works only for whole processors, not for single processes".to_owned())
                }
                _ => tracepoint(&options.sysfs, "signal/signal_deliver"),
            },
            pt,
            setting,
            attr,
            scope: options.scope.clone(),
            cgroup,
            ring: options.ring,
        })
    }

    fn targets(&self) -> Vec<Target<'_>> {
        match (&self.scope, &self.cgroup) {
            (Scope::Processes(pids), _) => pids
                .iter()
                .flat_map(|pid| status::threads(pid.0 as i32))
                .map(|tid| Target::Thread(Tid(tid as u32)))
                .collect(),
            (Scope::Cgroup(_), Some(directory)) => vec![Target::Cgroup(directory.as_fd())],
            _ => vec![Target::Everyone],
        }
    }
}

/// Returns the id of a tracepoint.
fn tracepoint(sysfs: &Path, name: &str) -> std::result::Result<u64, String> {
    let mounts = ["kernel/tracing", "kernel/debug/tracing"];
    let texts =
        mounts.map(|mount| fs::read_to_string(sysfs.join(mount).join("events").join(name).join("id")));
    texts
        .into_iter()
        .flatten()
        .find_map(|text| text.trim().parse().ok())
        .ok_or_else(|| format!("tracefs has no tracepoint {name}; mount it at /sys/kernel/tracing"))
}

/// The trace of a processor.
#[derive(Debug)]
pub(super) struct Trace {
    cpu: Cpu,
    /// One event, or one for each thread. All write to the area of the first.
    events: Vec<Event>,
    area: AuxArea,
    pauser: Option<Pauser>,
    /// When the processor went offline, by `CLOCK_MONOTONIC`. 0: it is online.
    offline_at: AtomicU64,
}

impl Trace {
    /// Opens and starts the trace of a processor. Returns it with the ring of its records.
    pub(super) fn open(setup: &TraceSetup, cpu: Cpu) -> Result<(Self, Ring)> {
        let what = format!("Intel PT on processor {cpu}");
        let mut events: Vec<Event> = Vec::new();
        let mut refused = None;
        for target in setup.targets() {
            match Event::open(&what, &setup.attr, target, Some(cpu), None) {
                Ok(event) => events.push(event),
                Err(
                    error @ PerfError::Open {
                        refusal: Refusal::NoThread,
                        ..
                    },
                ) => refused = Some(error),
                Err(error) => return Err(error.into()),
            }
        }
        let Some((first, others)) = events.split_first() else {
            return Err(refused.map_or_else(
                || Error::Unable("the processes to trace have ended; name others".to_owned()),
                Error::from,
            ));
        };
        let ring = Ring::map(first, RECORD_PAGES)?;
        let area = ring.map_aux(first, setup.ring)?;
        for event in others {
            event.set_output(first)?;
        }
        if let Some(filter) = &setup.filter {
            for event in &events {
                event.set_filter(filter)?;
            }
        }
        let target = setup.targets().into_iter().next().unwrap_or(Target::Everyone);
        let pauser = setup
            .pause
            .as_ref()
            .ok()
            .and_then(|id| Pauser::open(*id, target, cpu, first).ok());
        let trace = Self {
            cpu,
            events,
            area,
            pauser,
            offline_at: AtomicU64::new(0),
        };
        trace.events.iter().try_for_each(Event::enable)?;
        if let Some(pauser) = &trace.pauser {
            pauser.pause.enable()?;
        }
        Ok((trace, ring))
    }
}

impl FreezableTrace for Trace {
    fn cpu(&self) -> Cpu {
        self.cpu
    }

    fn size(&self) -> usize {
        self.area.size()
    }

    fn pauses_in_kernel(&self) -> bool {
        self.pauser.is_some()
    }

    fn mark_offline(&self) {
        self.offline_at.store(clock::monotonic(), Ordering::Release);
    }

    fn offline_since(&self) -> Option<u64> {
        Some(self.offline_at.load(Ordering::Acquire)).filter(|offline_at| *offline_at != 0)
    }

    fn pause(&self) -> bool {
        if self.offline_since().is_some() {
            return false;
        }
        // Disables all events, even if one fails.
        let refused = self.events.iter().filter(|event| event.disable().is_err());
        refused.count() == 0
    }

    fn paused_by_kernel(&self) -> bool {
        self.pauser.as_ref().is_some_and(Pauser::fired)
    }

    fn pause_is_stale(&self) -> bool {
        self.pauser.as_ref().is_some_and(Pauser::is_stale)
    }

    fn copy(&self, buffer: &mut [u8]) -> std::result::Result<AuxCopy, PerfError> {
        self.area.copy(buffer)
    }

    fn resume(&self, paused_by_kernel: bool) -> bool {
        let refused = self.events.iter().filter(|event| event.enable().is_err());
        let started = refused.count() == 0;
        match &self.pauser {
            Some(pauser) if paused_by_kernel => pauser.resume() && started,
            _ => started,
        }
    }
}

/// The events that pause a processor's trace in the kernel at a fatal signal, and resume it later
/// (Linux 6.13).
///
/// Only an event of the trace's group can resume it. Enabling the trace again leaves it paused
/// (`hw.aux_paused`).
#[derive(Debug)]
struct Pauser {
    pause: Event,
    resume: Event,
    /// The number of pauses that freezes have handled.
    seen: AtomicU64,
    /// The number of pauses at the last check for unhandled ones.
    checked: AtomicU64,
}

impl Pauser {
    fn open(tracepoint: u64, target: Target<'_>, cpu: Cpu, leader: &Event) -> Result<Self> {
        let pause = Attr::tracepoint(tracepoint, Some(AuxAction::Pause));
        let resume = Attr::timer(RESUME_AFTER, AuxAction::Resume);
        let pause = Event::open("the pause at a crash", &pause, target, Some(cpu), Some(leader))?;
        pause.set_filter(&fatal())?;
        let resume = Event::open("the end of the pause", &resume, target, Some(cpu), Some(leader))?;
        Ok(Self {
            pause,
            resume,
            seen: AtomicU64::new(0),
            checked: AtomicU64::new(0),
        })
    }

    fn fired(&self) -> bool {
        let count = self.pause.count().unwrap_or(0);
        self.seen.swap(count, Ordering::AcqRel) != count
    }

    /// Returns whether a pause existed at the last call and no freeze has handled it since.
    fn is_stale(&self) -> bool {
        let count = self.pause.count().unwrap_or(0);
        let before = self.checked.swap(count, Ordering::AcqRel);
        before == count && self.fired()
    }

    /// Lets the timer fire once.
    fn resume(&self) -> bool {
        let before = self.resume.count().unwrap_or(0);
        if self.resume.enable().is_err() {
            return false;
        }
        let fired = (0..RESUME_PATIENCE).any(|_| {
            thread::sleep(Duration::from_nanos(RESUME_AFTER));
            self.resume
                .count()
                .is_ok_and(|now| now.saturating_sub(before) > 2 * RESUME_AFTER)
        });
        self.resume.disable().is_ok() && fired
    }
}

/// Returns a filter for `signal:signal_deliver`: the default action of a signal that dumps core.
fn fatal() -> String {
    let signals = [
        libc::SIGQUIT,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSEGV,
        libc::SIGXCPU,
        libc::SIGXFSZ,
        libc::SIGSYS,
    ];
    let signals: Vec<String> = signals.iter().map(|signal| format!("sig == {signal}")).collect();
    format!("sa_handler == 0 && ({})", signals.join(" || "))
}
