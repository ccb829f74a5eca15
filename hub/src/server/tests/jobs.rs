//! Jobs through the API and the pages, and regressions that a job finds in pushed profiles.

use crate::access::Scope;
use crate::clock;
use crate::config::Config;
use crate::hub::Hub;
use crate::notify::AlertChannel;
use crate::query_jobs::run::run_due;
use crate::server::guard::form_key;
use crate::server::routes::router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use backtrail_profile::UnixNanos;
use backtrail_profile::format::{folded, pprof};
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use tower::ServiceExt;

/// A hub with tokens, whose routes are called without a network.
struct Site {
    hub: Arc<Hub>,
    ingest: String,
    read: String,
    admin: String,
}

impl Site {
    async fn open(data: &Path) -> Self {
        let channel: AlertChannel =
            toml::from_str("name = 'hook'\nkind = 'webhook'\nurl = 'http://127.0.0.1:1/'").unwrap();
        let config = Config {
            data: data.to_owned(),
            alert: vec![channel],
            ..Config::default()
        };
        let hub = Hub::open(config).await.unwrap();
        let token = async |scope| {
            let (_, secret) = hub.database.create_token("t", &[scope], None).await.unwrap();
            secret.reveal().to_owned()
        };
        Self {
            ingest: token(Scope::Ingest).await,
            read: token(Scope::Read).await,
            admin: token(Scope::Admin).await,
            hub,
        }
    }

    async fn send(&self, token: &str, method: &str, path: &str, body: Vec<u8>) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        let response = router(self.hub.clone())
            .oneshot(request.body(Body::from(body)).unwrap())
            .await
            .unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 8 << 20).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn json(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let (status, text) = self.send(&self.admin, method, path, body.into_bytes()).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn add(&self, job: &Value) -> String {
        let (status, answer) = self.json("POST", "/api/v1/jobs", job).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    /// Sends a form of a page, and returns the status and the address of the redirect.
    async fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> (StatusCode, String) {
        let mut body = form_urlencoded::Serializer::new(String::new());
        body.append_pair("csrf", &form_key(&self.admin));
        for (name, value) in fields {
            body.append_pair(name, value);
        }
        let request = Request::builder()
            .method("POST")
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::COOKIE, format!("backtrail_session={}", self.admin))
            .body(Body::from(body.finish()))
            .unwrap();
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let location = response.headers().get(header::LOCATION);
        let location = location.map(|value| value.to_str().unwrap().to_owned());
        (response.status(), location.unwrap_or_default())
    }

    /// Sends folded stacks as a profile that was taken at a time.
    async fn push(&self, query: &str, text: &str, time: i64) {
        let mut profile = folded::read(text.as_bytes()).unwrap();
        profile.start = Some(UnixNanos(time.unsigned_abs() * 1000));
        let mut body = Vec::new();
        pprof::write(&profile, &mut body).unwrap();
        let path = format!("/api/v1/profiles?{query}");
        let (status, text) = self.send(&self.ingest, "POST", &path, body).await;
        assert!(status.is_success(), "{text}");
    }

    async fn alerts(&self) -> Vec<Value> {
        let deliveries = self.hub.database.deliveries("hook", 1000).await.unwrap();
        let read = |payload: String| serde_json::from_str(&payload).unwrap();
        deliveries.into_iter().map(|one| read(one.payload)).collect()
    }
}

