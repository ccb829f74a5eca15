//! `PERF_RECORD_ID_INDEX`: the processor and the thread that each event id was opened for.
//!
//! Source: `tools/lib/perf/include/perf/event.h` (`struct id_index_entry`).

use crate::Error;
use crate::cursor::Cursor;
use crate::record::RawRecord;
use backtrail_pt::Tid;

/// `PERF_RECORD_ID_INDEX`.
pub(crate) const ID_INDEX: u32 = 69;
/// The size of an entry: id, index, processor, thread.
const ENTRY_SIZE: usize = 32;

/// An entry of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdEntry {
    /// The id of the event.
    pub id: u64,
    /// The thread that the event observes. `None`: all threads of a processor.
    pub tid: Option<Tid>,
}

/// Parses the entries that the record holds.
pub(crate) fn parse(raw: &RawRecord<'_>) -> Result<Vec<IdEntry>, Error> {
    const WHAT: &str = "PERF_RECORD_ID_INDEX";
    let mut cursor = Cursor::new(raw.body, WHAT, raw.offset);
    let count = usize::try_from(cursor.u64()?).unwrap_or(usize::MAX);
    let entries = cursor.rest().chunks_exact(ENTRY_SIZE);
    if entries.len() < count {
        return Err(cursor.invalid(format!("it is too short for {count} entries")));
    }
    let entry = |bytes: &[u8]| -> Result<IdEntry, Error> {
        let mut cursor = Cursor::new(bytes, WHAT, raw.offset);
        let (id, _index, _cpu, tid) = (cursor.u64()?, cursor.u64()?, cursor.u64()?, cursor.u64()?);
        Ok(IdEntry {
            id,
            tid: u32::try_from(tid).ok().map(Tid),
        })
    };
    entries.take(count).map(entry).collect()
}
