//! Hashes of pushes and counts of idle samples, which segments keep without a catalog.

use crate::fixture::{Fixture, add, all, run};
use crate::model::{HOUR, Plain};
use crate::round_trip::sample;
use backtrail_profile::UnixNanos;
use backtrail_store::{
    Cancel, Catalog, CompactionOptions, Error, Hour, IdleCounts, MemoryCatalog, PushHash, PushHashes,
    Recovered, SegmentEntry, Store, StoreOptions, TableKind,
};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::sync::Arc;

/// The key of the hashes in the footer.
const KEY: &[u8] = b"backtrail.pushes";

fn hash(number: u8) -> PushHash {
    PushHash([number; 16])
}

/// Returns the present time.
fn now() -> UnixNanos {
    UnixNanos(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64)
}

/// Writes samples as one commit with pushes, which were received at times.
async fn write(fixture: &Fixture, samples: &[Plain], pushes: &[(u8, UnixNanos)]) -> Vec<SegmentEntry> {
    let mut writer = fixture.writer();
    add(&mut writer, samples);
    for (number, received) in pushes {
        writer.add_push(hash(*number), *received);
    }
    writer.flush().await.unwrap()
}

/// Returns the hashes of a segment.
async fn hashes(fixture: &Fixture, entry: &SegmentEntry) -> Vec<PushHash> {
    let hashes = PushHashes::of_segment(&*fixture.objects, entry).await.unwrap();
    let mut hashes: Vec<_> = hashes.iter().map(|(hash, _)| hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

async fn compact(store: &Store) -> SegmentEntry {
    let options = CompactionOptions {
        min_segments: 2,
        ..CompactionOptions::default()
    };
    let compacted = store.compact(HOUR, options, &Cancel::default()).await.unwrap();
    compacted.unwrap().added
}

/// Replaces a byte of the hashes in a file of contexts, and corrects the checksum of the entry.
async fn damage(fixture: &Fixture, entry: &mut SegmentEntry) {
    let key = Path::from(entry.key(TableKind::Contexts));
    let found = fixture.objects.get(&key).await.unwrap();
    let mut content = found.bytes().await.unwrap().to_vec();
    let place = content.windows(KEY.len()).position(|part| part == KEY).unwrap();
    // No character of base64.
    content[place + KEY.len() + 10] = b'!';
    let end = content.len() - 8;
    let length = u32::from_le_bytes(content[end..end + 4].try_into().unwrap()) as usize;
    entry.contexts.footer_crc = crc32fast::hash(&content[end - length..]);
    let payload = PutPayload::from(content);
    fixture.objects.put(&key, payload).await.unwrap();
}

#[test]
fn last_hour_of_a_flush_has_the_pushes() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1]), sample(0, 3605, &[1])];
        let entries = write(&fixture, &samples, &[(2, now()), (1, now())]).await;
        assert_eq!((entries.len(), entries[1].hour), (2, Hour(HOUR.0 + 1)));
        assert!(hashes(&fixture, &entries[0]).await.is_empty());
        assert_eq!(hashes(&fixture, &entries[1]).await, [hash(1), hash(2)]);
        let recovered = Recovered::read(&*fixture.objects).await.unwrap();
        assert_eq!(recovered.segments, entries);
        // The samples are as without pushes.
        let (merged, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.samples.iter().map(|sample| sample.weight).sum::<i64>(), 20);
    });
}

#[test]
fn compaction_keeps_recent_pushes_of_all_inputs() {
    run(async {
        let fixture = Fixture::default();
        let hours = |hours: u64| UnixNanos(now().0 - hours * 3_600_000_000_000);
        write(&fixture, &[sample(0, 5, &[1])], &[(1, now()), (2, hours(9 * 24))]).await;
        write(&fixture, &[sample(0, 6, &[1])], &[(3, hours(6 * 24))]).await;
        // One of an earlier version, or without pushes.
        fixture.write(&[sample(0, 7, &[1])]).await;
        let merged = compact(&fixture.store()).await;
        assert_eq!((merged.level, merged.samples.rows), (1, 3));
        assert_eq!(hashes(&fixture, &merged).await, [hash(1), hash(3)]);
        write(&fixture, &[sample(0, 8, &[1])], &[(4, now()), (1, now())]).await;
        let merged = compact(&fixture.store()).await;
        assert_eq!(merged.level, 2);
        assert_eq!(hashes(&fixture, &merged).await, [hash(1), hash(3), hash(4)]);
    });
}

#[test]
fn malformed_pushes_are_an_error_and_do_not_stop_a_compaction() {
    run(async {
        let fixture = Fixture::default();
        let mut entries = write(&fixture, &[sample(0, 5, &[1])], &[(1, now())]).await;
        entries.extend(write(&fixture, &[sample(0, 6, &[1])], &[(2, now())]).await);
        damage(&fixture, &mut entries[0]).await;
        let error = PushHashes::of_segment(&*fixture.objects, &entries[0]).await;
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Damaged { .. }), "{error}");
        let key = entries[0].key(TableKind::Contexts);
        assert!(error.to_string().contains(&key), "{error}");
        let catalog = Arc::new(MemoryCatalog::default());
        catalog.commit(&entries, &[], UnixNanos(0)).await.unwrap();
        let store = Store::new(fixture.objects.clone(), catalog, StoreOptions::default());
        let merged = compact(&store).await;
        assert_eq!(merged.samples.rows, 2);
        assert_eq!(hashes(&fixture, &merged).await, [hash(2)]);
    });
}

#[test]
fn damaged_footer_of_contexts_is_an_error() {
    run(async {
        let fixture = Fixture::default();
        let entries = write(&fixture, &[sample(0, 5, &[1])], &[(1, now())]).await;
        let mut other = entries[0].clone();
        // The entry keeps the checksum of the file as it was.
        damage(&fixture, &mut other).await;
        let error = PushHashes::of_segment(&*fixture.objects, &entries[0]).await;
        assert!(matches!(error, Err(Error::Damaged { .. })), "{error:?}");
        let key = Path::from(entries[0].key(TableKind::Contexts));
        fixture.objects.delete(&key).await.unwrap();
        let error = PushHashes::of_segment(&*fixture.objects, &entries[0]).await;
        assert!(matches!(error, Err(Error::Missing { .. })), "{error:?}");
    });
}

#[test]
fn idle_samples_are_counted_without_a_catalog() {
    run(async {
        let fixture = Fixture::default();
        for second in [5, 6] {
            let mut idle = IdleCounts::default();
            idle.add("service-0", 10 + u64::from(second));
            let mut writer = fixture.writer();
            add(&mut writer, &[sample(0, second, &[1])]);
            writer.add_idle(&idle);
            writer.flush().await.unwrap();
        }
        for _ in 0..2 {
            let recovered = Recovered::read(&*fixture.objects).await.unwrap();
            let counts = recovered.segments.iter().map(|entry| entry.idle.of(None));
            assert_eq!(counts.sum::<u64>(), 31);
            let catalog = Arc::new(MemoryCatalog::default());
            catalog
                .commit(&recovered.segments, &[], UnixNanos(0))
                .await
                .unwrap();
            let store = Store::new(fixture.objects.clone(), catalog, StoreOptions::default());
            let (_, coverage) = store.merge(&all(), &[]).await.unwrap();
            assert_eq!(coverage.idle, 31);
            // Of the compacted segments in the second turn.
            if recovered.segments.len() == 2 {
                compact(&fixture.store()).await;
            }
        }
    });
}
