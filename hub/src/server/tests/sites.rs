//! Three hubs with one profile each, of which one asks the others.

use crate::access::Scope;
use crate::clock;
use crate::config::{Config, Query, Sites};
use crate::hub::Hub;
use crate::server::listen;
use crate::server::routes::router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tower::ServiceExt;

/// A hub that listens.
struct Site {
    hub: Arc<Hub>,
    url: String,
    admin: String,
    ingest: String,
    read: String,
}

/// Returns a program that answers in place of `backtrail-query`: one row with the letter of the
/// hub. A query over `answers` has the number of their sites.
fn engine(data: &Path, name: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = data.join(format!("engine-{name}"));
    let script = format!(
        r#"#!/bin/sh
input=$(cat)
case "$input" in
*other_columns*) echo '{{"m":1}}'; echo '{{"coverage":{{"columns":[{{"name":"m-{name}","type":"Int64"}}]}}}}' >&2;;
*'"answers"'*)
  count=$(printf %s "$input" | grep -o '"site":"[a-z]*"' | wc -l)
  echo "{{\"sites\":$count}}"
  echo '{{"coverage":{{"returned":1,"columns":[{{"name":"sites","type":"Int64"}}]}}}}' >&2;;
*) echo '{{"hub":"{name}"}}'
  echo '{{"coverage":{{"segments":1,"returned":1,"truncated":false,"columns":[{{"name":"hub","type":"Utf8"}}]}}}}' >&2;;
esac
"#
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

