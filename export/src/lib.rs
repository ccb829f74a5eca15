//! What a trace holds, in the formats of other tools: timelines, and profiles.
//!
//! A [`Timeline`] puts the calls of the chosen threads on one clock and tells them one after the other as [`Event`]s.
//! Each format is one file that writes what it hears; the formats without a time axis hear it through
//! [`stacks`], which adds up what each stack cost.
//!
//! A gap, an interrupt and the crash are told where the format has a place for them. Times are guesses between two time
//! stamps ([`History::interpolated_departure`](backtrail_decoder::History::interpolated_departure)); what is exact is the order of the events, and the
//! position that each call has in the trace.
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
