//! Sums of the profile store: events with several periods.

use super::profiles::Site;
use axum::http::StatusCode;
use backtrail_profile::Profile;
use backtrail_profile::format::{folded, pprof};
use serde_json::Value;

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
    /// Sends the profile as pprof, and returns the status and the text of the answer.
    async fn send(&self, site: &Site) -> (StatusCode, String) {
        let text = format!("main;{} 1\n", self.function);
        let stack = folded::read(text.as_bytes()).unwrap().samples[0].stack;
        let mut profile = folded::read(text.as_bytes()).unwrap();
        profile.samples.clear();
        profile.events = Profile::default().events;
        let event = profile.event(self.event.0, self.event.1, self.period).unwrap();
        profile.add(event, self.weight, stack).unwrap();
        profile.notes.extend(self.note.map(str::to_owned));
        let mut body = Vec::new();
        pprof::write(&profile, &mut body).unwrap();
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
