//! The calls of allocator functions of a session: in the trace, or noted by the collector.

use super::records::ProcessRecords;
use super::{has_events, has_records, version};
use crate::error::{Error, Result};
use crate::session::{Session, Thread};

/// The calls of allocator functions of a process.
pub(super) enum HeapCalls<'a> {
    /// In the histories of its threads.
    Trace(Vec<&'a Thread>),
    /// Noted by the collector.
    Records(ProcessRecords<'a>),
}

impl<'a> HeapCalls<'a> {
    /// Returns the calls of the process of `thread`. All history of its threads must be decoded.
    ///
    /// # Errors
    ///
    /// If the bundle has no heap events of the process, or some history is not decoded yet.
    pub fn of(session: &'a Session, thread: &Thread) -> Result<Self> {
        let pid = session.process(thread).map(|process| process.pid);
        if has_records(session) {
            let records = ProcessRecords::of(session)?;
            let records = records.filter(|records| Some(records.records.interval.pid) == pid);
            return records.map(Self::Records).ok_or_else(|| {
                Error::Cannot("the collector noted the heap of another process only".to_owned())
            });
        }
        if !has_events(session) {
            return Err(Error::Cannot(match version(session) {
                Some(other) => format!(
                    "the heap events have format {other}, which this version does not read; use a newer Backtrail"
                ),
                None => {
                    "the trace has no heap events; `backtrail record --heap` records them, and `[heap]` of the collector's configuration"
                        .to_owned()
                }
            }));
        }
        let shares = |other: &&Thread| session.process(other).map(|process| process.pid) == pid;
        let threads: Vec<&Thread> = session.threads().iter().filter(shares).collect();
        threads.iter().try_for_each(|thread| thread.needs_beginning())?;
        Ok(Self::Trace(threads))
    }
}
