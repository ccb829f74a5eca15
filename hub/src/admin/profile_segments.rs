//! The segments of the profile store, for a new index.

use crate::database::Database;
use crate::database::profile_segments::SegmentChange;
use crate::error::Result;
use crate::objects::Objects;
use crate::profiles::catalog::PREFIX;
use backtrail_profile::UnixNanos;
use backtrail_store::Recovered;

/// The segments of a transaction.
const AT_ONCE: usize = 200;

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
    let recovered = Recovered::read(&*store.below(PREFIX)).await?;
    for problem in &recovered.problems {
        eprintln!("a segment of profiles is left out: {problem}");
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
