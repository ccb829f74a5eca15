//! Exports the calls of a trace to other tools: timelines and profiles.
//!
//! A [`Timeline`] puts the calls of the selected threads on one clock, and yields them in order as
//! [`Event`]s. Each timeline format has one file that writes these events. A [`CallProfile`] adds
//! up the cost of each stack, for the formats and views of profiles.
//!
//! Gaps, interrupts and the crash are exported if the format has a place for them. The order of
//! events and the trace position of each call are exact. Times between two timestamps are
//! interpolated
//! ([`History::interpolated_departure`](backtrail_decoder::History::interpolated_departure)).
#![forbid(unsafe_code)]

mod call_profile;
mod call_times;
mod chrome;
mod error;
mod estimate;
pub mod fdo;
mod firefox;
mod format;
mod functions;
mod perfetto;
mod scale;
mod speedscope;
mod timeline;

pub use call_profile::CallProfile;
pub use call_times::{CallTimes, FunctionCalls};
pub use error::{Error, Result};
pub use estimate::Estimate;
pub use format::Format;
pub use functions::{Function, FunctionId, FunctionKind, Functions};
pub use scale::Unit;
pub use timeline::{Clock, EnteredCall, Event, EventKind, Options, Timeline, Track};
