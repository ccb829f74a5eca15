//! libipt's events in the engine-neutral form.

use super::ffi::{Kind, RawEvent};
use crate::{Event, Sink};
use backtrail_pt::Avma;

/// Pushes what an event means; `offset` is how far the trace is read.
pub(super) fn push(event: &RawEvent, offset: u64, sink: &mut dyn Sink) {
    // A time with an event is that of the event: it comes first.
    if let Some(stamp) = event.stamp {
        sink.event(Event::Time(stamp));
    }
    let event = match event.kind {
        Kind::Enabled { at, status } => Event::Enabled { at: Avma(at), status },
        Kind::Disabled { to } => Event::Disabled {
            from: None,
            to: to.map(Avma),
        },
        Kind::AsyncDisabled { at, to } => Event::Disabled {
            from: Some(Avma(at)),
            to: to.map(Avma),
        },
        Kind::AsyncBranch { from } => Event::Branched { from: Avma(from) },
        Kind::Overflow => Event::Overflow { offset },
        Kind::Ptwrite { value } => Event::Ptwrite { value },
        Kind::Other => return,
    };
    sink.event(event);
}
