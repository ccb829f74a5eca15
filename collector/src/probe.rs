//! The crash probe: one event for each process that a signal kills, within a fraction of a
//! millisecond.
//!
//! The kernel offers several attach points ([`AttachKind`]). [`Probe::attach`] uses the best that
//! this kernel allows, and records why the others failed. [`try_kinds`] tries all of them, for
//! `doctor`. All but the last are eBPF programs of one object (`bpf/src/crash.bpf.c`). The last is
//! a plain perf event.

mod bpf;
mod error;
mod event;
mod function;
mod heap;
mod kind;
mod location;
mod options;
mod perf;
mod perf_sample;
mod reason;
mod ring;
mod sample;
mod signals;
mod tracefs;

pub use error::ProbeError;
pub(crate) use event::BUFFER;
pub use event::RawEvent;
pub use function::{Condition, FunctionHit, FunctionTrigger};
pub use heap::{HeapAttachment, HeapBreakpoints, HeapProbe, LostCalls, ProbedFunction};
pub use kind::{AttachKind, UnknownKind};
pub use location::FunctionLocation;
pub use options::{MAX_STACK, ProbeOptions};
pub use sample::{CrashSample, Frame, SiginfoDetail};
pub use signals::SignalSet;

use backtrail_pt::Pid;
use event::EventSource;
use std::os::fd::BorrowedFd;

/// An attached probe. Dropping it detaches it.
pub struct Probe {
    kind: AttachKind,
    refused: Vec<(AttachKind, String)>,
    source: Box<dyn EventSource>,
}

impl Probe {
    /// Attaches with the first kind that works.
    ///
    /// # Errors
    /// When no kind works, with the reason for each.
    pub fn attach(options: &ProbeOptions) -> Result<Self, ProbeError> {
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
        Err(ProbeError::Refused(refused))
    }

    /// Returns the kind of attachment.
    #[must_use]
    pub fn kind(&self) -> AttachKind {
        self.kind
    }

    /// Returns the kinds that failed before, each with its reason.
    #[must_use]
    pub fn refused(&self) -> &[(AttachKind, String)] {
        &self.refused
    }

    /// Returns descriptors of which one becomes readable (`poll`, `epoll`) when there is an event.
    #[must_use]
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.source.descriptors()
    }

    /// Takes the next event. `false`: there is none. Never blocks, and allocates only when an event
    /// is larger than all before.
    pub fn next(&mut self, event: &mut RawEvent) -> bool {
        self.source.next(event)
    }

    /// Takes and parses all events. Never blocks.
    pub fn drain(&mut self, each: &mut dyn FnMut(CrashSample)) {
        let mut event = RawEvent::default();
        while self.next(&mut event) {
            event.parse().into_iter().for_each(&mut *each);
        }
    }

    /// Returns how many crashes were lost since the attachment because the ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.source.lost()
    }
}

/// Attaches and detaches with each kind. Returns which kinds work, and why the others fail.
#[must_use]
pub fn try_kinds() -> Vec<(AttachKind, Result<(), String>)> {
    let loader = bpf::Loader::new();
    let options = ProbeOptions {
        ring: 1 << 16,
        // No process has this id, so real crashes are not affected.
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
) -> Result<Box<dyn EventSource>, String> {
    Ok(match kind {
        AttachKind::PerfTracepoint => Box::new(perf::PerfSource::attach(options)?),
        kind => Box::new(loader.attach(kind, options)?),
    })
}
