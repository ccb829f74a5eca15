//! The results of queries, their limits, and what they read.

use crate::fixture::{Fixture, all, run};
use crate::model::{HOUR, Plain, samples, sums_of, sums_of_profile, text_of};
use crate::round_trip::sample;
use backtrail_profile::{Profile, StackId, UnixNanos};
use backtrail_store::{Cancel, Column, CompactionOptions, Error, FrameSet, LimitKind, Matcher, StackFilter};
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SECOND: u64 = 1_000_000_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn series_and_values_equal_those_of_the_samples(all_samples in samples(1..150)) {
        run(async move {
            let fixture = Fixture::default();
            fixture.write(&all_samples[..all_samples.len() / 2]).await;
            fixture.write(&all_samples[all_samples.len() / 2..]).await;
            let store = fixture.store();
            let step = 60 * SECOND;
            let group_by = [Column::Service, Column::Label("route".into())];
            let (series, _) = store.series(&all(), step, &group_by).await.unwrap();
            let mut expected: BTreeMap<Vec<String>, BTreeMap<usize, i64>> = BTreeMap::new();
            for one in &all_samples {
                let key = vec![one.origin().service.to_string(), one.route()];
                let interval = (one.second / 60) as usize;
                *expected.entry(key).or_default().entry(interval).or_default() += one.weight;
            }
            assert_eq!(series.start, HOUR.start());
            let found: BTreeMap<_, _> = series
                .groups
                .into_iter()
                .map(|group| {
                    assert_eq!(group.weights.len(), 180);
                    let weights = group.weights.into_iter().enumerate().filter(|(_, weight)| *weight != 0);
                    (group.key, weights.collect::<BTreeMap<_, _>>())
                })
                .collect();
            for weights in expected.values_mut() {
                weights.retain(|_, weight| *weight != 0);
            }
            assert_eq!(found, expected);

            let (values, _) = store.values(&all(), &Column::Thread, "worker", 100).await.unwrap();
            let mut threads: BTreeMap<String, u64> = BTreeMap::new();
            for thread in all_samples.iter().filter_map(|one| one.thread) {
                *threads.entry(format!("worker-{thread}")).or_default() += 1;
            }
            let values: BTreeMap<_, _> = values.into_iter().map(|value| (value.text, value.samples)).collect();
            assert_eq!(values, threads);

            let (distribution, _) = store.distribution(&all()).await.unwrap();
            assert_eq!(distribution.count, all_samples.len() as u64);
            assert_eq!(distribution.sum, all_samples.iter().map(|one| one.weight).sum::<i64>());
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(25))]

    #[test]
    fn stacks_are_selected_by_their_frames(
        all_samples in samples(1..150), with in prop::option::of(0u8..10), without in prop::option::of(0u8..10),
    ) {
        run(async move {
            let fixture = Fixture::default();
            fixture.write(&all_samples[..all_samples.len() / 2]).await;
            fixture.write(&all_samples[all_samples.len() / 2..]).await;
            let store = fixture.store();
            let (profile, _) = store.merge(&all(), &[]).await.unwrap();
            // Frames whose text ends with a digit: code, addresses and functions.
            let is = |text: &str, digit: u8| text.ends_with(char::from(b'0' + digit));
            let set = |digit: u8| {
                let frames = profile.frames.iter();
                let members: Vec<bool> =
                    frames.map(|(_, frame)| is(&text_of(&profile, frame), digit)).collect();
                Arc::new(FrameSet::of_profile(&profile, &members))
            };
            let mut query = all();
            query.filter.stacks = StackFilter { with: with.map(set), without: without.map(set) };
            let selected: Vec<_> = all_samples
                .iter()
                .filter(|one| {
                    let has = |digit: u8| one.texts().iter().any(|text| is(text, digit));
                    with.is_none_or(has) && !without.is_some_and(has)
                })
                .collect();
            let (merged, _) = store.merge(&query, &[]).await.unwrap();
            assert_eq!(sums_of_profile(&merged), sums_of(selected.iter().copied()));
            let (distribution, _) = store.distribution(&query).await.unwrap();
            assert_eq!(distribution.count, selected.len() as u64);
            let (series, _) = store.series(&query, 60 * SECOND, &[]).await.unwrap();
            let weights = series.groups.iter().flat_map(|group| &group.weights);
            assert_eq!(weights.sum::<i64>(), selected.iter().map(|one| one.weight).sum::<i64>());
        });
    }
}

