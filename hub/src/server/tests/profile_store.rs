//! The profile store of a hub: its counters, samples that are not stored, and a lost index.

use super::profiles::Site;
use crate::admin::rebuild;
use crate::config::{Config, DropIdle, Profiles};
use crate::hub::open_objects;
use crate::profiles::selection::SelectionParameters;
use crate::profiles::{maintain, query};
use axum::http::StatusCode;
use backtrail_profile::UnixNanos;
use backtrail_profile::format::{folded, pprof};
use backtrail_store::{Cancel, Hour};

/// Returns the value of a counter.
async fn counter(site: &Site, name: &str) -> u64 {
    let (status, text) = site.send("GET", "/metrics", "", Vec::new()).await;
    assert_eq!(status, StatusCode::OK);
    let text = String::from_utf8(text).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name} ")));
    let line = line.unwrap_or_else(|| panic!("{name} is not in:\n{text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Returns the note on idle threads of a service's profiles.
async fn idle_note(site: &Site, service: &str) -> String {
    let parameters = SelectionParameters {
        service: service.to_owned(),
        from: "1d".to_owned(),
        ..SelectionParameters::default()
    };
    let selection = parameters.selection().unwrap();
    let merged = query::merged(&site.hub, &selection).await.unwrap();
    let note = merged.notes.iter().find(|note| note.contains("idle threads"));
    note.unwrap_or_else(|| panic!("{service}: {:?}", merged.notes))
        .clone()
}

/// Returns a profile that begins at a time, with an idle sample.
fn timed(start: u64, weight: u64) -> Vec<u8> {
    let text = format!("main;parse {weight}\nmain;epoll_wait 9\n");
    let mut profile = folded::read(text.as_bytes()).unwrap();
    profile.start = Some(UnixNanos(start));
    let mut body = Vec::new();
    pprof::write(&profile, &mut body).unwrap();
    body
}

/// Removes the database of a hub that ended, and computes one from the files.
async fn rebuild_without_database(config: &Config) -> rebuild::Rebuilt {
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(config.data.join(format!("hub.db{suffix}")));
    }
    let objects = open_objects(config).unwrap();
    let rebuilt = rebuild::run(&config.database_url(), &config.data, &objects).await;
    rebuilt.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_intake_compaction_and_caches() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for number in 1..=4 {
        let body = format!("main;parse {number}\nmain;write 2\n");
        site.push("/api/v1/profiles?service=shop", body.as_bytes()).await;
    }
    assert_eq!(counter(&site, "backtrail_hub_profile_pushes_total").await, 4);
    assert_eq!(counter(&site, "backtrail_hub_profile_samples_total").await, 8);
    assert_eq!(counter(&site, "backtrail_hub_profile_stacks_total").await, 8);
    assert!(counter(&site, "backtrail_hub_profile_written_bytes_total").await > 0);
    assert_eq!(counter(&site, "backtrail_hub_profile_segments").await, 4);
    maintain::compact(&site.hub, &Cancel::default()).await.unwrap();
    assert_eq!(counter(&site, "backtrail_hub_profile_compactions_total").await, 1);
    assert_eq!(
        counter(&site, "backtrail_hub_profile_compacted_segments_total").await,
        4
    );
    assert_eq!(counter(&site, "backtrail_hub_profile_stored_samples").await, 8);
    let hits = "backtrail_hub_profile_cache_hits_total{cache=\"stacks\"}";
    let misses = "backtrail_hub_profile_cache_misses_total{cache=\"stacks\"}";
    for expected in [(0, 1), (1, 1)] {
        site.folded("service=shop&from=1d").await;
        assert_eq!(
            (counter(&site, hits).await, counter(&site, misses).await),
            expected
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_threads_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        data: folder.path().to_owned(),
        profiles: Profiles {
            drop_idle: DropIdle::Listed(true),
            ..Profiles::default()
        },
        ..Config::default()
    };
    let site = Site::with(config).await;
    // The first push has idle samples only, which a later segment counts.
    for body in ["main;epoll_wait 7\n", "main;parse 3\nmain;futex 9\n"] {
        let status = site.push("/api/v1/profiles?service=shop", body.as_bytes()).await;
        assert_eq!(status, StatusCode::NO_CONTENT);
    }
    site.push("/api/v1/profiles?service=cart", b"main;pay 1\nmain;do_futex 9\n")
        .await;
    assert_eq!(
        counter(&site, "backtrail_hub_profile_idle_samples_total").await,
        3
    );
    for (service, expected) in [("shop", "2 samples"), ("cart", "1 samples"), ("", "3 samples")] {
        let note = idle_note(&site, service).await;
        assert!(note.starts_with(expected), "{service}: {note}");
    }
    assert_eq!(site.folded("service=shop&from=1d").await, "main;parse 3\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_of_a_lost_index_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        data: folder.path().to_owned(),
        ..Config::default()
    };
    {
        let site = Site::with(config.clone()).await;
        for number in 1..=4 {
            let body = format!("main;parse {number}\n");
            site.push("/api/v1/profiles?service=shop", body.as_bytes()).await;
        }
        maintain::compact(&site.hub, &Cancel::default()).await.unwrap();
        site.push("/api/v1/profiles?service=cart", b"main;pay 5\n").await;
        site.hub.database.close().await;
    }
    let rebuilt = rebuild_without_database(&config).await;
    // The files of the four compacted segments still exist.
    assert_eq!(rebuilt.profiles, 2);
    let site = Site::with(config).await;
    assert_eq!(site.folded("service=shop&from=1d").await, "main;parse 10\n");
    assert_eq!(site.folded("service=cart&from=1d").await, "main;pay 5\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn push_sent_again_after_a_lost_index_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        data: folder.path().to_owned(),
        profiles: Profiles {
            drop_idle: DropIdle::Listed(true),
            ..Profiles::default()
        },
        ..Config::default()
    };
    let now = UnixNanos(crate::clock::now().unsigned_abs() * 1000);
    // All are of one hour.
    let start = Hour::of(now).start().0;
    let bodies: Vec<_> = (1..=5).map(|weight| timed(start + weight, weight)).collect();
    let path = "/api/v1/profiles?service=shop";
    {
        let site = Site::with(config.clone()).await;
        for body in &bodies[..4] {
            assert_eq!(site.push(path, body).await, StatusCode::NO_CONTENT);
        }
        let replaced = maintain::compact(&site.hub, &Cancel::default()).await;
        assert_eq!(replaced.unwrap(), 4);
        site.push(path, &bodies[4]).await;
        assert_eq!(site.folded("service=shop&from=1d").await, "main;parse 15\n");
        assert!(idle_note(&site, "shop").await.starts_with("5 samples"));
        site.hub.database.close().await;
    }
    assert_eq!(rebuild_without_database(&config).await.profiles, 2);
    let site = Site::with(config).await;
    // Pushes of the compacted segments, and of one that was not compacted.
    for body in &bodies {
        assert_eq!(site.push(path, body).await, StatusCode::NO_CONTENT);
    }
    let repeated = "backtrail_hub_profile_repeated_pushes_total";
    assert_eq!(counter(&site, repeated).await, 5);
    assert_eq!(site.folded("service=shop&from=1d").await, "main;parse 15\n");
    assert!(idle_note(&site, "shop").await.starts_with("5 samples"));
    // A push that is new is stored.
    site.push(path, &timed(start + 6, 6)).await;
    assert_eq!(site.folded("service=shop&from=1d").await, "main;parse 21\n");
}
