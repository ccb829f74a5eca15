//! Sums of the profile store: events with several periods and units, and notes.

use super::profiles::Site;
use crate::clock;
use crate::profiles::catalog::{PREFIX, ProfileCatalog};
use crate::profiles::maintain;
use axum::http::StatusCode;
use backtrail_profile::format::{folded, pprof};
use backtrail_profile::{Profile, UnixNanos};
use backtrail_store::{Cancel, Origin, Writer, WriterLimits};
use serde_json::Value;
use std::sync::Arc;

/// A profile with one function.
struct Pushed<'a> {
    origin: &'a str,
    event: (&'a str, &'a str),
    period: u64,
    function: &'a str,
    weight: i64,
    note: Option<&'a str>,
}

const PUSHED: Pushed<'static> = Pushed {
    origin: "service=shop",
    event: ("cpu", "nanoseconds"),
    period: 0,
    function: "f",
    weight: 1,
    note: None,
};

impl Pushed<'_> {
    fn profile(&self) -> Profile {
        let text = format!("main;{} 1\n", self.function);
        let stack = folded::read(text.as_bytes()).unwrap().samples[0].stack;
        let mut profile = folded::read(text.as_bytes()).unwrap();
        profile.samples.clear();
        profile.events = Profile::default().events;
        let event = profile.event(self.event.0, self.event.1, self.period).unwrap();
        profile.add(event, self.weight, stack).unwrap();
        profile.notes.extend(self.note.map(str::to_owned));
        profile
    }

    /// Sends the profile as pprof, and returns the status and the text of the answer.
    async fn send(&self, site: &Site) -> (StatusCode, String) {
        let mut body = Vec::new();
        pprof::write(&self.profile(), &mut body).unwrap();
        let path = format!("/api/v1/profiles?{}", self.origin);
        let (status, text) = site.send("POST", &path, "application/octet-stream", body).await;
        (status, String::from_utf8(text).unwrap())
    }

    /// Stores the profile.
    async fn store(&self, site: &Site) {
        assert_eq!(self.send(site).await, (StatusCode::NO_CONTENT, String::new()));
    }
}

/// Returns an answer.
async fn get(site: &Site, path: &str) -> Vec<u8> {
    let (status, body) = site.send("GET", path, "", Vec::new()).await;
    assert_eq!(status, StatusCode::OK, "{path}");
    body
}