#[test]
fn groups_of_a_merge_are_labels() {
    run(async {
        let fixture = Fixture::default();
        fixture
            .write(&[sample(0, 1, &[1]), sample(1, 2, &[1]), sample(1, 3, &[1])])
            .await;
        let (profile, _) = fixture.store().merge(&all(), &[Column::Service]).await.unwrap();
        let by_label: BTreeMap<_, _> = profile
            .samples
            .iter()
            .map(|sample| {
                let label = profile.labels(sample.labels)[0];
                let backtrail_profile::LabelValue::Text(value) = label.value else {
                    panic!("a number");
                };
                assert_eq!(profile.text(label.key), "service");
                (profile.text(value).to_owned(), sample.weight)
            })
            .collect();
        let expected = [("service-0".to_owned(), 10), ("service-1".to_owned(), 20)];
        assert_eq!(by_label, expected.into());
    });
}

#[test]
fn query_of_a_service_reads_no_file_of_others() {
    run(async {
        let fixture = Fixture::default();
        for service in 0..3 {
            let samples: Vec<_> = (0..50)
                .map(|second| sample(service, second, &[service, 9]))
                .collect();
            fixture.write(&samples).await;
        }
        let mut query = all();
        query.filter = query.filter.with(Matcher::equals(Column::Service, "service-1"));
        let (profile, coverage) = fixture.store().merge(&query, &[]).await.unwrap();
        assert_eq!(
            (coverage.segments, coverage.segments_read, coverage.rows),
            (1, 1, 50)
        );
        assert_eq!(
            profile.samples.iter().map(|sample| sample.weight).sum::<i64>(),
            500
        );
        // A service that no segment has is a query without files.
        query.filter.matchers[0] = Matcher::equals(Column::Service, "other");
        let (profile, coverage) = fixture.store().merge(&query, &[]).await.unwrap();
        assert_eq!((profile.samples.len(), coverage.segments), (0, 0));
    });
}

#[test]
fn row_groups_without_matches_are_not_read() {
    run(async {
        let fixture = Fixture::default();
        // More than a row group of each service.
        let mut writer = fixture.writer();
        let per_service = (1u32 << 16) + 1000;
        for service in 0..2 {
            let samples: Vec<Plain> = (0..per_service)
                .map(|number| sample(service, number % 3600, &[service, 9]))
                .collect();
            crate::fixture::add(&mut writer, &samples);
        }
        writer.flush().await.unwrap();
        let store = fixture.store();
        let (whole, coverage) = store.merge(&all(), &[]).await.unwrap();
        assert_eq!((coverage.row_groups, coverage.row_groups_pruned), (3, 0));
        assert_eq!(coverage.rows, u64::from(per_service) * 2);
        let mut query = all();
        query.filter = query.filter.with(Matcher::equals(Column::Service, "service-1"));
        let (one, coverage) = store.merge(&query, &[]).await.unwrap();
        assert_eq!((coverage.row_groups, coverage.row_groups_pruned), (2, 1));
        assert_eq!(
            sums_of_profile(&one).values().sum::<i64>(),
            i64::from(per_service) * 10
        );
        assert_eq!(
            sums_of_profile(&whole).values().sum::<i64>(),
            i64::from(per_service) * 20
        );
    });
}

#[test]
fn limits_end_a_query_early_and_are_reported() {
    run(async {
        let fixture = Fixture::default();
        for hour in 0..2 {
            let samples: Vec<_> = (0..50)
                .map(|second| sample(0, hour * 3600 + second, &[1]))
                .collect();
            fixture.write(&samples).await;
        }
        let store = fixture.store();
        let mut query = all();
        query.limits.rows = 10;
        let (profile, coverage) = store.merge(&query, &[]).await.unwrap();
        assert_eq!((coverage.truncated, coverage.rows), (Some(LimitKind::Rows), 50));
        assert!(
            profile.notes[0].contains("limit of samples"),
            "{:?}",
            profile.notes
        );
        query.limits.rows = u64::MAX;
        query.limits.bytes = 1;
        let (_, coverage) = store.merge(&query, &[]).await.unwrap();
        assert_eq!(coverage.truncated, Some(LimitKind::Bytes));
        query.limits.bytes = u64::MAX;
        query.limits.deadline = Some(Instant::now() - Duration::from_secs(1));
        let (_, coverage) = store.merge(&query, &[]).await.unwrap();
        assert_eq!(coverage.truncated, Some(LimitKind::Deadline));
        query.limits.deadline = None;
        query.limits.memory = 4;
        let error = store.merge(&query, &[]).await.unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{error}");
    });
}

#[test]
fn newest_hour_is_read_first() {
    run(async {
        let fixture = Fixture::default();
        fixture.write(&[sample(0, 1, &[1])]).await;
        fixture.write(&[sample(1, 3601, &[2])]).await;
        let mut query = all();
        query.limits.rows = 1;
        let (values, _) = fixture
            .store()
            .values(&query, &Column::Service, "", 9)
            .await
            .unwrap();
        assert_eq!(values.len(), 1);
        assert_eq!(values[0].text, "service-1");
    });
}

