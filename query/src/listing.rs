//! The segments of a store without a catalog, by the names and footers of its files.

use crate::error::sentence;
use crate::{Error, Result};
use backtrail_store::{
    BuildIdFilter, FileSummary, Hour, IdleCounts, OriginNotes, SegmentEntry, SegmentId, TableKind,
};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::metadata::ParquetMetaDataReader;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The maximum number of segments.
const MAX_SEGMENTS: usize = 1_000_000;
/// The bytes at the end of a file that usually have its footer.
const FOOTER: u64 = 64 << 10;
/// The maximum size of a footer.
const MAX_FOOTER: u64 = 64 << 20;
/// The number of footers that are read at once.
const CONCURRENT: usize = 16;

/// Returns the segments of a store. Services, hosts and events are not known without a catalog.
pub(crate) async fn segments(store: &Arc<dyn ObjectStore>) -> Result<Vec<SegmentEntry>> {
    let mut segments: BTreeMap<(Hour, SegmentId), SegmentEntry> = BTreeMap::new();
    let mut files: Vec<(TableKind, Hour, SegmentId, FileSummary)> = Vec::new();
    for kind in TableKind::ALL {
        let prefix = Path::from(format!("kind={}", kind.name()));
        let objects = store
            .list(Some(&prefix))
            .map_err(|error| Error::of_object(&error));
        let footers = objects
            .try_filter_map(|object| async move {
                let place = place(kind, &object.location);
                Ok(place.map(|(hour, id)| (hour, id, object)))
            })
            .map_ok(|(hour, id, object)| async move {
                let rows = rows(store, &object).await?;
                let bytes = object.size;
                Ok((
                    hour,
                    id,
                    FileSummary {
                        rows,
                        bytes,
                        footer_crc: 0,
                    },
                ))
            })
            .try_buffer_unordered(CONCURRENT);
        let mut footers = std::pin::pin!(footers);
        while let Some((hour, id, file)) = footers.next().await.transpose()? {
            files.push((kind, hour, id, file));
            if files.len() > MAX_SEGMENTS * TableKind::ALL.len() {
                return Err(Error::Objects(format!(
                    "there are more than {MAX_SEGMENTS} segments, which need a catalog"
                )));
            }
        }
    }
    for (kind, hour, id, file) in files {
        let entry = segments.entry((hour, id)).or_insert_with(|| entry(hour, id));
        let summary = match kind {
            TableKind::Samples => &mut entry.samples,
            TableKind::Stacks => &mut entry.stacks,
            TableKind::Frames => &mut entry.frames,
            TableKind::Contexts => &mut entry.contexts,
        };
        *summary = file;
    }
    Ok(segments.into_values().collect())
}

/// Returns the number of rows of a file.
async fn rows(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<u64> {
    let damaged = |problem: &str| Error::Damaged {
        key: object.location.to_string(),
        problem: sentence(problem),
    };
    let mut wanted = FOOTER.min(object.size);
    loop {
        let range = object.size - wanted..object.size;
        let end = store.get_range(&object.location, range).await;
        let end = end.map_err(|error| Error::of_object(&error))?;
        let mut reader = ParquetMetaDataReader::new();
        match reader.try_parse_sized(&end, object.size) {
            Ok(()) => {
                let footer = reader.finish().map_err(|error| damaged(&error.to_string()))?;
                return Ok(u64::try_from(footer.file_metadata().num_rows()).unwrap_or(0));
            }
            Err(ParquetError::NeedMoreData(needed)) => {
                let needed = needed as u64;
                if needed <= wanted || needed > object.size.min(MAX_FOOTER) {
                    return Err(damaged("it has no footer of Parquet"));
                }
                wanted = needed;
            }
            Err(error) => return Err(damaged(&error.to_string())),
        }
    }
}

/// Returns the entry of a segment without files.
fn entry(hour: Hour, id: SegmentId) -> SegmentEntry {
    SegmentEntry {
        id,
        hour,
        level: 0,
        first: hour.start().0,
        last: hour.end().0 - 1,
        samples: FileSummary::default(),
        stacks: FileSummary::default(),
        frames: FileSummary::default(),
        contexts: FileSummary::default(),
        services: None,
        hosts: None,
        events: None,
        build_ids: BuildIdFilter::default(),
        notes: Vec::new(),
        origin_notes: OriginNotes::default(),
        idle: IdleCounts::default(),
    }
}

/// Returns hour and segment of a table's file, or `None` for another file.
fn place(kind: TableKind, key: &Path) -> Option<(Hour, SegmentId)> {
    let (found, hour, id) = TableKind::parse_key(key.as_ref())?;
    (found == kind).then_some((hour, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_have_no_place() {
        let id = "00112233445566778899aabbccddeeff";
        let key = format!("kind=samples/date=2026-11-29/hour=09/{id}.parquet");
        let found = place(TableKind::Samples, &Path::from(key.as_str()));
        assert_eq!(found, Some((Hour(498_873), id.parse().unwrap())));
        for wrong in [
            format!("kind=stacks/date=2026-11-29/hour=09/{id}.parquet"),
            format!("kind=samples/date=2026-11-29/{id}.parquet"),
            format!("kind=samples/date=2026-11-29/hour=09/{id}.csv"),
            "kind=samples/date=2026-11-29/hour=09/x.parquet".to_owned(),
        ] {
            assert_eq!(
                place(TableKind::Samples, &Path::from(wrong.as_str())),
                None,
                "{wrong}"
            );
        }
    }
}
