//! The segments and pushes of the profile store, for a new index.

use crate::clock;
use crate::database::Database;
use crate::database::profile_segments::SegmentChange;
use crate::error::Result;
use crate::objects::Objects;
use crate::profiles::catalog::PREFIX;
use backtrail_profile::UnixNanos;
use backtrail_store::{Error, PushHashes, Recovered, SegmentEntry};
use futures_util::future::join_all;
use object_store::ObjectStore;

/// The segments of a transaction.
const AT_ONCE: usize = 200;
/// The files that are read at once.
const FILES: usize = 16;

/// Adds the segments that the files of the store describe, unless the index has any. Returns their
/// number.
///
/// # Errors
/// Fails if the database or the object store fails.
pub(super) async fn recover(database: &Database, store: &Objects) -> Result<usize> {
    let known: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM profile_segments")
        .fetch_one(database.reader())
        .await?;
    if known > 0 {
        return Ok(0);
    }
    let objects = store.below(PREFIX);
    let recovered = Recovered::read(&*objects).await?;
    for problem in &recovered.problems {
        eprintln!("a segment of profiles is left out: {problem}");
    }
    // An attempt that was cut off before the segments are added begins again.
    for entries in recovered.segments.chunks(FILES) {
        recover_pushes(database, &*objects, entries).await?;
    }
    for added in recovered.segments.chunks(AT_ONCE) {
        let change = SegmentChange {
            added,
            removed: &[],
            at: UnixNanos(0),
            pushes: &[],
        };
        database.change_segments(change).await?;
    }
    Ok(recovered.segments.len())
}

/// Adds the pushes of some segments, as far as they are recent.
async fn recover_pushes(
    database: &Database,
    objects: &dyn ObjectStore,
    entries: &[SegmentEntry],
) -> Result<()> {
    let now = UnixNanos(clock::now().unsigned_abs().saturating_mul(1000));
    let read = entries.iter().map(|entry| PushHashes::of_segment(objects, entry));
    for pushes in join_all(read).await {
        match pushes {
            Ok(mut pushes) => {
                pushes.keep_known(now);
                database.restore_pushes(&pushes).await?;
            }
            Err(error @ Error::Object { .. }) => return Err(error.into()),
            Err(error) => eprintln!("pushes of a segment count again if they are sent again: {error}"),
        }
    }
    Ok(())
}
