//! Heap history: which calls allocated and freed the blocks at an address.
//!
//! The recorder writes heap events into the trace ([`backtrail_bundle::heap`]). [`calls`] reads
//! them. The collector notes calls by their times, which [`records`] reads. [`sources`] offers
//! both, and [`lives`] pairs the allocations and frees of one address. [`search`] answers about
//! addresses, [`summary`] about all blocks, and [`diagnosis`] explains crashes. No index is kept:
//! each question reads the events of all threads once or twice, and keeps only what it needs.
//! [`recorded_calls`] matches the collector's records with the calls of a thread.

pub mod calls;
pub mod diagnosis;
pub mod lives;
mod loads;
mod matching;
pub mod place;
pub mod recorded_calls;
pub mod records;
pub mod search;
mod sources;
pub mod summary;

use crate::session::Session;
use backtrail_bundle::heap::{RECORDS, VERSION};

/// Returns whether the trace has heap events that this version reads.
#[must_use]
pub fn has_events(session: &Session) -> bool {
    version(session) == Some(VERSION)
}

fn version(session: &Session) -> Option<u64> {
    session.bundle()?.manifest().meta.heap_events
}

/// Returns whether the bundle has calls that the collector noted, by their times.
#[must_use]
pub fn has_records(session: &Session) -> bool {
    version(session) == Some(RECORDS)
}
