//! The crash probe: one event for each process that a signal kills, told within a fraction of a millisecond.
//!
//! There are several ways of hearing of a crash from the kernel ([`AttachKind`]). [`Probe::attach`] takes the best
//! that this kernel allows and keeps why the others were refused; [`try_kinds`] asks all of them, for `doctor`. All but
//! the last are eBPF programs of one object (`bpf/src/crash.bpf.c`); the last is a plain perf event.

mod bpf;
mod error;
mod event;
mod function;
mod kind;
mod perf;
mod reason;
mod ring;
mod sample;
mod signals;
mod tracefs;

pub use error::{Error, Result};
pub(crate) use event::BUFFER;
pub use event::RawEvent;
pub use function::{Condition, FunctionHit, FunctionLocation, FunctionTrigger};
pub use kind::AttachKind;
pub use sample::{CrashSample, Frame, SiginfoDetail};
pub use signals::SignalSet;

use backtrail_pt::Pid;
use std::os::fd::BorrowedFd;

/// The most bytes of a stack that an event holds.
pub const MAX_STACK: usize = backtrail_bpf::STACK_CHUNK * backtrail_bpf::MAX_STACK_CHUNKS;

/// What is wanted of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// The signals whose deaths are told.
    pub signals: SignalSet,
    /// How many bytes of the stack are read, from the stack pointer up; at most [`MAX_STACK`].
    pub stack: usize,
    /// Bytes of the ring; made a power of two that is no less, and at least room for a few events.
    pub ring: u32,
    /// The one kind to try; `None`: all, the best first.
    pub attach: Option<AttachKind>,
    /// The one process to look at; `None`: all.
    pub only: Option<Pid>,
    /// Processes to leave alone, at most 64.
    pub excluded: Vec<Pid>,
}

impl Default for ProbeOptions {
    fn default() -> Self {
        Self {
            signals: SignalSet::default(),
            stack: MAX_STACK,
            ring: 1 << 20,
            attach: None,
            only: None,
            excluded: Vec::new(),
        }
    }
}

/// An attached probe; dropping it detaches.
pub struct Probe {
    kind: AttachKind,
    refused: Vec<(AttachKind, String)>,
    source: Box<dyn EventSource>,
}

/// What hears of crashes.
trait EventSource: Send {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    fn next(&mut self, event: &mut RawEvent) -> bool;
    fn lost(&self) -> u64;
}

impl Probe {
    /// Attaches by the first kind that works.
    ///
    /// # Errors
    /// When none does, with the reason of each.
    pub fn attach(options: &ProbeOptions) -> Result<Self> {
        let kinds = match &options.attach {
            Some(kind) => std::slice::from_ref(kind),
            None => &AttachKind::ALL,
        };
        let loader = bpf::Loader::new();
        let mut refused = Vec::new();
        for &kind in kinds {
            match attach(&loader, kind, options) {
                Ok(source) => {
                    return Ok(Self {
                        kind,
                        refused,
                        source,
                    });
                }
                Err(reason) => {
                    tracing::debug!(%kind, reason, "the kernel refuses to attach the crash probe");
                    refused.push((kind, reason));
                }
            }
        }
        Err(Error::Refused(refused))
    }

    /// How it is attached.
    #[must_use]
    pub fn kind(&self) -> AttachKind {
        self.kind
    }

    /// The kinds that were tried before and did not work, each with its reason.
    #[must_use]
    pub fn refused(&self) -> &[(AttachKind, String)] {
        &self.refused
    }

    /// Descriptors of which one can be read (`poll`, `epoll`) when an event waits.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.source.descriptors()
    }

    /// Takes the next event that waits; `false`: none does. Never blocks, and allocates nothing but where an event is larger
    /// than any before.
    pub fn next(&mut self, event: &mut RawEvent) -> bool {
        self.source.next(event)
    }

    /// Takes all events that wait, and takes them apart. Never blocks.
    pub fn drain(&mut self, each: &mut dyn FnMut(CrashSample)) {
        let mut event = RawEvent::default();
        while self.next(&mut event) {
            event.parse().into_iter().for_each(&mut *each);
        }
    }

    /// How many crashes were not told since the probe was attached, because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.source.lost()
    }
}

/// Attaches in each way and lets go: what works here, and why the rest does not.
#[must_use]
pub fn try_kinds() -> Vec<(AttachKind, std::result::Result<(), String>)> {
    let loader = bpf::Loader::new();
    let options = ProbeOptions {
        ring: 1 << 16,
        // No process has this id: what crashes meanwhile is not touched.
        only: Some(Pid(u32::MAX)),
        ..ProbeOptions::default()
    };
    let attempt = |kind| (kind, attach(&loader, kind, &options).map(drop));
    AttachKind::ALL.into_iter().map(attempt).collect()
}

fn attach(
    loader: &bpf::Loader,
    kind: AttachKind,
    options: &ProbeOptions,
) -> std::result::Result<Box<dyn EventSource>, String> {
    Ok(match kind {
        AttachKind::PerfTracepoint => Box::new(perf::PerfSource::attach(options)?),
        kind => Box::new(loader.attach(kind, options)?),
    })
}
