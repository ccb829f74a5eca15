//! Profiles that are written and merged again.

use crate::fixture::{Fixture, add, all, run};
use crate::model::{HOUR, Plain, build_id, profile_of, samples, sums_of, sums_of_profile, symbolize};
use backtrail_profile::UnixNanos;
use backtrail_store::{Column, Condition, Error, Filter, Hour, Matcher, Query};
use object_store::local::LocalFileSystem;
use proptest::prelude::*;
use regex::Regex;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn merge_equals_the_sum_of_what_several_writers_wrote(parts in prop::collection::vec(samples(0..60), 1..5)) {
        run(async move {
            let fixture = Fixture::default();
            let mut writers = [fixture.writer(), fixture.writer()];
            for (number, part) in parts.iter().enumerate() {
                add(&mut writers[number % 2], part);
                if number % 3 == 0 {
                    writers[number % 2].flush().await.unwrap();
                }
            }
            for writer in &mut writers {
                writer.flush().await.unwrap();
            }
            let (profile, coverage) = fixture.store().merge(&all(), &[]).await.unwrap();
            let parts: Vec<Plain> = parts.concat();
            assert_eq!(sums_of_profile(&profile), sums_of(&parts));
            assert_eq!(coverage.rows, parts.len() as u64);
            assert!(coverage.is_complete());
        });
    }

    #[test]
    fn filtered_merge_equals_the_sum_of_matching_samples(
        all in samples(1..120),
        service in 0u8..3,
        host in 0u8..3,
        times in (0u32..7200, 0u32..7200),
        kind in 0u8..10,
    ) {
        run(async move {
            let fixture = Fixture::default();
            let half = all.len() / 2;
            fixture.write(&all[..half]).await;
            fixture.write(&all[half..]).await;
            let second = |second: u32| UnixNanos(HOUR.start().0 + u64::from(second) * 1_000_000_000);
            let whole = HOUR.start()..Hour(HOUR.0 + 1).end();
            let service_name = format!("service-{service}");
            let host_name = format!("host-{host}");
            let matches: Box<dyn Fn(&Plain) -> bool + Send>;
            let mut filter = Filter::of_time(whole);
            let pattern = |text: &str| Regex::new(text).unwrap();
            let condition = |column, condition| Matcher { column, condition };
            match kind {
                0 => {
                    filter = filter.with(Matcher::equals(Column::Service, &service_name));
                    matches = Box::new(move |one| one.service == service);
                }
                1 => {
                    filter.time = second(times.0)..second(times.1);
                    matches = Box::new(move |one| (times.0..times.1).contains(&one.second));
                }
                2 => {
                    filter = filter.with(condition(Column::Host, Condition::NotIn(vec![host_name])));
                    matches = Box::new(move |one| one.host != host);
                }
                3 => {
                    filter = filter.with(Matcher::equals(Column::Label("route".into()), "/1"));
                    matches = Box::new(|one| one.label == Some(1));
                }
                4 => {
                    filter = filter.with(Matcher::equals(Column::Label("route".into()), ""));
                    matches = Box::new(|one| one.label.is_none());
                }
                5 => {
                    filter = filter.with(condition(Column::Thread, Condition::Matches(pattern("^worker-[12]$"))));
                    matches = Box::new(|one| matches!(one.thread, Some(1 | 2)));
                }
                6 => {
                    filter = filter.with(Matcher::equals(Column::Tid, "103"));
                    matches = Box::new(|one| one.thread == Some(3));
                }
                7 => {
                    filter = filter.with(Matcher::equals(Column::Cpu, ""));
                    matches = Box::new(|one| one.thread.is_none());
                }
                8 => {
                    filter.module = Some(build_id(3));
                    matches = Box::new(|one| one.frames.iter().any(|frame| frame % 8 == 3));
                }
                _ => {
                    filter = filter
                        .with(Matcher::equals(Column::Event, "cpu"))
                        .with(condition(Column::Service, Condition::NotMatches(pattern("0"))))
                        .with(Matcher::equals(Column::Process, "server"));
                    matches = Box::new(|one| one.event % 3 == 0 && one.service != 0 && one.thread.is_some());
                }
            }
            let (profile, _) = fixture.store().merge(&Query::new(filter), &[]).await.unwrap();
            let expected = all.iter().filter(|one| matches(one));
            assert_eq!(sums_of_profile(&profile), sums_of(expected), "kind {kind}");
        });
    }
}