/// Returns the top functions of a selection.
async fn top(site: &Site, query: &str) -> Value {
    let path = format!("/api/v1/profiles/top?from=1d&{query}");
    serde_json::from_slice(&get(site, &path).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_over_all_periods() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for (period, weight, function) in [(10_000_000, 3, "f"), (20_000_000, 5, "g"), (0, 7, "h")] {
        let pushed = Pushed {
            period,
            weight,
            function,
            ..PUSHED
        };
        pushed.store(&site).await;
    }
    let found = top(&site, "service=shop").await;
    assert_eq!(found["total"], 15);
    assert_eq!(found["rows"].as_array().unwrap().len(), 3);
    assert_eq!(found["rows"][0]["share"], 7.0 / 15.0);
    let stacks = site.folded("service=shop&from=1d").await;
    let mut stacks: Vec<_> = stacks.lines().collect();
    stacks.sort_unstable();
    assert_eq!(stacks, ["main;f 3", "main;g 5", "main;h 7"]);
    let merged = get(&site, "/api/v1/profiles/merge?format=pprof&service=shop&from=1d").await;
    let merged = pprof::read(&merged).unwrap();
    let periods: Vec<_> = merged.events.iter().map(|(_, event)| event.period).collect();
    assert_eq!((periods, merged.samples.len()), (vec![0], 3));
    let page = get(&site, "/profiles/view?service=shop&from=1d").await;
    let page = String::from_utf8(page).unwrap();
    let event = "{\"name\":\"cpu\",\"unit\":\"nanoseconds\"}";
    assert_eq!(page.matches(event).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn units_of_time_and_memory_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for (name, unit, weight) in [
        ("cpu", "nanoseconds", 90),
        ("cpu", "microseconds", 1000),
        ("cpu", "ms", 2),
        ("alloc", "kilobytes", 3),
        ("alloc", "bytes", 5),
    ] {
        let pushed = Pushed {
            event: (name, unit),
            weight,
            ..PUSHED
        };
        pushed.store(&site).await;
    }
    let found = top(&site, "service=shop").await;
    assert_eq!(
        (&found["total"], &found["unit"]),
        (&3_000_090.into(), &"nanoseconds".into())
    );
    assert_eq!(found["notes"], Value::Array(Vec::new()));
    let found = top(&site, "service=shop&event=alloc").await;
    assert_eq!((&found["total"], &found["unit"]), (&3077.into(), &"bytes".into()));
    let (status, sentence) = Pushed {
        event: ("cpu", "seconds"),
        weight: i64::MAX,
        ..PUSHED
    }
    .send(&site)
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{sentence}");
    assert!(
        sentence.contains("more nanoseconds than 64 bits hold"),
        "{sentence}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sum_names_the_units_that_it_lacks() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for (unit, weight) in [("count", 1_000_000), ("nanoseconds", 9000)] {
        let pushed = Pushed {
            event: ("cpu", unit),
            weight,
            ..PUSHED
        };
        pushed.store(&site).await;
    }
    let found = top(&site, "").await;
    assert_eq!(
        (&found["total"], &found["unit"]),
        (&9000.into(), &"nanoseconds".into())
    );
    let note = "the selection also has cpu in count, which is not part of this sum";
    assert_eq!(found["notes"], Value::from(vec![note]));
    for path in [
        "/profiles/view?service=shop&from=1d",
        "/profiles?service=shop&from=1d&chart=distribution",
    ] {
        let page = String::from_utf8(get(&site, path).await).unwrap();
        assert!(page.contains(note), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_units_of_earlier_versions_are_converted() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let received = UnixNanos(clock::now().unsigned_abs() * 1000);
    // The writer of the store keeps units as they are.
    let catalog = Arc::new(ProfileCatalog::new(
        site.hub.database.clone(),
        site.hub.objects.clone(),
    ));
    let mut writer = Writer::new(site.hub.objects.below(PREFIX), catalog, WriterLimits::default());
    for (unit, weight) in [("nanoseconds", 90), ("microseconds", 1000)] {
        let pushed = Pushed {
            event: ("cpu", unit),
            weight,
            ..PUSHED
        };
        let origin = Origin {
            service: "shop".into(),
            ..Origin::default()
        };
        writer.add(&origin, &[], &pushed.profile(), received).unwrap();
    }
    writer.flush().await.unwrap();
    assert_eq!(top(&site, "service=shop").await["total"], 1_000_090);
    let merged = get(&site, "/api/v1/profiles/merge?format=pprof&service=shop&from=1d").await;
    let merged = pprof::read(&merged).unwrap();
    let totals: Vec<_> = merged.events.iter().map(|(id, _)| merged.total(id)).collect();
    assert_eq!(totals, [1_000_090]);
    let series = get(&site, "/api/v1/profiles/series?service=shop&from=1d&intervals=1").await;
    let series: Value = serde_json::from_slice(&series).unwrap();
    let weights = series["series"][0]["weights"].as_array().unwrap();
    let total: i64 = weights.iter().filter_map(Value::as_i64).sum();
    assert_eq!(
        (series["series"].as_array().unwrap().len(), total),
        (1, 1_000_090)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn notes_of_a_service_are_not_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for (origin, note) in [
        (
            "service=fuzz&host=a",
            Some("9 bytes of the recording are damaged"),
        ),
        ("service=shop&host=a", None),
    ] {
        let pushed = Pushed {
            origin,
            note,
            ..PUSHED
        };
        pushed.store(&site).await;
    }
    maintain::compact(&site.hub, &Cancel::default()).await.unwrap();
    let damaged = Value::from(vec!["9 bytes of the recording are damaged"]);
    assert_eq!(
        top(&site, "service=shop").await["notes"],
        Value::Array(Vec::new())
    );
    assert_eq!(top(&site, "service=fuzz").await["notes"], damaged);
    assert_eq!(top(&site, "host=a").await["notes"], damaged);
}
