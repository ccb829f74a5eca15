//! The segments and pushes of the profile store, for a new index.

use crate::clock;
use crate::database::Database;
use crate::database::profile_segments::SegmentChange;
use crate::error::Result;
use crate::objects::Objects;
use crate::profiles::catalog::PREFIX;
use backtrail_profile::UnixNanos;
use backtrail_store::{Error, PushHash, PushHashes, Recovered, SegmentEntry};
use futures_util::future::join_all;
use object_store::ObjectStore;
use std::collections::{BTreeSet, HashMap};

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
    let mut pushes = Vec::with_capacity(recovered.segments.len());
    for entries in recovered.segments.chunks(FILES) {
        pushes.extend(recover_pushes(database, &*objects, entries).await?);
    }
    let (segments, repeated) = without_repeated(recovered.segments, &pushes);
    if repeated > 0 {
        eprintln!("{repeated} segments of profiles are left out: others have the same pushes");
    }
    for added in segments.chunks(AT_ONCE) {
        let change = SegmentChange {
            added,
            removed: &[],
            at: UnixNanos(0),
            pushes: &[],
        };
        database.change_segments(change).await?;
    }
    Ok(segments.len())
}

/// Leaves out segments whose pushes are all in others, and returns the number of these. They were
/// not committed when their hub was killed, and the senders repeated the pushes. Of two segments
/// with the same pushes, that with more of them stays.
fn without_repeated(
    segments: Vec<SegmentEntry>,
    pushes: &[BTreeSet<PushHash>],
) -> (Vec<SegmentEntry>, usize) {
    let mut counts: HashMap<PushHash, usize> = HashMap::new();
    for hash in pushes.iter().flatten() {
        *counts.entry(*hash).or_default() += 1;
    }
    let mut order: Vec<usize> = (0..pushes.len()).collect();
    order.sort_by_key(|at| pushes.get(*at).map_or(0, BTreeSet::len));
    let mut repeated = BTreeSet::new();
    for at in order {
        let own = pushes.get(at).into_iter().flatten();
        // Only committed segments were compacted.
        let is_new = segments.get(at).is_some_and(|segment| segment.level == 0);
        let is_elsewhere = |hash: &PushHash| counts.get(hash).is_some_and(|count| *count > 1);
        if is_new && pushes.get(at).is_some_and(|own| !own.is_empty()) && own.clone().all(is_elsewhere) {
            repeated.insert(at);
            for hash in own {
                counts.entry(*hash).and_modify(|count| *count -= 1);
            }
        }
    }
    let numbered = segments.into_iter().enumerate();
    let kept = numbered.filter(|(at, _)| !repeated.contains(at));
    (kept.map(|(_, segment)| segment).collect(), repeated.len())
}

/// Adds the pushes of some segments, as far as they are recent. Returns all pushes of each segment
/// that are known.
async fn recover_pushes(
    database: &Database,
    objects: &dyn ObjectStore,
    entries: &[SegmentEntry],
) -> Result<Vec<BTreeSet<PushHash>>> {
    let now = UnixNanos(clock::now().unsigned_abs().saturating_mul(1000));
    let read = entries.iter().map(|entry| PushHashes::of_segment(objects, entry));
    let mut all = Vec::with_capacity(entries.len());
    for pushes in join_all(read).await {
        match pushes {
            Ok(mut pushes) => {
                all.push(pushes.iter().map(|(hash, _)| hash).collect());
                pushes.keep_known(now);
                database.restore_pushes(&pushes).await?;
            }
            Err(error @ Error::Object { .. }) => return Err(error.into()),
            Err(error) => {
                eprintln!("pushes of a segment count again if they are sent again: {error}");
                all.push(BTreeSet::new());
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u32) -> SegmentEntry {
        let file = serde_json::json!({"rows": 1, "bytes": 1, "footer_crc": 0});
        let entry = serde_json::json!({
            "id": format!("{number:032x}"), "hour": 498_873, "level": 0, "first": 5, "last": 9,
            "samples": file, "stacks": file, "frames": file, "contexts": file,
            "services": [], "hosts": [], "build_ids": "", "notes": [],
        });
        serde_json::from_value(entry).unwrap()
    }

    fn kept(pushes: &[&[u8]]) -> Vec<usize> {
        let set = |hashes: &&[u8]| hashes.iter().map(|hash| PushHash([*hash; 16])).collect();
        let sets: Vec<BTreeSet<PushHash>> = pushes.iter().map(set).collect();
        let segments: Vec<_> = (0..).map(segment).take(sets.len()).collect();
        let (kept, repeated) = without_repeated(segments.clone(), &sets);
        assert_eq!(kept.len() + repeated, sets.len());
        let place = |one: &SegmentEntry| segments.iter().position(|segment| segment.id == one.id);
        kept.iter().filter_map(place).collect()
    }

    #[test]
    fn segments_with_the_pushes_of_others_are_left_out() {
        // An uncommitted segment, and the one with the repeated push.
        assert_eq!(kept(&[&[1], &[1, 2]]), [1]);
        assert_eq!(kept(&[&[1, 2], &[1], &[2]]), [0]);
        // Of equal ones, one stays.
        assert_eq!(kept(&[&[1], &[1]]).len(), 1);
        // A part of the pushes is only here, or unknown.
        assert_eq!(kept(&[&[1, 3], &[1, 2]]), [0, 1]);
        assert_eq!(kept(&[&[], &[1], &[]]), [0, 1, 2]);
        // Each push stays once.
        assert_eq!(kept(&[&[1, 2], &[2, 3], &[3, 1]]).len(), 2);
    }
}
