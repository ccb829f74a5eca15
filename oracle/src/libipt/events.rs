//! Converts libipt's events to engine-neutral ones.

use super::ffi::{RawEvent, RawEventKind};
use backtrail_decoder::{Event, Sink};
use backtrail_pt::Avma;

/// Pushes an event; `offset` is the read position in the trace.
pub(super) fn push(event: &RawEvent, offset: u64, sink: &mut dyn Sink) {
    // The time belongs to the event, and comes first.
    if let Some(stamp) = event.stamp {
        sink.event(Event::Time(stamp));
    }
    let event = match event.kind {
        RawEventKind::Enabled { at, status } => Event::Enabled { at: Avma(at), status },
        RawEventKind::Disabled { to } => Event::Disabled {
            from: None,
            to: to.map(Avma),
        },
        RawEventKind::AsyncDisabled { at, to } => Event::Disabled {
            from: Some(Avma(at)),
            to: to.map(Avma),
        },
        RawEventKind::AsyncBranch { from } => Event::Branched { from: Avma(from) },
        RawEventKind::Overflow => Event::Overflow { offset },
        RawEventKind::Ptwrite { value } => Event::Ptwrite { value },
        RawEventKind::Other => return,
    };
    sink.event(event);
}
