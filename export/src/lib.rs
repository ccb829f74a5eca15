//! Exports the calls of a trace to other tools: timelines and profiles.
//!
//! A [`Timeline`] puts the calls of the selected threads on one clock, and yields them in order as
//! [`Event`]s. Each format has one file that writes these events. Formats without a time axis use
//! [`stacks`], which adds up the cost of each stack.
//!
//! Gaps, interrupts and the crash are exported if the format has a place for them. The order of
//! events and the trace position of each call are exact. Times between two timestamps are
//! interpolated
//! ([`History::interpolated_departure`](backtrail_decoder::History::interpolated_departure)).
#![forbid(unsafe_code)]

mod chrome;
mod error;
#[cfg(feature = "fdo")]
pub mod fdo;
mod firefox;
mod folded;
mod format;
mod functions;
mod perfetto;
mod pprof;
mod scale;
mod speedscope;
mod stacks;
mod timeline;

pub use error::{Error, Result};
pub use format::Format;
pub use functions::{Function, FunctionId, Functions};
pub use scale::Unit;
pub use timeline::{Clock, Event, EventKind, Options, Timeline, Track};
