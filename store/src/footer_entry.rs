//! The description of a segment in the footer of its samples, for a catalog that was lost.

use crate::segment::{FileSummary, SegmentEntry, SegmentId};
use crate::table_writer::not_encoded;
use crate::{Error, Result};
use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};

/// The key of the description in the footer.
const KEY: &str = "backtrail.segment";
/// The maximum length of a description.
const MAX_LENGTH: usize = 16 << 20;

/// A description. The summary of the samples' own file is that of an empty one.
#[derive(Serialize)]
struct Written<'a> {
    entry: &'a SegmentEntry,
    replaced: &'a [SegmentId],
}

/// A description that was read.
#[derive(Deserialize)]
pub(crate) struct Description {
    /// The segment. The summary of its samples is not known.
    pub(crate) entry: SegmentEntry,
    /// The segments that it replaced.
    pub(crate) replaced: Vec<SegmentId>,
}

/// Returns the entry of the footer for a segment.
pub(crate) fn write(entry: &SegmentEntry, replaced: &[SegmentId]) -> Result<KeyValue> {
    debug_assert_eq!(entry.samples, FileSummary::default());
    let text = serde_json::to_string(&Written { entry, replaced }).map_err(not_encoded)?;
    Ok(KeyValue::new(KEY.into(), text))
}

/// Reads the description in the footer of a file. `None`: there is none.
pub(crate) fn read(key: &str, entries: &[KeyValue]) -> Result<Option<Description>> {
    let text = entries.iter().find(|entry| entry.key == KEY);
    let Some(text) = text.and_then(|entry| entry.value.as_deref()) else {
        return Ok(None);
    };
    if text.len() > MAX_LENGTH {
        return Err(Error::damaged(key, "the description of the segment is too long"));
    }
    let description = serde_json::from_str(text);
    description.map(Some).map_err(|error| {
        Error::damaged(
            key,
            format!("the description of the segment is malformed: {error}"),
        )
    })
}