fn top(name: &str) -> Value {
    json!({
        "name": name,
        "query": { "kind": "top", "selection": { "service": "shop", "event": "samples" }, "rows": 3 },
        "schedule": "hourly",
        "threshold": { "column": "share", "comparison": ">=", "value": 0.5 },
        "metrics": true,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn job_is_added_changed_run_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    site.push(
        "service=shop&host=a",
        "main;parse 30\nmain;write 10\n",
        clock::now(),
    )
    .await;
    let id = site.add(&top("shares")).await;
    let path = format!("/api/v1/jobs/{id}");
    let (status, job) = site.json("GET", &path, &Value::Null).await;
    assert_eq!((status, &job["last_run"]), (StatusCode::OK, &Value::Null));
    assert_eq!(job["definition"]["threshold"]["column"], "share");
    let (status, _) = site.json("POST", &format!("{path}/run"), &Value::Null).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let now = clock::now() + clock::SECOND;
    assert_eq!(run_due(&site.hub, now).await.unwrap(), 1);
    let (_, runs) = site
        .json("GET", &format!("{path}/runs?limit=5"), &Value::Null)
        .await;
    assert_eq!(runs[0]["state"], "done", "{runs}");
    assert_eq!(
        (&runs[0]["value"], &runs[0]["origin"]),
        (&json!(0.75), &json!("person"))
    );
    let run = format!("{path}/runs/{}", runs[0]["id"].as_str().unwrap());
    let (_, run) = site.json("GET", &run, &Value::Null).await;
    assert_eq!(run["result"]["rows"][0]["function"], "parse");
    assert_eq!(run["result"]["columns"][1], "share");
    assert_eq!(site.alerts().await[0]["event"], "job-alert");
    let (_, metrics) = site.send(&site.read, "GET", "/metrics", Vec::new()).await;
    let line = "backtrail_hub_query_job_value{job=\"shares\",column=\"share\"} 0.75\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("backtrail_hub_query_job_alerting{job=\"shares\"} 1\n"));
    let mut changed = top("renamed");
    changed["metrics"] = json!(false);
    let (status, job) = site.json("PUT", &path, &changed).await;
    assert_eq!(
        (status, &job["definition"]["name"]),
        (StatusCode::OK, &json!("renamed"))
    );
    let (_, metrics) = site.send(&site.read, "GET", "/metrics", Vec::new()).await;
    assert!(!metrics.contains("query_job"), "{metrics}");
    let (status, _) = site.json("DELETE", &path, &Value::Null).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, _) = site.json("GET", &path, &Value::Null).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let entries = site.hub.database.audit(10).await.unwrap();
    let mut actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["add job", "change job", "delete job", "run job"]);
}

/// Returns a job over twelve intervals of five minutes.
fn series(name: &str, comparison: &str, value: f64) -> Value {
    json!({
        "name": name,
        "query": {
            "kind": "series",
            "selection": { "service": "steady", "event": "samples", "from": "1h" },
            "intervals": 12,
        },
        "schedule": "every 5m",
        "threshold": { "column": "weight", "comparison": comparison, "value": value },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn series_compares_the_newest_complete_interval() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let minutes = |minutes: i64| minutes * 60 * clock::SECOND;
    let id = site.add(&series("few", "<", 25.0)).await;
    site.add(&series("many", ">", 35.0)).await;
    let due = site.hub.database.query_job(&id).await.unwrap().next_run;
    // One profile each minute, but for the last one, whose profile has not arrived.
    let times = (2..=75).map(|number| due - minutes(number));
    let pushes = times.map(|time| site.push("service=steady", "main;parse 6\n", time));
    futures_util::future::join_all(pushes).await;
    // The hub was busy for a minute.
    assert_eq!(run_due(&site.hub, due + minutes(1)).await.unwrap(), 2);
    assert!(site.alerts().await.is_empty());
    let path = format!("/api/v1/jobs/{id}/runs");
    let (_, runs) = site.json("GET", &path, &Value::Null).await;
    assert_eq!(
        (&runs[0]["value"], &runs[0]["row_count"]),
        (&json!(30.0), &json!(12))
    );
    let run = format!("{path}/{}", runs[0]["id"].as_str().unwrap());
    let (_, run) = site.json("GET", &run, &Value::Null).await;
    let rows = run["result"]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["weight"] == 30), "{run}");
    let newest = crate::profiles::selection::time_text((due - minutes(6)).unsigned_abs() * 1000);
    assert_eq!(rows[0]["time"], newest);
}

