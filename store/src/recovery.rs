//! Recovery of a lost catalog: the segments of the files themselves.

use crate::Error;
use crate::Result;
use crate::file::describe;
use crate::footer_entry::Description;
use crate::segment::{SegmentEntry, SegmentId, TableKind};
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use std::cmp::Reverse;
use std::collections::HashSet;

/// The files that are read at once.
const AT_ONCE: usize = 16;

/// The segments that the files of a store have.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The segments, in the order of their hours.
    pub segments: Vec<SegmentEntry>,
    /// The number of segments whose samples are in another one too.
    pub replaced: u64,
    /// Sentences about files that were left out.
    pub problems: Vec<String>,
}

impl Recovered {
    /// Reads the segments from the footers of their files. A segment counts once: it is left out if
    /// the file of its compaction exists.
    ///
    /// Segments that were uploaded but not committed are among them. Samples of removed hours are
    /// too, if their files still exist.
    ///
    /// # Errors
    ///
    /// [`Error::Object`] if the object store fails.
    pub async fn read(objects: &dyn ObjectStore) -> Result<Self> {
        let folder = Key::from(format!("kind={}", TableKind::Samples.name()));
        let failed = |error| Error::object(folder.as_ref(), error);
        let files = objects.list(Some(&folder)).map_err(failed);
        let read = files.try_filter_map(async |file| Ok(segment_of(&file).map(|id| (file, id))));
        let read = read.map_ok(|(file, id)| one(objects, file, id));
        let mut recovered = Self::default();
        let mut descriptions = Vec::new();
        let mut read = std::pin::pin!(read.try_buffer_unordered(AT_ONCE));
        while let Some(described) = read.try_next().await? {
            match described {
                Ok(description) => descriptions.push(description),
                Err(problem) => recovered.problems.push(problem),
            }
        }
        recovered.problems.sort_unstable();
        let all = descriptions.len();
        recovered.segments = without_replaced(descriptions);
        recovered.replaced = (all - recovered.segments.len()) as u64;
        Ok(recovered)
    }
}

/// Returns the segment of a file of samples. `None`: the file is another one.
fn segment_of(file: &ObjectMeta) -> Option<SegmentId> {
    TableKind::parse_key(file.location.as_ref()).map(|(_, _, id)| id)
}

/// Reads the description of a segment, and checks that its other files exist. The error is a
/// sentence for the reader.
async fn one(
    objects: &dyn ObjectStore,
    file: ObjectMeta,
    id: SegmentId,
) -> Result<std::result::Result<Description, String>> {
    let key = file.location.as_ref();
    let description = match describe(objects, key, file.size).await {
        Ok(Some(description)) => description,
        Ok(None) => return Ok(Err(format!("{key} has no description of its segment"))),
        Err(error @ Error::Object { .. }) => return Err(error),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let entry = &description.entry;
    if entry.id != id || entry.key(TableKind::Samples) != key {
        return Ok(Err(format!("{key} has the description of another segment")));
    }
    let others = [TableKind::Stacks, TableKind::Frames, TableKind::Contexts];
    let others: Vec<_> = others
        .map(|kind| (entry.key(kind), entry.file(kind).bytes))
        .into();
    let heads = stream::iter(others).map(|(key, bytes)| async move {
        match objects.head(&Key::from(&*key)).await {
            Ok(file) if file.size == bytes => Ok(None),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => {
                Ok(Some(format!("{key} is missing or has another size")))
            }
            Err(error) => Err(Error::object(&key, error)),
        }
    });
    let problems: Vec<_> = heads.buffered(3).try_collect().await?;
    Ok(match problems.into_iter().flatten().next() {
        Some(problem) => Err(problem),
        None => Ok(description),
    })
}

/// Leaves out segments whose samples are in another one. Of two compactions of one segment, which
/// had a race, one counts.
fn without_replaced(mut descriptions: Vec<Description>) -> Vec<SegmentEntry> {
    // A later compaction has a higher level than what it replaces.
    descriptions.sort_by_key(|description| {
        let Description { entry, replaced } = description;
        (Reverse(entry.level), Reverse(replaced.len()), entry.id)
    });
    let mut claimed: HashSet<SegmentId> = HashSet::new();
    let mut kept = Vec::new();
    for Description { entry, replaced } in descriptions {
        let is_replaced = claimed.contains(&entry.id);
        let is_second = replaced.iter().any(|id| claimed.contains(id));
        if is_replaced || !is_second {
            claimed.extend(replaced);
        }
        if !is_replaced && !is_second {
            kept.push(entry);
        }
    }
    kept.sort_by_key(|entry| (entry.hour, entry.id));
    kept
}
