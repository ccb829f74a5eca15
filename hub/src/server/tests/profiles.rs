//! Pushes of several clients, and the queries and pages that show them.

use crate::access::Scope;
use crate::config::{Config, Profiles};
use crate::hub::Hub;
use crate::profiles::maintain;
use crate::profiles::push::parca;
use crate::profiles::push::pyroscope::{LabelPair, PushRequest, RawProfileSeries, RawSample};
use crate::server::routes::router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use backtrail_profile::format::{folded, otlp, pprof};
use backtrail_profile::{Profile, UnixNanos};
use backtrail_store::Cancel;
use http_body_util::BodyExt;
use prost::Message;
use std::path::Path;
use std::sync::Arc;
use tower::ServiceExt;

/// A hub with tokens, whose routes are called without a network.
pub(super) struct Site {
    pub(super) hub: Arc<Hub>,
    ingest: String,
    read: String,
}

impl Site {
    pub(super) async fn open(data: &Path) -> Self {
        let config = Config {
            data: data.to_owned(),
            ..Config::default()
        };
        Self::with(config).await
    }

    pub(super) async fn with(config: Config) -> Self {
        let hub = Hub::open(config).await.unwrap();
        let token = async |scope| {
            let (_, secret) = hub.database.create_token("t", &[scope], None).await.unwrap();
            secret.reveal().to_owned()
        };
        let (ingest, read) = (token(Scope::Ingest).await, token(Scope::Admin).await);
        Self { hub, ingest, read }
    }

    pub(super) async fn send(
        &self,
        method: &str,
        path: &str,
        media: &str,
        body: Vec<u8>,
    ) -> (StatusCode, Vec<u8>) {
        let token = match method {
            "POST" if !path.starts_with("/api/v1/profile-requests") || path.ends_with("/end") => &self.ingest,
            "GET" if path.starts_with("/api/v1/profile-requests/next") => &self.ingest,
            _ => &self.read,
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::CONTENT_TYPE, media)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header("prefer", "wait=20")
            .body(Body::from(body))
            .unwrap();
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 64 << 20)
            .await
            .unwrap();
        (status, body.to_vec())
    }

    pub(super) async fn push(&self, path: &str, body: &[u8]) -> StatusCode {
        let (status, text) = self
            .send("POST", path, "application/octet-stream", body.to_vec())
            .await;
        assert!(
            status.is_success() || !text.is_empty(),
            "{status} without a sentence"
        );
        status
    }

    /// Returns the folded stacks of a selection.
    pub(super) async fn folded(&self, query: &str) -> String {
        let path = format!("/api/v1/profiles/merge?format=folded&{query}");
        let (status, body) = self.send("GET", &path, "", Vec::new()).await;
        let text = String::from_utf8(body).unwrap();
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }
}

fn parsed(text: &str) -> Profile {
    folded::read(text.as_bytes()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pushes_of_each_client_are_added_up() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let ok = |status: StatusCode| assert!(status.is_success(), "{status}");
    ok(site
        .push(
            "/api/v1/profiles?service=shop&host=a&build=1",
            b"main;parse 30\nmain;write 12\n",
        )
        .await);
    ok(site
        .push("/ingest?name=shop%7Bhost%3Db%7D&format=folded", b"main;parse 5\n")
        .await);
    let mut packed = Vec::new();
    pprof::write(&parsed("main;send 7\n"), &mut packed).unwrap();
    let request = PushRequest {
        series: vec![RawProfileSeries {
            labels: vec![LabelPair {
                name: "service_name".to_owned(),
                value: "shop".to_owned(),
            }],
            samples: vec![RawSample {
                raw_profile: packed,
                id: String::new(),
            }],
        }],
    };
    let (status, body) = site
        .send(
            "POST",
            "/push.v1.PusherService/Push",
            "application/proto",
            request.encode_to_vec(),
        )
        .await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));
    let mut message = Vec::new();
    otlp::write(&parsed("main;recv 9\n"), &mut message).unwrap();
    let (status, body) = site
        .send(
            "POST",
            "/v1development/profiles",
            "application/x-protobuf",
            message,
        )
        .await;
    assert_eq!((status, body.len()), (StatusCode::OK, 0));

    let shop = site.folded("service=shop&from=1d").await;
    assert_eq!(shop, "main;parse 35\nmain;send 7\nmain;write 12\n");
    assert_eq!(site.folded("service=shop&host=b").await, "main;parse 5\n");
    assert_eq!(site.folded("service=unknown").await, "main;recv 9\n");
    assert_eq!(
        site.folded("service=shop&build=1&focus=write").await,
        "main;write 12\n"
    );
    let (_, values) = site
        .send(
            "GET",
            "/api/v1/profiles/values?column=service&prefix=sh",
            "",
            Vec::new(),
        )
        .await;
    assert_eq!(
        String::from_utf8(values).unwrap(),
        r#"{"values":["shop"],"has_more":false}"#
    );
}

