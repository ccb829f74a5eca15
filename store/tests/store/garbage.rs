//! Garbage and retention.

use crate::fixture::{Fixture, all, run};
use crate::model::HOUR;
use crate::round_trip::sample;
use backtrail_profile::UnixNanos;
use backtrail_store::{Error, Hour, Store, first_kept};
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::time::Duration;

/// Returns the number of files in the object store.
async fn files(fixture: &Fixture) -> usize {
    let files: Vec<_> = fixture.objects.list(None).try_collect().await.unwrap();
    files.len()
}

/// Returns the present time and one after the grace time.
fn times() -> (UnixNanos, UnixNanos) {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let later = now + Store::MIN_GRACE.as_nanos() as u64 + 10_000_000_000;
    (UnixNanos(now), UnixNanos(later))
}

#[test]
fn files_of_removed_hours_are_deleted_after_the_grace_time() {
    run(async {
        let fixture = Fixture::default();
        fixture.write(&[sample(0, 5, &[1]), sample(0, 3605, &[1])]).await;
        let store = fixture.store();
        assert_eq!(store.remove_before(Hour(HOUR.0 + 1)).await.unwrap(), 1);
        let (merged, _) = store.merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.samples[0].weight, 10);
        let (now, later) = times();
        store.collect_garbage(now, Store::MIN_GRACE).await.unwrap();
        assert_eq!(files(&fixture).await, 8);
        let garbage = store.collect_garbage(later, Store::MIN_GRACE).await.unwrap();
        assert_eq!(garbage.segments, 1);
        assert_eq!(files(&fixture).await, 4);
        let (merged, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.samples[0].weight, 10);
        // A second collection has nothing to do.
        let garbage = store.collect_garbage(later, Store::MIN_GRACE).await.unwrap();
        assert_eq!((garbage.segments, garbage.files), (0, 0));
    });
}

#[test]
fn files_without_a_row_are_garbage_and_files_of_others_are_not() {
    run(async {
        let fixture = Fixture::default();
        let other_catalog = Fixture::over(fixture.objects.clone());
        let entries = other_catalog.write(&[sample(0, 5, &[1])]).await;
        fixture.write(&[sample(0, 6, &[1])]).await;
        for key in ["blobs/abc", "kind=samples/readme.txt"] {
            let place = Path::from(key);
            fixture
                .objects
                .put(&place, PutPayload::from_static(b"x"))
                .await
                .unwrap();
        }
        let store = fixture.store();
        let (now, later) = times();
        assert!(store.garbage(now, Store::MIN_GRACE).await.unwrap().is_empty());
        let garbage = store.garbage(later, Store::MIN_GRACE).await.unwrap();
        assert_eq!(garbage.len(), 4);
        assert!(garbage.iter().all(|key| key.contains(&entries[0].id.to_string())));
        let deleted = store.collect_garbage(later, Store::MIN_GRACE).await.unwrap();
        assert_eq!((deleted.files, deleted.bytes), (4, entries[0].bytes()));
        assert_eq!(files(&fixture).await, 6);
    });
}

#[test]
fn short_grace_time_is_refused() {
    run(async {
        let fixture = Fixture::default();
        let (now, _) = times();
        let short = Store::MIN_GRACE - Duration::from_secs(1);
        let error = fixture.store().collect_garbage(now, short).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    });
}

#[test]
fn days_are_kept_to_the_hour() {
    let now = Hour(10_000).start();
    assert_eq!(first_kept(now, 90), Hour(10_000 - 90 * 24));
    assert_eq!(first_kept(now, u32::MAX), Hour(0));
}