impl Site {
    async fn open(data: &Path, name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let config = Config {
            data: data.join(name),
            listen: listener.local_addr().unwrap(),
            sites: Sites {
                allowed_addresses: vec!["127.0.0.1".to_owned()],
                seconds: 2,
            },
            query: Query {
                program: Some(engine(data, name)),
                ..Query::default()
            },
            ..Config::default()
        };
        let url = config.public_url();
        let hub = Hub::open(config).await.unwrap();
        let token = async |scope| {
            let (_, secret) = hub.database.create_token("t", &[scope], None).await.unwrap();
            secret.reveal().to_owned()
        };
        let (admin, ingest, read) = (
            token(Scope::Admin).await,
            token(Scope::Ingest).await,
            token(Scope::Read).await,
        );
        let routes = router(hub.clone());
        tokio::spawn(listen::serve(listener, None, routes, std::future::pending()));
        Self {
            hub,
            url,
            admin,
            ingest,
            read,
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
        is_of_site: bool,
    ) -> (StatusCode, HeaderMap, String) {
        let is_push = path.starts_with("/api/v1/profiles?");
        let token = if is_push { &self.ingest } else { &self.admin };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::AUTHORIZATION, format!("Bearer {token}"));
        if is_of_site {
            request = request.header("backtrail-site", "1");
        }
        let request = request.body(Body::from(body)).unwrap();
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, 8 << 20).await.unwrap();
        (
            parts.status,
            parts.headers,
            String::from_utf8_lossy(&body).into_owned(),
        )
    }

    async fn push(&self, text: &str) {
        self.push_to("/api/v1/profiles?service=shop", text).await;
    }

    async fn push_to(&self, path: &str, text: &str) {
        let (status, _, body) = self.send("POST", path, text.into(), false).await;
        assert!(status.is_success(), "{body}");
    }

    async fn sql(&self, request: Value) -> (StatusCode, Value) {
        let body = request.to_string().into_bytes();
        let (status, _, text) = self.send("POST", "/api/v1/profiles/sql", body, false).await;
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.send("GET", path, Vec::new(), false).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Returns the folded stacks of all sites, and the header of a partial result.
    async fn folded(&self, sites: &str) -> (String, Option<String>) {
        let path = format!("/api/v1/profiles/merge?format=folded&service=shop&from=1d&sites={sites}");
        let (status, headers, body) = self.send("GET", &path, Vec::new(), false).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let partial = headers.get("backtrail-partial");
        (body, partial.map(|value| value.to_str().unwrap().to_owned()))
    }

    async fn set(&self, name: &str, url: &str, token: &str) -> (StatusCode, String) {
        let body = json!({ "url": url, "token": token }).to_string();
        let path = format!("/api/v1/sites/{name}");
        let (status, _, text) = self.send("PUT", &path, body.into_bytes(), false).await;
        (status, text)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hubs_answer_as_one_and_missing_ones_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let a = Site::open(folder.path(), "a").await;
    let b = Site::open(folder.path(), "b").await;
    let c = Site::open(folder.path(), "c").await;
    a.push("main;parse 3\n").await;
    b.push("main;parse 4\nmain;write 5\n").await;
    c.push("main;parse 10\nmain;old 1\n").await;
    for (name, site) in [("b", &b), ("c", &c)] {
        assert_eq!(
            a.set(name, &site.url, &site.read).await,
            (StatusCode::NO_CONTENT, String::new())
        );
        // The others know this hub too. No request goes around.
        let set = site.set("a", &a.url, &a.read).await;
        assert_eq!(set.0, StatusCode::NO_CONTENT);
    }
    // Clocks of whole seconds end in the second after the pushes.
    assert_eq!(a.folded("").await, ("main;parse 3\n".to_owned(), None));
    let all = "main;old 1\nmain;parse 17\nmain;write 5\n".to_owned();
    assert_eq!(a.folded("all").await, (all.clone(), None));
    assert_eq!(
        b.folded("a").await,
        ("main;parse 7\nmain;write 5\n".to_owned(), None)
    );
    let top = a
        .get("/api/v1/profiles/top?service=shop&from=1d&sites=all&rows=1")
        .await;
    assert_eq!(
        (&top["rows"][0]["function"], &top["rows"][0]["weight"]),
        (&json!("parse"), &json!(17))
    );
    assert_eq!((&top["total"], &top["partial"]), (&json!(23), &json!(false)));
    let complete = |name: &str| json!({ "name": name, "state": "complete" });
    assert_eq!(top["sites"], json!([complete("b"), complete("c")]));
    let path = "/api/v1/profiles/series?service=shop&from=1d&intervals=4";
    let total = |answer: &Value| -> i64 {
        let weights = answer["series"][0]["weights"].as_array().unwrap();
        weights.iter().map(|weight| weight.as_i64().unwrap()).sum()
    };
    assert_eq!(total(&a.get(path).await), 3);
    let series = a.get(&format!("{path}&sites=all")).await;
    assert_eq!(
        (total(&series), &series["partial"]),
        (23, &json!(false)),
        "{series}"
    );
    // A site without samples of the selection is complete.
    b.push("main;only_b 1\n").await;
    let focused = a.folded("b,c&focus=only_b").await;
    assert_eq!(focused, ("main;only_b 1\n".to_owned(), None));

    // A hub that is gone, one that never answers, and one that refuses.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gone_url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_url = format!("http://{}", silent.local_addr().unwrap());
    a.set("c", &gone_url, "x").await;
    a.set("d", &silent_url, "x").await;
    a.set("e", &c.url, "bthub_wrong").await;
    let begun = Instant::now();
    let top = a.get("/api/v1/profiles/top?service=shop&from=1d&sites=all").await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    assert_eq!((&top["partial"], &top["total"]), (&json!(true), &json!(13)));
    let states: Vec<_> = top["sites"]
        .as_array()
        .unwrap()
        .iter()
        .map(|site| &site["state"])
        .collect();
    assert_eq!(states, ["complete", "failed", "late", "failed"], "{top}");
    assert!(
        top["sites"][3]["reason"].as_str().unwrap().contains("401"),
        "{top}"
    );
    assert!(
        top["notes"]
            .to_string()
            .contains("partial result: site d is missing"),
        "{top}"
    );
    let (_, partial) = a.folded("all").await;
    let partial = partial.unwrap();
    assert!(
        partial.contains("c: it cannot be reached") && partial.contains("d: no answer"),
        "{partial}"
    );
    let (status, _, page) = a
        .send("GET", "/profiles?service=shop&sites=all", Vec::new(), false)
        .await;
    assert!(
        status.is_success() && page.contains("site d is missing: no answer in 2 s"),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_of_several_sites_is_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let a = Site::open(folder.path(), "a").await;
    let b = Site::open(folder.path(), "b").await;
    let c = Site::open(folder.path(), "c").await;
    a.set("b", &b.url, &b.read).await;
    a.set("c", &c.url, &c.read).await;
    let (status, own) = a.sql(json!({ "sql": "SELECT hub" })).await;
    assert_eq!(
        (status, &own["rows"]),
        (StatusCode::OK, &json!([{ "hub": "a" }])),
        "{own}"
    );
    let (status, all) = a.sql(json!({ "sql": "SELECT hub", "sites": "all" })).await;
    assert_eq!(status, StatusCode::OK, "{all}");
    let row = |site: &str, hub: &str| json!({ "site": site, "hub": hub });
    assert_eq!(
        all["rows"],
        json!([row("local", "a"), row("b", "b"), row("c", "c")])
    );
    assert_eq!(
        (&all["partial"], &all["coverage"]["segments"]),
        (&json!(false), &json!(3))
    );
    let combine = "SELECT count(*) AS sites FROM answers";
    let (_, sum) = a
        .sql(json!({ "sql": "SELECT hub", "sites": "all", "combine": combine }))
        .await;
    assert_eq!(sum["rows"], json!([{ "sites": 3 }]), "{sum}");
    // A site that refuses is named, and one whose columns differ too.
    a.set("c", &c.url, "bthub_wrong").await;
    let (_, part) = a
        .sql(json!({ "sql": "SELECT hub", "sites": "all", "combine": combine }))
        .await;
    assert_eq!(
        (&part["rows"], &part["partial"]),
        (&json!([{ "sites": 2 }]), &json!(true)),
        "{part}"
    );
    assert!(
        part["sites"][1]["reason"].as_str().unwrap().contains("401"),
        "{part}"
    );
    let (_, other) = a
        .sql(json!({ "sql": "SELECT other_columns", "sites": "b" }))
        .await;
    assert_eq!(other["rows"].as_array().unwrap().len(), 1, "{other}");
    assert!(
        other["sites"][0]["reason"].as_str().unwrap().contains("columns"),
        "{other}"
    );
    for wrong in [
        json!({ "sql": "SELECT hub", "combine": combine }),
        json!({ "sql": "SELECT hub", "sites": "a b" }),
    ] {
        assert_eq!(a.sql(wrong).await.0, StatusCode::BAD_REQUEST);
    }
    let job = json!({ "name": "hubs", "schedule": "hourly", "query":
        { "kind": "sql", "sql": "SELECT hub", "sites": "all", "combine": combine } });
    let job: crate::query_jobs::definition::JobDefinition = serde_json::from_value(job).unwrap();
    let now = clock::now();
    let times = crate::query_jobs::execute::RunTimes { now, due: now };
    let output = crate::query_jobs::execute::execute(&a.hub, &job.query, times)
        .await
        .unwrap();
    assert_eq!(output.watched(&job), Some(2.0));
    assert!(
        output.result.notes[0].contains("site c is missing"),
        "{:?}",
        output.result.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn builds_are_compared_over_several_sites() {
    let folder = tempfile::tempdir().unwrap();
    let a = Site::open(folder.path(), "a").await;
    let b = Site::open(folder.path(), "b").await;
    a.set("b", &b.url, &b.read).await;
    for (at, site) in [&a, &b].into_iter().enumerate() {
        for number in 0..3 {
            for (build, planted) in [("1", 300), ("2", 900)] {
                let path = format!("/api/v1/profiles?service=shop&build={build}&host=h{number}");
                let noise = (at * 3 + number) * 7 % 5;
                let text = format!("main;parse {}\nmain;planted {}\n", 2000 + noise, planted + noise);
                site.push_to(&path, &text).await;
            }
        }
    }
    let path = "/api/v1/profiles/regressions?service=shop&event=samples&before=1&after=2&intervals=1";
    let own = a.get(path).await;
    assert_eq!(
        (&own["units"], &own["partial"]),
        (&json!([3, 3]), &json!(false)),
        "{own}"
    );
    let all = a.get(&format!("{path}&sites=all")).await;
    assert_eq!(
        (&all["units"], &all["partial"]),
        (&json!([6, 6]), &json!(false)),
        "{all}"
    );
    let slower = all["changes"].as_array().unwrap();
    let slower = slower.iter().filter(|change| change["direction"] == "slower");
    let names: Vec<_> = slower.map(|change| &change["function"]).collect();
    assert_eq!(names, ["planted"], "{all}");
    a.set("b", &b.url, "bthub_wrong").await;
    let part = a.get(&format!("{path}&sites=all")).await;
    assert_eq!(
        (&part["units"], &part["partial"]),
        (&json!([3, 3]), &json!(true)),
        "{part}"
    );
    assert!(part["notes"].to_string().contains("site b is missing"), "{part}");
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_a_hub_asks_does_not_ask_further() {
    let folder = tempfile::tempdir().unwrap();
    let a = Site::open(folder.path(), "a").await;
    a.push("main 1\n").await;
    for path in [
        "merge?format=pprof",
        "top?rows=1",
        "series?intervals=2",
        "regressions?before=1&after=2",
    ] {
        let is_answer = !path.starts_with("regressions");
        let path = format!("/api/v1/profiles/{path}&service=shop&from=1d");
        let (status, _, text) = a.send("GET", &path, Vec::new(), true).await;
        assert_eq!(status == StatusCode::OK, is_answer, "{text}");
        let (status, _, text) = a
            .send("GET", &format!("{path}&sites=all"), Vec::new(), true)
            .await;
        assert!(
            status == StatusCode::BAD_REQUEST && text.contains("does not ask further"),
            "{text}"
        );
    }
    let empty = "/api/v1/profiles/merge?service=none&from=1d";
    let (status, ..) = a.send("GET", empty, Vec::new(), true).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (status, ..) = a.send("GET", empty, Vec::new(), false).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn sites_are_checked_and_tokens_are_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let a = Site::open(folder.path(), "a").await;
    for (name, url, reason) in [
        ("eu", "http://hub.example", "https://"),
        ("eu", "file:///etc/passwd", "https://"),
        ("eu", "https://ada:x@hub.example", "without user"),
        ("eu", "https://hub.example/?x=", "no query"),
        ("all", "https://hub.example", "is not `all`"),
        ("e%20u", "https://hub.example", "name of a site"),
    ] {
        let (status, text) = a.set(name, url, "secret").await;
        assert!(
            status == StatusCode::BAD_REQUEST && text.contains(reason),
            "{url}: {text}"
        );
    }
    // An address that is not allowed is refused when it is asked, whatever its name says.
    let b = Site::open(folder.path(), "b").await;
    let port = b.url.rsplit(':').next().unwrap();
    let internal = format!("https://127.0.0.2:{port}");
    assert_eq!(
        a.set("eu", &internal, "top-secret").await.0,
        StatusCode::NO_CONTENT
    );
    let top = a.get("/api/v1/profiles/top?sites=eu").await;
    assert!(
        top["sites"][0]["reason"]
            .as_str()
            .unwrap()
            .contains("internal address"),
        "{top}"
    );
    let (_, _, list) = a.send("GET", "/api/v1/sites", Vec::new(), false).await;
    let (_, _, page) = a.send("GET", "/settings/sites", Vec::new(), false).await;
    for text in [&list, &page] {
        assert!(
            text.contains("127.0.0.2") && !text.contains("top-secret"),
            "{text}"
        );
    }
    // The token stays with its address, and is not sent to another one.
    let change = async |body: Value| {
        let body = body.to_string().into_bytes();
        a.send("PUT", "/api/v1/sites/eu", body, false).await.0
    };
    let same = change(json!({ "url": format!("{internal}/"), "enabled": false })).await;
    assert_eq!(same, StatusCode::NO_CONTENT);
    let other = change(json!({ "url": "https://hub.example" })).await;
    assert_eq!(other, StatusCode::BAD_REQUEST);
    let path = "/api/v1/profiles/top?sites=eu";
    let (status, ..) = a.send("GET", path, Vec::new(), false).await;
    assert_eq!(
        status,
        StatusCode::NOT_FOUND,
        "a site that is off cannot be named"
    );
    let (status, ..) = a.send("DELETE", "/api/v1/sites/eu", Vec::new(), false).await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let entries = a.hub.database.audit(10).await.unwrap();
    let mut actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    actions.sort_unstable();
    assert_eq!(actions, ["add site", "change site", "remove site"]);
    assert!(entries.iter().all(|entry| entry.time <= clock::now()));
}
