//! Exports of a trace in the formats of other tools: timelines and profiles.
//!
//! A [`Timeline`] puts the calls of the chosen threads on one clock and emits them in order as
//! [`Event`]s. Each format is one file that writes these events. The formats without a time axis
//! use [`stacks`], which adds up the cost of each stack.
//!
//! Gaps, interrupts and the crash are written where the format supports them. Times between two
//! time stamps are interpolated (`History::interpolated_departure`). The order of events and the
//! position of each call in the trace are exact.
#![forbid(unsafe_code)]

mod chrome;
mod error;
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
pub use timeline::{Clock, Event, Kind, Options, Timeline, Track};