/// Calls a method of gRPC, and returns its status and its sentence.
async fn call(site: &Site, method: &str, message: &[u8]) -> (String, String) {
    let mut body = vec![0];
    body.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    body.extend_from_slice(message);
    let request = Request::builder()
        .method("POST")
        .uri(format!("http://127.0.0.1:7777{method}"))
        .header(header::CONTENT_TYPE, "application/grpc")
        .header("te", "trailers")
        .header(header::AUTHORIZATION, format!("Bearer {}", site.ingest))
        .body(Body::from(body))
        .unwrap();
    let response = router(site.hub.clone()).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut headers = response.headers().clone();
    let collected = response.into_body().collect().await.unwrap();
    headers.extend(collected.trailers().cloned().unwrap_or_default());
    let text = |name: &str| {
        let value = headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        value.unwrap_or_default()
    };
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_grpc_are_stored_or_refused() {
    const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";
    const WRITE_RAW: &str = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw";
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let mut message = Vec::new();
    otlp::write(&parsed("main;recv 9\n"), &mut message).unwrap();
    assert_eq!(call(&site, EXPORT, &message).await.0, "0");
    let mut packed = Vec::new();
    pprof::write(&parsed("main;send 7\n"), &mut packed).unwrap();
    let raw = |profile: &[u8]| parca::WriteRawRequest {
        series: vec![parca::RawProfileSeries {
            labels: Some(parca::LabelSet {
                labels: vec![parca::Label {
                    name: "job".to_owned(),
                    value: "shop".to_owned(),
                }],
            }),
            samples: vec![parca::RawSample {
                raw_profile: profile.to_vec(),
            }],
        }],
    };
    assert_eq!(call(&site, WRITE_RAW, &raw(&packed).encode_to_vec()).await.0, "0");
    assert_eq!(site.folded("service=unknown").await, "main;recv 9\n");
    assert_eq!(site.folded("service=shop").await, "main;send 7\n");
    // 3: an invalid argument.
    let (status, sentence) = call(&site, WRITE_RAW, &raw(b"\x00\xff").encode_to_vec()).await;
    assert_eq!(status, "3", "{sentence}");
    assert!(!sentence.is_empty());
    assert_ne!(call(&site, EXPORT, b"\xff\xff\xff").await.0, "0");
    let refused = &site.hub.intake.counts().refused;
    assert_eq!(refused.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_the_store_does_not_keep_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let now = crate::clock::now().unsigned_abs() * 1000;
    let day = 86_400_000_000_000;
    for (start, expected) in [
        (1_000, StatusCode::BAD_REQUEST),
        (now - 100 * day, StatusCode::BAD_REQUEST),
        (now + 400 * day, StatusCode::BAD_REQUEST),
        (now - 80 * day, StatusCode::NO_CONTENT),
        (now + day / 48, StatusCode::NO_CONTENT),
    ] {
        let body = timed(start, 1_000, 2);
        let (status, text) = site.send("POST", "/api/v1/profiles", "", body).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(status, expected, "{start}: {text}");
        assert!(text.is_empty() || text.contains("the last 90 days"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn push_that_is_sent_again_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut profile = parsed("main 4\n");
    let now = crate::clock::now().unsigned_abs() * 1000;
    profile.start = Some(UnixNanos(now));
    let mut body = Vec::new();
    pprof::write(&profile, &mut body).unwrap();
    {
        let site = Site::open(folder.path()).await;
        let both = tokio::join!(
            site.push("/api/v1/profiles?service=s", &body),
            site.push("/api/v1/profiles?service=s", &body)
        );
        assert_eq!(both, (StatusCode::NO_CONTENT, StatusCode::NO_CONTENT));
        assert_eq!(site.folded("service=s").await, "main 4\n");
        site.hub.database.close().await;
    }
    // Neither does a hub that starts again count it twice.
    let site = Site::open(folder.path()).await;
    assert_eq!(
        site.push("/api/v1/profiles?service=s", &body).await,
        StatusCode::NO_CONTENT
    );
    assert_eq!(site.folded("service=s").await, "main 4\n");
    // Another service's profile is another push.
    site.push("/api/v1/profiles?service=t", &body).await;
    assert_eq!(site.folded("").await, "main 8\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn compaction_keeps_all_sums() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let mut expected = 0;
    for weight in 1..=6 {
        expected += weight;
        let text = format!("main;f {weight}\n");
        site.push("/api/v1/profiles?service=s", text.as_bytes()).await;
    }
    let replaced = maintain::compact(&site.hub, &Cancel::default()).await.unwrap();
    // An hour may have ended in the meantime.
    assert!(replaced >= 3, "{replaced}");
    assert_eq!(site.folded("from=1d").await, format!("main;f {expected}\n"));
    let (_, files) = maintain::expire(&site.hub).await.unwrap();
    assert_eq!(files, 0, "files of removed segments stay for queries that run");
    assert_eq!(site.folded("from=1d").await, format!("main;f {expected}\n"));
}

/// Returns the folded stacks of a host: two functions with noise, and one with a planted cost.
fn observation(number: u64, planted: u64) -> String {
    let noise = |seed: u64| (number * 7919 + seed * 104_729) % 41;
    let mut text = String::new();
    for function in 0..40 {
        let weight = 2000 / (function + 1) + noise(function);
        text += &format!("main;f{function} {weight}\n");
    }
    text + &format!("main;planted {}\n", planted + noise(99))
}

#[tokio::test(flavor = "multi_thread")]
async fn slower_function_of_a_build_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for number in 0..12 {
        for (build, planted) in [("1", 300), ("2", 650), ("3", 300)] {
            let path = format!("/api/v1/profiles?service=s&host=h{number}&build={build}");
            let seed = number + build.parse::<u64>().unwrap() * 100;
            site.push(&path, observation(seed, planted).as_bytes()).await;
        }
    }
    let compared = async |before: &str, after: &str| {
        let path = format!(
            "/api/v1/profiles/regressions?service=s&event=samples&before={before}&after={after}&intervals=1"
        );
        let (status, body) = site.send("GET", &path, "", Vec::new()).await;
        let report: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, StatusCode::OK, "{report}");
        report
    };
    let slower = compared("1", "2").await;
    assert_eq!(slower["units"], serde_json::json!([12, 12]));
    let changes = slower["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{slower}");
    assert_eq!(changes[0]["function"], "planted");
    assert_eq!(changes[0]["direction"], "slower");
    assert!(changes[0]["low"].as_f64().unwrap() > 0.0);
    let same = compared("1", "3").await;
    assert_eq!(same["changes"], serde_json::json!([]), "{same}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    for (path, media, body) in [
        ("/api/v1/profiles", "", &b"\x00\x01\x02\xff"[..]),
        ("/api/v1/profiles", "", b"main\n"),
        ("/api/v1/profiles", "", b""),
        ("/api/v1/profiles", "", b"\x48\x05"),
        ("/push.v1.PusherService/Push", "application/proto", b""),
        ("/api/v1/profiles?colour=red", "", b"main 1\n"),
        ("/api/v1/profiles?labels=a", "", b"main 1\n"),
        ("/ingest", "", b"main 1\n"),
        ("/ingest?name=a&format=trie", "", b"main 1\n"),
        ("/ingest?name=a", "multipart/form-data; boundary=x", b"--x--\r\n"),
        ("/v1development/profiles", "application/json", b"{}"),
        ("/v1development/profiles", "application/x-protobuf", b"\xff\xff"),
        ("/push.v1.PusherService/Push", "application/proto", b"\xff\xff"),
        ("/push.v1.PusherService/Push", "application/json", b"{}"),
    ] {
        let (status, text) = site.send("POST", path, media, body.to_vec()).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {text}");
        assert!(text.starts_with("{\"error\":\""), "{path}: {text}");
    }
    let (_, metrics) = site.send("GET", "/metrics", "", Vec::new()).await;
    let metrics = String::from_utf8(metrics).unwrap();
    let refused = "backtrail_hub_profile_refused_pushes_total 14\n";
    assert!(metrics.contains(refused), "{metrics}");
    for path in [
        "/api/v1/profiles/merge?from=soon",
        "/api/v1/profiles/merge?focus=(",
        "/api/v1/profiles/merge?format=gif",
        "/api/v1/profiles/values?column=weight",
        "/profiles/view?compare=x",
    ] {
        let (status, _) = site.send("GET", path, "", Vec::new()).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
    }
    for path in [
        "/api/v1/profiles/merge?Service=exp",
        "/api/v1/profiles/top?servcie=exp",
        "/api/v1/profiles/series?from=1h&rows=3",
        "/api/v1/profiles/units?servcie=exp",
        "/api/v1/profiles/values?column=service&start=a",
        "/api/v1/profiles/regressions?servcie=exp",
        "/profiles/view?servcie=exp",
    ] {
        let (status, text) = site.send("GET", path, "", Vec::new()).await;
        let text = String::from_utf8(text).unwrap();
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}");
        assert!(
            text.contains("unknown") && text.contains("service"),
            "{path}: {text}"
        );
    }
    let (status, text) = site.send("GET", "/api/v1/profiles/merge", "", Vec::new()).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(
        String::from_utf8(text)
            .unwrap()
            .contains("no sample of this selection")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn explorer_shows_the_view_of_its_selection() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let page = async |path: &str| {
        let (status, body) = site.send("GET", path, "", Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        String::from_utf8(body).unwrap()
    };
    assert!(page("/profiles").await.contains("No profiles yet"));
    site.push("/api/v1/profiles?service=s&build=1", b"main;old_name 3\n")
        .await;
    site.push("/api/v1/profiles?service=s&build=2", b"main;new_name 3\n")
        .await;
    for compare in ["compare=earlier", "compare=other&base_build=nosuch"] {
        let explorer = page(&format!("/profiles?service=s&build=2&{compare}")).await;
        assert!(explorer.contains("the base of the comparison has no samples"));
        assert!(!explorer.contains("<iframe"), "{compare}");
    }
    let explorer = page("/profiles?service=s&color=red").await;
    assert!(
        explorer.contains("the parameter &quot;color&quot; is unknown"),
        "{explorer}"
    );
    assert!(explorer.contains("<iframe"), "{explorer}");
    let explorer = page("/profiles?service=s&build=2&compare=other&base_build=1").await;
    let start = explorer.find("src=\"/profiles/view?").unwrap() + 5;
    let address = explorer[start..].split('"').next().unwrap().replace("&amp;", "&");
    let view = page(&address).await;
    for name in ["old_name", "new_name", "backtrail-profile-view/1"] {
        assert!(view.contains(name), "{name}");
    }
    assert!(
        !page("/profiles/view?service=s&build=2")
            .await
            .contains("old_name")
    );
    // A problem is shown in the form.
    let wrong = page("/profiles?service=s&focus=(").await;
    assert!(wrong.contains("focus is no regular expression"));
    assert!(!wrong.contains("<iframe"));
}

/// Returns a profile in OTLP with a sample every `step` nanoseconds.
fn timed(start: u64, step: u64, count: u64) -> Vec<u8> {
    let mut profile = parsed("main;busy 1\nmain;late 1\n");
    let event = profile.event("cpu", "nanoseconds", 1).unwrap();
    let stacks: Vec<_> = profile.samples.iter().map(|sample| sample.stack).collect();
    let sample = profile.samples[0];
    profile.samples.clear();
    for number in 0..count {
        let mut sample = sample;
        sample.event = event;
        sample.weight = 10_000_000;
        sample.time = Some(UnixNanos(start + number * step));
        sample.stack = stacks[usize::from(number == count - 1)];
        profile.samples.push(sample);
    }
    let mut out = Vec::new();
    otlp::write(&profile, &mut out).unwrap();
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_show_the_times_and_weights_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    // The times below are stored for a hundred years.
    let config = Config {
        data: folder.path().to_owned(),
        profiles: Profiles {
            days: 36_500,
            ..Profiles::default()
        },
        ..Config::default()
    };
    let site = Site::with(config).await;
    let page = async |path: &str| {
        let (status, body) = site.send("GET", path, "", Vec::new()).await;
        assert_eq!(status, StatusCode::OK, "{path}");
        String::from_utf8(body).unwrap()
    };
    // 2026-11-29T09:30:00: 50 samples, 20 ms apart.
    let start = 1_795_944_600_000_000_000;
    let (status, text) = site
        .send(
            "POST",
            "/api/v1/profiles?service=s&host=a",
            "application/x-protobuf",
            timed(start, 20_000_000, 50),
        )
        .await;
    assert!(status.is_success(), "{}", String::from_utf8_lossy(&text));
    let times = "from=2026-11-29T09:29:30&until=2026-11-29T09:30:30";
    let heat = page(&format!("/profiles?{times}&chart=heat")).await;
    assert!(
        heat.contains("data-rows=\"50\" data-columns=\"60\""),
        "no map of 60 s"
    );
    let weights = heat
        .split("data-weights=\"")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let weights: Vec<u64> = weights.split(',').map(|weight| weight.parse().unwrap()).collect();
    // One column has all samples, one in each of its rows.
    let expected: Vec<u64> = (0..3000)
        .map(|cell| {
            if (1500..1550).contains(&cell) {
                10_000_000
            } else {
                0
            }
        })
        .collect();
    assert_eq!(weights, expected);
    // The last cell has one sample, which no other cell has.
    let part = "part_from=2026-11-29T09:30:00.98&part_until=2026-11-29T09:30:01";
    let explorer = page(&format!("/profiles?{times}&chart=heat&{part}")).await;
    let source = explorer
        .split("src=\"/profiles/view?")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    let view = page(&format!("/profiles/view?{}", source.replace("&amp;", "&"))).await;
    assert!(view.contains("late") && !view.contains("busy"), "{source}");
    let shares = page(&format!("/profiles?{times}&chart=distribution")).await;
    assert!(shares.contains("<dt>Median</dt><dd>10.0 ms</dd>"), "{shares}");
    assert!(shares.contains("<dt>Values</dt><dd>50</dd>"), "{shares}");
    let hosts = page(&format!("/profiles?{times}&chart=distribution&per=host")).await;
    assert!(hosts.contains("<dt>Largest</dt><dd>500.0 ms</dd>"), "{hosts}");
    for wrong in [
        "chart=pie",
        "chart=distribution&per=galaxy",
        "part_from=x&part_until=y",
    ] {
        let problem = page(&format!("/profiles?{times}&{wrong}")).await;
        assert!(
            problem.contains("class=\"problem\"") && !problem.contains("<iframe"),
            "{wrong}"
        );
    }
    let empty = page("/profiles?service=none&chart=heat").await;
    assert!(empty.contains("No samples in this time."));
}

#[tokio::test(flavor = "multi_thread")]
async fn saved_views_belong_to_their_creators() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let (_, reader) = site
        .hub
        .database
        .create_token("r", &[Scope::Read], None)
        .await
        .unwrap();
    let (_, other) = site
        .hub
        .database
        .create_token("o", &[Scope::Read], None)
        .await
        .unwrap();
    let send = async |method: &str, path: &str, token: &str, body: &str| {
        let request = Request::builder()
            .method(method)
            .uri(format!("/api/v1/profiles/views{path}"))
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Body::from(body.to_owned()))
            .unwrap();
        let response = router(site.hub.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (
            status,
            serde_json::from_slice::<serde_json::Value>(&body).unwrap_or_default(),
        )
    };
    let (reader, other) = (reader.reveal(), other.reveal());
    let view = r#"{"name":" <b>shop</b> ","query":"?service=shop&per=&chart=heat"}"#;
    let (status, saved) = send("POST", "", reader, view).await;
    assert_eq!(status, StatusCode::CREATED, "{saved}");
    assert_eq!(
        (&saved["name"], &saved["query"]),
        (&"<b>shop</b>".into(), &"service=shop&chart=heat".into())
    );
    let (status, taken) = send("POST", "", other, view).await;
    assert_eq!(status, StatusCode::CONFLICT, "{taken}");
    for wrong in [
        r#"{"name":"","query":"service=a"}"#,
        r#"{"name":"a","query":"from=soon"}"#,
        r#"{"name":"a","query":"servcie=shop"}"#,
        r#"{"name":"a\nb","query":""}"#,
        r#"{"name":"a","query":"","color":"red"}"#,
    ] {
        assert_eq!(
            send("POST", "", reader, wrong).await.0,
            StatusCode::BAD_REQUEST,
            "{wrong}"
        );
    }
    let id = format!("/{}", saved["id"].as_str().unwrap());
    assert_eq!(send("DELETE", &id, other, "").await.0, StatusCode::FORBIDDEN);
    assert_eq!(send("GET", "", other, "").await.1.as_array().unwrap().len(), 1);
    let (_, page) = site.send("GET", "/profiles", "", Vec::new()).await;
    // Without profiles, there is nothing to save.
    assert!(!String::from_utf8(page).unwrap().contains("Saved views"));
    site.push("/api/v1/profiles?service=shop", b"main 3\n").await;
    let (_, page) = site.send("GET", "/profiles", "", Vec::new()).await;
    let page = String::from_utf8(page).unwrap();
    assert!(page.contains("&lt;b&gt;shop&lt;/b&gt;</a>"), "{page}");
    assert!(page.contains("href=\"/profiles?service=shop&amp;chart=heat\""));
    // A query in SQL is a view of its page.
    let query = r#"{"name":"rows","query":"sql=SELECT+1&as=heat"}"#;
    let (status, sql) = send("POST", "", other, query).await;
    assert_eq!(status, StatusCode::CREATED, "{sql}");
    assert!(
        sql["link"]
            .as_str()
            .unwrap()
            .ends_with("/profiles/sql?sql=SELECT+1&as=heat"),
        "{sql}"
    );
    let (_, page) = site.send("GET", "/profiles/sql", "", Vec::new()).await;
    let page = String::from_utf8(page).unwrap();
    assert!(
        page.contains("href=\"/profiles/sql?sql=SELECT+1&amp;as=heat\"") && !page.contains("&lt;b&gt;shop")
    );
    assert_eq!(send("DELETE", &id, reader, "").await.0, StatusCode::NO_CONTENT);
    assert_eq!(send("DELETE", &id, reader, "").await.0, StatusCode::NOT_FOUND);
    let actions: Vec<_> = site.hub.database.audit(9).await.unwrap();
    let actions: Vec<_> = actions
        .iter()
        .map(|entry| (&*entry.actor, &*entry.action))
        .collect();
    assert!(
        actions.contains(&("r", "save-view")) && actions.contains(&("r", "delete-view")),
        "{actions:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn request_goes_to_the_agent_of_its_host() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let next = async |host: &str| {
        let path = format!("/api/v1/profile-requests/next?host={host}");
        site.send("GET", &path, "", Vec::new()).await
    };
    let ask = async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let body = br#"{"host":"a","seconds":2}"#.to_vec();
        site.send("POST", "/api/v1/profile-requests", "application/json", body)
            .await
    };
    let ((status, order), (created, answer)) = tokio::join!(next("a"), ask);
    assert_eq!((status, created), (StatusCode::OK, StatusCode::CREATED));
    let order: serde_json::Value = serde_json::from_slice(&order).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(order["id"], answer["id"]);
    assert_eq!((&order["seconds"], &order["event"]), (&2.into(), &"cpu".into()));
    let id = order["id"].as_str().unwrap();
    let state = async || {
        let (_, body) = site
            .send("GET", &format!("/profiles/now/{id}/state"), "", Vec::new())
            .await;
        let state: serde_json::Value = serde_json::from_slice(&body).unwrap();
        state["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state().await, "running");
    let path = format!("/api/v1/profiles?host=a&labels=request%3D{id}");
    site.push(&path, b"main;wanted 2\n").await;
    let end = format!("/api/v1/profile-requests/{id}/end");
    let (other, _) = site
        .send("POST", &end, "application/json", br#"{"host":"b"}"#.to_vec())
        .await;
    assert_eq!(other, StatusCode::NOT_FOUND);
    let (ended, _) = site
        .send("POST", &end, "application/json", br#"{"host":"a"}"#.to_vec())
        .await;
    assert_eq!(ended, StatusCode::NO_CONTENT);
    assert_eq!(state().await, "stored");
    assert_eq!(
        site.folded(&format!("labels=request%3D{id}")).await,
        "main;wanted 2\n"
    );
}
