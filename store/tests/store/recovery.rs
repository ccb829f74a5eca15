//! A catalog that was lost, from the files.

use crate::fixture::{Fixture, all, run};
use crate::hooked_catalog::{HookedCatalog, Work};
use crate::model::{HOUR, sums_of, sums_of_profile};
use crate::round_trip::sample;
use backtrail_profile::UnixNanos;
use backtrail_store::{
    Cancel, Catalog, CompactionOptions, Hour, Listing, MemoryCatalog, Recovered, SegmentEntry, Store,
    StoreOptions, TableKind,
};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::sync::Arc;

async fn live(catalog: &dyn Catalog) -> Vec<SegmentEntry> {
    let listing = Listing {
        hours: Hour(0)..Hour(u32::MAX),
        services: None,
    };
    let mut live = catalog.list(&listing).await.unwrap();
    live.sort_by_key(|entry| (entry.hour, entry.id));
    live
}

async fn compact(store: &Store) -> usize {
    let options = CompactionOptions {
        min_segments: 2,
        ..CompactionOptions::default()
    };
    let compacted = store.compact(HOUR, options, &Cancel::default()).await;
    compacted.map_or(0, |done| done.map_or(0, |done| done.removed.len()))
}

#[test]
fn segments_are_recovered_from_the_files_alone() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1, 2]), sample(1, 3605, &[1]), sample(2, 7, &[3])];
        fixture.write(&samples[..2]).await;
        fixture.write(&samples[2..]).await;
        let store = fixture.store();
        for expected in [0, 2] {
            let recovered = Recovered::read(&*fixture.objects).await.unwrap();
            assert_eq!(recovered.segments, live(&*fixture.catalog).await);
            assert_eq!((recovered.replaced, recovered.problems.len()), (expected, 0));
            // A catalog of these answers as the lost one did.
            let catalog = Arc::new(MemoryCatalog::default());
            catalog
                .commit(&recovered.segments, &[], UnixNanos(0))
                .await
                .unwrap();
            let again = Store::new(fixture.objects.clone(), catalog, StoreOptions::default());
            let (merged, _) = again.merge(&all(), &[]).await.unwrap();
            assert_eq!(sums_of_profile(&merged), sums_of(&samples));
            compact(&store).await;
        }
        // A compaction of a compaction, while all files still exist.
        fixture.write(&[sample(0, 9, &[4])]).await;
        assert_eq!(compact(&store).await, 2);
        let recovered = Recovered::read(&*fixture.objects).await.unwrap();
        assert_eq!(recovered.segments, live(&*fixture.catalog).await);
        assert_eq!(recovered.replaced, 4);
    });
}

#[test]
fn loser_of_two_compactions_is_not_recovered() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1]), sample(0, 6, &[2])];
        for one in &samples {
            fixture.write(std::slice::from_ref(one)).await;
        }
        let catalog = Arc::new(HookedCatalog {
            inner: fixture.catalog.clone(),
            ..HookedCatalog::default()
        });
        let other = fixture.store();
        let work: Work = Box::pin(async move {
            assert_eq!(compact(&other).await, 2);
        });
        *catalog.before_replacement.lock().unwrap() = Some(work);
        let store = Store::new(fixture.objects.clone(), catalog, StoreOptions::default());
        assert_eq!(compact(&store).await, 0);
        let recovered = Recovered::read(&*fixture.objects).await.unwrap();
        assert_eq!((recovered.segments.len(), recovered.replaced), (1, 3));
        let rows: u64 = recovered.segments.iter().map(|entry| entry.samples.rows).sum();
        assert_eq!(rows, samples.len() as u64);
    });
}

#[test]
fn damaged_files_are_named_and_left_out() {
    run(async {
        let fixture = Fixture::default();
        let kept = fixture.write(&[sample(0, 5, &[1])]).await;
        let truncated = fixture.write(&[sample(0, 6, &[1])]).await;
        let incomplete = fixture.write(&[sample(0, 7, &[1])]).await;
        let key = truncated[0].key(TableKind::Samples);
        let payload = PutPayload::from_static(b"PAR1");
        fixture.objects.put(&Path::from(&*key), payload).await.unwrap();
        let missing = incomplete[0].key(TableKind::Frames);
        fixture.objects.delete(&Path::from(&*missing)).await.unwrap();
        let recovered = Recovered::read(&*fixture.objects).await.unwrap();
        assert_eq!(recovered.segments, kept);
        assert_eq!(recovered.problems.len(), 2);
        for key in [key, missing] {
            let is_named = recovered.problems.iter().any(|problem| problem.contains(&key));
            assert!(is_named, "{:?}", recovered.problems);
        }
    });
}