#[test]
fn canceled_query_fails() {
    run(async {
        let fixture = Fixture::default();
        fixture.write(&[sample(0, 1, &[1])]).await;
        let query = all();
        query.cancel.cancel();
        let error = fixture.store().merge(&query, &[]).await.unwrap_err();
        assert!(matches!(error, Error::Canceled), "{error}");
    });
}

/// Returns a fixture whose object store answers too late for any test.
async fn slow() -> Fixture {
    let fixture = Fixture::default();
    fixture.write(&[sample(0, 1, &[1])]).await;
    let config = ThrottleConfig {
        wait_get_per_call: Duration::from_secs(3600),
        ..ThrottleConfig::default()
    };
    Fixture {
        objects: Arc::new(ThrottledStore::new(fixture.objects, config)),
        catalog: fixture.catalog,
    }
}

#[test]
fn deadline_ends_a_wait_for_the_object_store() {
    run(async {
        let mut query = all();
        query.limits.deadline = Some(Instant::now() + Duration::from_millis(50));
        let (profile, coverage) = slow().await.store().merge(&query, &[]).await.unwrap();
        assert_eq!(coverage.truncated, Some(LimitKind::Deadline));
        assert_eq!((profile.samples.len(), coverage.segments_read), (0, 0));
    });
}

#[test]
fn cancellation_ends_a_wait_for_the_object_store() {
    run(async {
        let query = all();
        let cancel = query.cancel.clone();
        let canceler = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            cancel.cancel();
        });
        let error = slow().await.store().merge(&query, &[]).await.unwrap_err();
        assert!(matches!(error, Error::Canceled), "{error}");
        canceler.await.unwrap();
    });
}

#[test]
fn heat_map_has_a_column_for_each_second() {
    run(async {
        let fixture = Fixture::default();
        let mut samples = vec![sample(0, 10, &[1]), sample(0, 10, &[2]), sample(0, 12, &[1])];
        samples[2].weight = 3;
        fixture.write(&samples).await;
        let mut query = all();
        let start = HOUR.start().0;
        // The time begins within a column.
        query.filter.time = UnixNanos(start + 9 * SECOND + SECOND / 2)..UnixNanos(start + 13 * SECOND);
        let (map, _) = fixture.store().heat_map(&query, SECOND, 4).await.unwrap();
        assert_eq!(map.start, UnixNanos(start + 9 * SECOND));
        assert_eq!((map.rows, map.step), (4, SECOND / 4));
        let expected = [[0, 0, 0, 0], [20, 0, 0, 0], [0, 0, 0, 0], [3, 0, 0, 0]];
        assert_eq!(map.columns, expected.map(Vec::from));
        assert!(fixture.store().heat_map(&query, SECOND, 0).await.is_err());
        assert!(fixture.store().heat_map(&query, SECOND, 7).await.is_err());
    });
}