#[tokio::test(flavor = "multi_thread")]
async fn series_has_the_wanted_parts_of_its_time() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    site.push("service=shop", "main;parse 30\n", clock::now()).await;
    for intervals in [1_usize, 7, 12] {
        let path =
            format!("/api/v1/profiles/series?service=shop&from=2020-01-01T00:01&intervals={intervals}");
        let (_, answer) = site.json("GET", &path, &Value::Null).await;
        let series = &answer["series"][0];
        assert_eq!(series["start"], 1_577_836_860_000_000_000_u64, "{answer}");
        assert_eq!(series["weights"].as_array().unwrap().len(), intervals);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_jobs_and_change_none() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let id = site.add(&top("shares")).await;
    let body = || top("other").to_string().into_bytes();
    for (method, path) in [
        ("POST", "/api/v1/jobs".to_owned()),
        ("PUT", format!("/api/v1/jobs/{id}")),
        ("DELETE", format!("/api/v1/jobs/{id}")),
        ("POST", format!("/api/v1/jobs/{id}/run")),
    ] {
        let (status, _) = site.send(&site.read, method, &path, body()).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path}");
    }
    let (status, list) = site.send(&site.read, "GET", "/api/v1/jobs", Vec::new()).await;
    assert!(status.is_success() && list.contains("shares"), "{list}");
    let (status, page) = site
        .send(&site.read, "GET", &format!("/jobs/{id}"), Vec::new())
        .await;
    assert!(status.is_success() && !page.contains("id=\"change\""), "{page}");
    for wrong in [
        json!({}),
        json!({ "name": "", "query": { "kind": "sql", "sql": "SELECT 1" }, "schedule": "hourly" }),
        json!({ "name": "a", "query": { "kind": "sql", "sql": "SELECT 1" }, "schedule": "often" }),
    ] {
        let (status, answer) = site.json("POST", "/api/v1/jobs", &wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(answer["error"].is_string(), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_and_change_a_job() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let page = async |path: &str| {
        let (status, page) = site.send(&site.admin, "GET", path, Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{path}: {page}");
        page
    };
    assert!(page("/jobs").await.contains("No jobs yet"));
    assert!(page("/jobs/new").await.contains("name=\"schedule\""));
    let fields = [
        ("name", "weights <b>"),
        ("kind", "series"),
        ("schedule", "every 5m"),
        ("service", "shop"),
        ("event", "samples"),
        ("from", "1h"),
        ("count", "6"),
        ("enabled", "1"),
        ("column", "weight"),
        ("comparison", ">"),
        ("value", "1000"),
    ];
    let (status, address) = site.post_form("/jobs", &fields).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert!(page(&address).await.contains("There is no result yet"));
    site.push("service=shop", "main;parse 30\n", clock::now()).await;
    let now = clock::now() + 600 * clock::SECOND;
    assert_eq!(run_due(&site.hub, now).await.unwrap(), 1);
    let shown = page(&address).await;
    for text in [
        "weights &lt;b&gt;",
        "weight &gt; 1000",
        "<td>samples</td>",
        "state ok",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(page("/jobs").await.contains("class=\"spark line\""));
    let (status, _) = site.post_form(&format!("{address}/run"), &[]).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert_eq!(run_due(&site.hub, now + 1).await.unwrap(), 1);
    let (status, _) = site.post_form(&address, &[("name", "n"), ("kind", "poem")]).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, list) = site.post_form(&format!("{address}/delete"), &[]).await;
    assert_eq!((status, list.as_str()), (StatusCode::SEE_OTHER, "/jobs"));
    assert!(page("/jobs").await.contains("No jobs yet"));
}

/// A generator of random numbers (xorshift64*).
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The sum of twelve uniform numbers is nearly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

const FUNCTIONS: usize = 200;
const HOSTS: usize = 8;

/// Returns the folded stacks of a host. Functions have shares like a power law, a noise of 5 % for
/// the mix of requests, and that of counts. `planted` costs 3 % of the total more.
fn host_profile(random: &mut Random, planted: Option<usize>) -> String {
    let total: f64 = (1..=FUNCTIONS).map(|rank| 1.0 / rank as f64).sum();
    let samples = 20_000.0 * (0.5 + random.uniform());
    let mut text = String::new();
    for function in 0..FUNCTIONS {
        let more = if planted == Some(function) { 0.03 } else { 0.0 };
        let share = 1.0 / (function + 1) as f64 / total + more;
        let mean = samples * share * (1.0 + 0.05 * random.normal());
        let count = (mean + mean.max(0.0).sqrt() * random.normal()).max(0.0).round();
        if count > 0.0 {
            text += &format!("main;f{function} {count}\n");
        }
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn job_finds_planted_regressions_and_no_others() {
    find_planted_regressions(1..=3).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn job_finds_planted_regressions_and_no_others_over_20_seeds() {
    find_planted_regressions(1..=20).await;
}

/// Compares builds of a service with a planted regression, and of one without, for each seed.
async fn find_planted_regressions(seeds: RangeInclusive<u64>) {
    for seed in seeds {
        let now = clock::now();
        let folder = tempfile::tempdir().unwrap();
        let site = Site::open(folder.path()).await;
        let mut random = Random(seed);
        let planted = 5 + (random.uniform() * (FUNCTIONS - 5) as f64) as usize;
        let mut jobs = Vec::new();
        for (service, after) in [("planted", Some(planted)), ("plain", None)] {
            for (build, function, hours) in [("1", None, 2), ("2", after, 1)] {
                for host in 0..HOSTS {
                    let query = format!("service={service}&build={build}&host=h{host}");
                    let text = host_profile(&mut random, function);
                    site.push(&query, &text, now - hours * clock::HOUR).await;
                }
            }
            let compare = json!({ "service": service, "event": "samples", "intervals": "2" });
            let query = json!({ "kind": "regression", "compare": compare });
            let job = json!({ "name": service, "query": query, "schedule": "every 5m" });
            jobs.push(site.add(&job).await);
        }
        // Jobs are due by the time at which they were added.
        let added = clock::now();
        // The second run must not announce the function again.
        for run in 1..=2 {
            let time = added + run * 400 * clock::SECOND;
            assert_eq!(run_due(&site.hub, time).await.unwrap(), 2, "seed {seed}");
        }
        let mut results = Vec::new();
        for job in &jobs {
            let (run, text) = site
                .hub
                .database
                .last_query_job_result(job)
                .await
                .unwrap()
                .unwrap();
            assert_eq!((run.state.as_str(), run.problem), ("done", None));
            let result: Value = serde_json::from_str(&text).unwrap();
            results.push(result);
        }
        let function = format!("f{planted}");
        let rows = results[0]["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "seed {seed}, {function}: {}", results[0]);
        assert_eq!(
            (&rows[0]["function"], &rows[0]["direction"]),
            (&json!(function), &json!("slower"))
        );
        let bound = |name: &str| rows[0][name].as_f64().unwrap();
        assert!(
            bound("low") < 0.03 && 0.03 < bound("high"),
            "seed {seed}: {}",
            rows[0]
        );
        assert_eq!(results[1]["rows"], json!([]), "seed {seed}: {}", results[1]);
        let alerts = site.alerts().await;
        assert_eq!(alerts.len(), 1, "seed {seed}: {alerts:?}");
        assert_eq!(alerts[0]["event"], "job-regression");
        assert_eq!(alerts[0]["builds"], json!(["1", "2"]));
        assert_eq!(alerts[0]["functions"][0]["function"], json!(function));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_that_cannot_be_compared_yet_are_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let compare = json!({ "service": "s", "event": "samples" });
    let job = json!({
        "name": "s", "schedule": "every 5m", "query": { "kind": "regression", "compare": compare },
    });
    let id = site.add(&job).await;
    let now = clock::now();
    let note = async |run: i64| {
        let time = now + run * 400 * clock::SECOND;
        assert_eq!(run_due(&site.hub, time).await.unwrap(), 1);
        let (_, text) = site
            .hub
            .database
            .last_query_job_result(&id)
            .await
            .unwrap()
            .unwrap();
        let result: Value = serde_json::from_str(&text).unwrap();
        result["notes"][0].as_str().unwrap().to_owned()
    };
    assert!(note(1).await.contains("fewer than two builds"));
    for (build, hours) in [("1", 2), ("2", 1)] {
        let query = format!("service=s&host=a&build={build}");
        site.push(&query, "main;f 10\n", now - hours * clock::HOUR).await;
    }
    let text = note(2).await;
    assert!(text.contains("at least two observations"), "{text}");
    assert!(site.alerts().await.is_empty());
}
