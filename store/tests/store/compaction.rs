//! Compaction, alone and raced by writers, queries and other compactions.

use crate::fixture::{Fixture, all, run};
use crate::hooked_catalog::{HookedCatalog, Work};
use crate::model::{HOUR, Plain, profile_of, samples, sums_of, sums_of_profile, symbolize};
use crate::round_trip::sample;
use backtrail_profile::{Profile, UnixNanos};
use backtrail_store::{
    Cancel, Catalog, Column, CompactionOptions, Error, Hour, Listing, Matcher, SegmentEntry, Store,
    StoreOptions,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns options that merge two segments or more.
fn options() -> CompactionOptions {
    CompactionOptions {
        min_segments: 2,
        ..CompactionOptions::default()
    }
}

/// Returns the live segments.
async fn live(catalog: &dyn Catalog) -> Vec<SegmentEntry> {
    let listing = Listing {
        hours: Hour(0)..Hour(u32::MAX),
        services: None,
    };
    catalog.list(&listing).await.unwrap()
}

/// Returns the sums by the texts of labels, besides event and stack.
fn grouped(profile: &Profile) -> BTreeMap<String, i64> {
    let mut sums = BTreeMap::new();
    for sample in &profile.samples {
        let mut one = profile.clone();
        one.samples = vec![*sample];
        let labels: Vec<_> = profile
            .labels(sample.labels)
            .iter()
            .map(|label| match label.value {
                backtrail_profile::LabelValue::Text(text) => profile.text(text),
                _ => "",
            })
            .collect();
        *sums
            .entry(format!("{:?} {labels:?}", sums_of_profile(&one).keys()))
            .or_default() += sample.weight;
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn compaction_keeps_every_sum(parts in prop::collection::vec(samples(1..50), 2..6)) {
        run(async move {
            let fixture = Fixture::default();
            for part in &parts {
                fixture.write(part).await;
            }
            let store = fixture.store();
            let group_by = [
                Column::Service,
                Column::Host,
                Column::Build,
                Column::Tid,
                Column::Thread,
                Column::Process,
                Column::Cpu,
                Column::Label("route".into()),
            ];
            let (before, _) = store.merge(&all(), &group_by).await.unwrap();
            let (series_before, _) = store.series(&all(), 1_000_000_000, &[Column::Host]).await.unwrap();
            let mut segments = live(&*fixture.catalog).await.len();
            for hour in [HOUR, Hour(HOUR.0 + 1)] {
                let compacted = store.compact(hour, options(), &Cancel::default()).await.unwrap();
                if let Some(compacted) = compacted {
                    segments -= compacted.removed.len() - 1;
                    assert_eq!((compacted.added.level, compacted.added.hour), (1, hour));
                }
            }
            assert_eq!(live(&*fixture.catalog).await.len(), segments);
            // A segment that is much larger than the others waits for more of them.
            let (after, coverage) = store.merge(&all(), &group_by).await.unwrap();
            assert_eq!(grouped(&after), grouped(&before));
            assert_eq!(sums_of_profile(&after), sums_of(&parts.concat()));
            assert_eq!(coverage.rows, parts.concat().len() as u64);
            let (series_after, _) = store.series(&all(), 1_000_000_000, &[Column::Host]).await.unwrap();
            assert_eq!(series_after, series_before);
        });
    }
}

/// Returns samples of several services, of which segments have some.
fn many() -> Vec<Plain> {
    let stack = |number: u32| [number as u8 % 7, 1, 2];
    (0..40)
        .map(|number| sample(number as u8 % 3, number * 7, &stack(number)))
        .collect()
}

/// A store with a hooked catalog, and three segments.
struct Race {
    fixture: Fixture,
    catalog: Arc<HookedCatalog>,
    store: Store,
}

async fn race() -> Race {
    let fixture = Fixture::default();
    for part in many().chunks(15) {
        fixture.write(part).await;
    }
    let catalog = Arc::new(HookedCatalog {
        inner: fixture.catalog.clone(),
        ..HookedCatalog::default()
    });
    let store = Store::new(fixture.objects.clone(), catalog.clone(), StoreOptions::default());
    Race {
        fixture,
        catalog,
        store,
    }
}

async fn compact(store: &Store) -> Result<usize, Error> {
    let compacted = store.compact(HOUR, options(), &Cancel::default()).await?;
    Ok(compacted.map_or(0, |compacted| compacted.removed.len()))
}

async fn sums(store: &Store) -> crate::model::Sums {
    let (profile, coverage) = store.merge(&all(), &[]).await.unwrap();
    assert!(coverage.is_complete());
    sums_of_profile(&profile)
}

#[test]
fn later_one_of_two_compactions_changes_nothing() {
    run(async {
        let race = race().await;
        let other = race.fixture.store();
        let work: Work = Box::pin(async move {
            assert_eq!(compact(&other).await.unwrap(), 3);
        });
        *race.catalog.before_replacement.lock().unwrap() = Some(work);
        let error = compact(&race.store).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        assert_eq!(live(&*race.catalog).await.len(), 1);
        assert_eq!(sums(&race.store).await, sums_of(&many()));
        // The files of the loser are garbage, and those of the winner are not.
        let later = UnixNanos(u64::MAX / 2);
        let garbage = race.store.collect_garbage(later, Store::MIN_GRACE).await.unwrap();
        assert_eq!((garbage.segments, garbage.files), (3, 4));
        assert_eq!(sums(&race.fixture.store()).await, sums_of(&many()));
    });
}

#[test]
fn segment_written_during_a_compaction_stays() {
    run(async {
        let race = race().await;
        let fixture = race.fixture.clone();
        let late = vec![sample(2, 99, &[9]), sample(0, 3, &[0, 1, 2])];
        let written = late.clone();
        let work: Work = Box::pin(async move {
            fixture.write(&written).await;
        });
        *race.catalog.before_replacement.lock().unwrap() = Some(work);
        assert_eq!(compact(&race.store).await.unwrap(), 3);
        assert_eq!(live(&*race.catalog).await.len(), 2);
        let expected = [many(), late].concat();
        assert_eq!(sums(&race.store).await, sums_of(&expected));
        assert_eq!(compact(&race.store).await.unwrap(), 2);
        assert_eq!(sums(&race.store).await, sums_of(&expected));
    });
}

#[test]
fn removal_of_old_hours_ends_a_compaction() {
    run(async {
        let race = race().await;
        let other = race.fixture.store();
        let work: Work = Box::pin(async move {
            assert_eq!(other.remove_before(Hour(HOUR.0 + 1)).await.unwrap(), 3);
        });
        *race.catalog.before_replacement.lock().unwrap() = Some(work);
        let error = compact(&race.store).await.unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        assert!(sums(&race.store).await.is_empty());
    });
}

#[test]
fn compaction_during_a_removal_of_old_hours_is_removed_too() {
    run(async {
        let race = race().await;
        let other = race.fixture.store();
        let work: Work = Box::pin(async move {
            assert_eq!(compact(&other).await.unwrap(), 3);
        });
        *race.catalog.before_replacement.lock().unwrap() = Some(work);
        assert_eq!(race.store.remove_before(Hour(HOUR.0 + 1)).await.unwrap(), 1);
        assert!(live(&*race.catalog).await.is_empty());
    });
}

#[test]
fn query_that_listed_before_a_compaction_reads_the_old_files() {
    run(async {
        let race = race().await;
        let other = race.fixture.store();
        let work: Work = Box::pin(async move {
            assert_eq!(compact(&other).await.unwrap(), 3);
            // A collection within the grace time deletes nothing that was removed now.
            let now = std::time::UNIX_EPOCH.elapsed().unwrap();
            let now = UnixNanos(now.as_nanos() as u64);
            let garbage = other.collect_garbage(now, Store::MIN_GRACE).await.unwrap();
            assert_eq!((garbage.segments, garbage.files), (0, 0));
        });
        *race.catalog.after_list.lock().unwrap() = Some(work);
        assert_eq!(sums(&race.store).await, sums_of(&many()));
    });
}

#[test]
fn few_segments_wait_for_more() {
    run(async {
        let fixture = Fixture::default();
        fixture.write(&[sample(0, 1, &[1])]).await;
        let store = fixture.store();
        assert_eq!(compact(&store).await.unwrap(), 0);
        fixture.write(&[sample(0, 2, &[1])]).await;
        let wait = CompactionOptions::default();
        assert_eq!(store.compact(HOUR, wait, &Cancel::default()).await.unwrap(), None);
        assert_eq!(compact(&store).await.unwrap(), 2);
    });
}

#[test]
fn canceled_compaction_and_too_little_memory_are_errors() {
    run(async {
        let race = race().await;
        let cancel = Cancel::default();
        cancel.cancel();
        let error = race.store.compact(HOUR, options(), &cancel).await.unwrap_err();
        assert!(matches!(error, Error::Canceled), "{error}");
        let little = CompactionOptions {
            memory: 1 << 20,
            ..options()
        };
        let error = race
            .store
            .compact(HOUR, little, &Cancel::default())
            .await
            .unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
        assert_eq!(live(&*race.catalog).await.len(), 3);
    });
}

#[test]
fn compacted_services_are_pruned_by_row_group() {
    run(async {
        let fixture = Fixture::default();
        let per_segment = 1u32 << 17;
        for _ in 0..3 {
            let mut writer = fixture.writer();
            for service in 0..2 {
                let samples: Vec<_> = (0..per_segment)
                    .map(|number| sample(service, number % 3600, &[service]))
                    .collect();
                crate::fixture::add(&mut writer, &samples);
            }
            writer.flush().await.unwrap();
        }
        let store = fixture.store();
        assert_eq!(compact(&store).await.unwrap(), 3);
        let mut query = all();
        query.filter = query.filter.with(Matcher::equals(Column::Service, "service-1"));
        let (profile, coverage) = store.merge(&query, &[]).await.unwrap();
        // Each service has six row groups.
        assert_eq!((coverage.row_groups, coverage.row_groups_pruned), (6, 6));
        let expected = i64::from(per_segment) * 3 * 10;
        assert_eq!(sums_of_profile(&profile).values().sum::<i64>(), expected);
    });
}

#[test]
fn lines_and_notes_survive_a_compaction() {
    run(async {
        let fixture = Fixture::default();
        for note in ["a", "b"] {
            let samples = [sample(0, 5, &[1, 7])];
            let mut profile = profile_of(&samples);
            symbolize(&mut profile);
            profile.notes.push(note.into());
            let mut writer = fixture.writer();
            writer
                .write(&samples[0].origin(), &profile, UnixNanos(0))
                .await
                .unwrap();
            writer.flush().await.unwrap();
        }
        let store = fixture.store();
        assert_eq!(compact(&store).await.unwrap(), 2);
        let (merged, _) = store.merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.notes, ["a", "b"]);
        let frame = merged.stacks.frames(merged.samples[0].stack).next().unwrap();
        assert_eq!(merged.lines_of(frame).len(), 2);
    });
}