/// Returns a sample that differs from others by its arguments only.
pub fn sample(service: u8, second: u32, frames: &[u8]) -> Plain {
    Plain {
        service,
        host: 0,
        event: 0,
        thread: Some(1),
        label: None,
        second,
        weight: 10,
        frames: frames.into(),
    }
}

#[test]
fn store_in_a_directory_has_partitions_by_hour() {
    let folder = tempfile::tempdir().unwrap();
    let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let fixture = Fixture::over(Arc::new(objects));
    let samples = vec![sample(0, 5, &[1, 2]), sample(1, 3605, &[1, 2])];
    let expected = sums_of(&samples);
    run(async move {
        let entries = fixture.write(&samples).await;
        assert_eq!(entries.len(), 2);
        let (profile, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        assert_eq!(sums_of_profile(&profile), expected);
    });
    for kind in ["samples", "stacks", "frames", "contexts"] {
        for hour in [HOUR, Hour(HOUR.0 + 1)] {
            let partition = folder.path().join(format!("kind={kind}/{hour}"));
            let files: Vec<_> = partition.read_dir().unwrap().collect();
            assert_eq!(files.len(), 1, "{}", partition.display());
        }
    }
}

#[test]
fn lines_that_came_with_a_profile_are_kept() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1, 9, 7])];
        let mut profile = profile_of(&samples);
        symbolize(&mut profile);
        let mut writer = fixture.writer();
        let origin = samples[0].origin();
        writer.write(&origin, &profile, UnixNanos(0)).await.unwrap();
        writer.flush().await.unwrap();
        let (merged, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        let sample = merged.samples[0];
        let frames: Vec<_> = merged.stacks.frames(sample.stack).collect();
        let names = |frame| {
            let lines = merged.lines_of(frame).iter();
            let function = |line: &backtrail_profile::Line| merged.functions.get(line.function).unwrap();
            lines
                .map(|line| format!("{}:{}", merged.text(function(line).name), line.line))
                .collect::<Vec<_>>()
        };
        assert_eq!(names(frames[0]), ["inlined-1:12", "caller-1:12"]);
        assert_eq!(names(frames[1]), ["inlined-9:12", "caller-9:12"]);
        assert!(names(frames[2]).is_empty());
    });
}

#[test]
fn labels_of_the_sender_are_labels_of_its_samples() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1])];
        let mut writer = fixture.writer();
        for zone in ["z1", "z2"] {
            let labels = [("zone".to_owned(), zone.to_owned())];
            let origin = samples[0].origin();
            writer
                .add(&origin, &labels, &profile_of(&samples), UnixNanos(0))
                .unwrap();
        }
        writer.flush().await.unwrap();
        let mut query = all();
        query.filter = query
            .filter
            .with(Matcher::equals(Column::Label("zone".into()), "z2"));
        let (merged, _) = fixture.store().merge(&query, &[]).await.unwrap();
        assert_eq!(merged.samples.len(), 1);
        assert_eq!(merged.samples[0].weight, 10);
    });
}

#[test]
fn notes_of_profiles_are_notes_of_the_result() {
    run(async {
        let fixture = Fixture::default();
        let samples = [sample(0, 5, &[1])];
        let mut profile = profile_of(&samples);
        profile.notes.push("7 samples were lost".into());
        let mut writer = fixture.writer();
        writer
            .write(&samples[0].origin(), &profile, UnixNanos(0))
            .await
            .unwrap();
        writer.flush().await.unwrap();
        let (merged, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.notes, ["7 samples were lost"]);
        let time = all().filter.time;
        assert_eq!(merged.start, Some(time.start));
        assert_eq!(merged.duration, Some(time.end.0 - time.start.0));
    });
}

#[test]
fn failed_flush_keeps_the_samples_for_the_next_one() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let objects = LocalFileSystem::new_with_prefix(folder.path()).unwrap();
        let fixture = Fixture::over(Arc::new(objects));
        // A file where the folder of samples belongs makes the upload fail.
        let blocker = folder.path().join("kind=samples");
        std::fs::write(&blocker, "").unwrap();
        let mut writer = fixture.writer();
        add(&mut writer, &[sample(0, 5, &[1])]);
        let error = writer.flush().await.unwrap_err();
        assert!(matches!(error, Error::Object { .. }), "{error}");
        assert_eq!(writer.rows(), 1);
        std::fs::remove_file(&blocker).unwrap();
        assert_eq!(writer.flush().await.unwrap().len(), 1);
        let (merged, _) = fixture.store().merge(&all(), &[]).await.unwrap();
        assert_eq!(merged.samples.len(), 1);
    });
}