#[test]
fn intervals_of_a_series_are_limited() {
    run(async {
        let fixture = Fixture::default();
        for step in [0, 1] {
            let error = fixture.store().series(&all(), step, &[]).await.unwrap_err();
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
    });
}

#[test]
fn parts_of_a_series_are_equal_and_begin_at_its_time() {
    run(async {
        let fixture = Fixture::default();
        let samples: Vec<Plain> = (0..3600).step_by(10).map(|at| sample(0, at, &[1])).collect();
        fixture.write(&samples).await;
        let start = HOUR.start().0 + 7 * SECOND;
        let mut query = all();
        query.filter.time = UnixNanos(start)..UnixNanos(start + 3000 * SECOND);
        for (parts, weight) in [(1, 3000), (10, 300), (12, 250)] {
            let (series, _) = fixture.store().series_of_parts(&query, parts, &[]).await.unwrap();
            assert_eq!((series.start.0, series.step), (start, 3000 * SECOND / parts));
            assert_eq!(series.groups[0].weights, vec![weight; parts as usize]);
        }
        // Seven parts have no whole nanoseconds.
        let (series, _) = fixture.store().series_of_parts(&query, 7, &[]).await.unwrap();
        assert_eq!(series.groups[0].weights.len(), 7);
        assert_eq!(series.groups[0].weights.iter().sum::<i64>(), 3000);
        assert!(fixture.store().series_of_parts(&query, 0, &[]).await.is_err());
    });
}

#[test]
fn top_counts_recursion_once() {
    run(async {
        let fixture = Fixture::default();
        fixture
            .write(&[sample(0, 1, &[1, 1, 2]), sample(0, 2, &[2])])
            .await;
        let (top, _) = fixture.store().top(&all(), 10).await.unwrap();
        assert_eq!(top.total, 20);
        let rows: Vec<_> = top
            .rows
            .iter()
            .map(|row| (&*row.name, row.own, row.total))
            .collect();
        assert_eq!(rows, [("lib2.so+0x2", 10, 20), ("lib1.so+0x1", 10, 10)]);
    });
}

#[test]
fn difference_is_two_profiles() {
    run(async {
        let fixture = Fixture::default();
        fixture
            .write(&[sample(0, 1, &[1]), sample(1, 2, &[2]), sample(1, 3, &[2])])
            .await;
        let of = |service| {
            let mut query = all();
            query.filter = query.filter.with(Matcher::equals(Column::Service, service));
            query
        };
        let (before, after) = fixture
            .store()
            .diff(&of("service-0"), &of("service-1"))
            .await
            .unwrap();
        assert_eq!(sums_of_profile(&before.0).values().sum::<i64>(), 10);
        assert_eq!(sums_of_profile(&after.0).values().sum::<i64>(), 20);
    });
}

#[test]
fn label_keys_and_cache_hits_are_reported() {
    run(async {
        let fixture = Fixture::default();
        let mut labeled = sample(0, 1, &[1]);
        labeled.label = Some(2);
        fixture.write(&[labeled]).await;
        let store = fixture.store();
        assert_eq!(store.label_keys(&all()).await.unwrap(), ["route"]);
        assert_eq!(store.label_keys(&all()).await.unwrap(), ["route"]);
        let contexts = store
            .cache_stats()
            .into_iter()
            .find(|(name, _)| *name == "contexts");
        let (_, stats) = contexts.unwrap();
        assert_eq!((stats.hits, stats.misses), (1, 1));
        assert!(stats.bytes > 0);
    });
}

/// Returns a profile with a sample of processor time.
fn with_period(period: u64, weight: i64) -> Profile {
    let mut profile = Profile::default();
    let event = profile.event("cpu", "nanoseconds", period).unwrap();
    profile.add(event, weight, StackId::EMPTY).unwrap();
    profile
}

#[test]
fn sums_are_over_all_periods() {
    run(async {
        let fixture = Fixture::default();
        // The first two are in one segment, the third is in another one.
        for profiles in [
            &[with_period(10, 3), with_period(20, 5)][..],
            &[with_period(0, 7)],
        ] {
            let mut writer = fixture.writer();
            for profile in profiles {
                let origin = sample(0, 1, &[]).origin();
                writer.add(&origin, &[], profile, HOUR.start()).unwrap();
            }
            writer.flush().await.unwrap();
        }
        let check = async || {
            let store = fixture.store();
            let (profile, _) = store.merge(&all(), &[]).await.unwrap();
            let events: Vec<_> = profile.events.iter().collect();
            let [(id, event)] = events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((profile.total(id), event.period), (15, 0));
            assert_eq!(profile.samples.len(), 1);
            // Each sample keeps its period.
            let (values, _) = store.values(&all(), &Column::Period, "", 9).await.unwrap();
            assert_eq!(values.len(), 3, "{values:?}");
            let mut query = all();
            query.filter = query.filter.with(Matcher::equals(Column::Period, "20"));
            let (profile, _) = store.merge(&query, &[]).await.unwrap();
            let (id, event) = profile.events.iter().next().unwrap();
            assert_eq!((profile.total(id), event.period), (5, 20));
        };
        check().await;
        let options = CompactionOptions {
            min_segments: 2,
            ..CompactionOptions::default()
        };
        fixture
            .store()
            .compact(HOUR, options, &Cancel::default())
            .await
            .unwrap();
        check().await;
    });
}

#[test]
fn notes_belong_to_the_samples_of_their_profiles() {
    run(async {
        let fixture = Fixture::default();
        // The segments have both services, and one of them each.
        for services in [&[0, 1][..], &[1], &[0]] {
            let mut writer = fixture.writer();
            for service in services {
                let mut profile = with_period(0, 3);
                profile.notes.push(format!("note of {service}"));
                let origin = sample(*service, 1, &[]).origin();
                writer.add(&origin, &[], &profile, HOUR.start()).unwrap();
            }
            writer.flush().await.unwrap();
        }
        let check = async || {
            let store = fixture.store();
            for (service, expected) in [("service-0", "note of 0"), ("service-1", "note of 1")] {
                let mut query = all();
                query.filter = query.filter.with(Matcher::equals(Column::Service, service));
                let (profile, _) = store.merge(&query, &[]).await.unwrap();
                assert_eq!(profile.notes, [expected]);
            }
            let (profile, _) = store.merge(&all(), &[]).await.unwrap();
            assert_eq!(profile.notes, ["note of 0", "note of 1"]);
        };
        check().await;
        let options = CompactionOptions {
            min_segments: 2,
            ..CompactionOptions::default()
        };
        let compacted = fixture.store().compact(HOUR, options, &Cancel::default()).await;
        assert!(compacted.unwrap().is_some());
        check().await;
    });
}
