//! Heap history: which calls allocated and freed the blocks at an address.
//!
//! The recorder writes heap events into the trace ([`backtrail_bundle::heap`]). [`calls`] reads
//! them, and [`lives`] pairs the allocations and frees of one address. [`search`] answers about
//! addresses, [`summary`] about all blocks, and [`diagnosis`] explains crashes. No index is kept:
//! each question reads the events of all threads once or twice, and keeps only what it needs.

pub mod calls;
pub mod diagnosis;
pub mod lives;
mod loads;
pub mod place;
pub mod search;
pub mod summary;

use crate::error::{Error, Result};
use crate::session::{Session, Thread};
use backtrail_bundle::heap::VERSION;

/// Returns whether the trace has heap events that this version reads.
#[must_use]
pub fn has_events(session: &Session) -> bool {
    version(session) == Some(VERSION)
}

fn version(session: &Session) -> Option<u64> {
    session.bundle()?.manifest().meta.heap_events
}

/// Returns the threads of the process of `thread`, which share its heap. All their history must be
/// decoded.
///
/// # Errors
///
/// If the trace has no heap events, or some history is not decoded yet.
fn sharing<'a>(session: &'a Session, thread: &Thread) -> Result<Vec<&'a Thread>> {
    match version(session) {
        Some(VERSION) => {}
        Some(other) => {
            return Err(Error::Cannot(format!(
                "the heap events have format {other}, which this version does not read; use a newer Backtrail"
            )));
        }
        None => {
            return Err(Error::Cannot(
                "the trace has no heap events; `backtrail record --heap` records them".to_owned(),
            ));
        }
    }
    let pid = session.process(thread).map(|process| process.pid);
    let shares = |other: &&Thread| session.process(other).map(|process| process.pid) == pid;
    let threads: Vec<&Thread> = session.threads().iter().filter(shares).collect();
    threads.iter().try_for_each(|thread| thread.needs_beginning())?;
    Ok(threads)
}
