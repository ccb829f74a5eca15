//! Views of answers to SQL, with a script in the place of the engine.

use super::profiles::Site;
use crate::access::Scope;
use crate::config::{Config, Query};
use crate::server::routes::router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode, header};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tower::ServiceExt;

/// A hub whose engine gives one answer, and a token that reads.
struct SqlSite {
    site: Site,
    token: String,
}

impl SqlSite {
    async fn open(folder: &Path, columns: &[(&str, &str)], rows: &[Value]) -> Self {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        std::fs::write(folder.join("rows"), lines).unwrap();
        let columns = columns
            .iter()
            .map(|(name, kind)| json!({ "name": name, "type": kind }));
        let columns: Vec<Value> = columns.collect();
        let coverage = json!({ "coverage": { "columns": columns, "truncated": true } });
        std::fs::write(folder.join("coverage"), coverage.to_string()).unwrap();
        let program = folder.join("engine");
        let script = format!(
            "#!/bin/sh\ncat >/dev/null\ncat {0}/rows\ncat {0}/coverage >&2\n",
            folder.display()
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let config = Config {
            data: folder.join("data"),
            query: Query {
                program: Some(program),
                ..Query::default()
            },
            ..Config::default()
        };
        let site = Site::with(config).await;
        let created = site.hub.database.create_token("r", &[Scope::Read], None).await;
        let (_, secret) = created.unwrap();
        Self {
            site,
            token: secret.reveal().to_owned(),
        }
    }

    /// Asks for a view of the hour from 2026-11-29T10:00.
    async fn view(&self, view: &str, accept: &str) -> (StatusCode, HeaderMap, String) {
        let query = "sql=SELECT+1&from=2026-11-29T10:00&until=2026-11-29T11:00&sites=";
        let request = Request::builder()
            .uri(format!("/profiles/sql/view?{query}&as={view}"))
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::ACCEPT, accept)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        let request = request.body(Body::empty()).unwrap();
        let response = router(self.site.hub.clone()).oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = axum::body::to_bytes(response.into_body(), 64 << 20).await;
        let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
        (status, headers, body)
    }
}

const SERIES: [(&str, &str); 3] = [
    ("minute", "Timestamp(µs, \"UTC\")"),
    ("service", "Utf8View"),
    ("n", "Int64"),
];

fn points() -> Vec<Value> {
    let point = |minute: u64| json!({ "minute": format!("2026-11-29T10:{minute:02}:00Z"), "service": "<b>", "n": minute });
    (0..4).map(point).collect()
}

fn is_framed(headers: &HeaderMap) -> bool {
    let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
    policy.starts_with("frame-ancestors 'self'") && headers[header::X_FRAME_OPTIONS] == "SAMEORIGIN"
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_are_parts_of_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let site = SqlSite::open(folder.path(), &SERIES, &points()).await;
    for (view, text) in [
        ("series", "class=\"line s0\""),
        ("heat", "class=\"level l8\""),
        ("distribution", "<dt>Median</dt><dd>1.5</dd>"),
    ] {
        let (status, headers, body) = site.view(view, "application/json").await;
        assert_eq!(status, StatusCode::OK, "{view}: {body}");
        assert!(body.contains(text), "{view}: {body}");
        assert!(body.contains("more rows than the first 4"), "{view}: {body}");
        assert!(!body.contains("<html") && !body.contains("<b>"), "{view}: {body}");
        assert!(
            headers[header::CONTENT_TYPE]
                .to_str()
                .unwrap()
                .starts_with("text/html")
        );
        assert!(!is_framed(&headers));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flame_graph_is_a_page_for_a_frame() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [json!({ "service": "shop", "stacks": "main;</script> 3\n" })];
    let columns = [("service", "Utf8View"), ("stacks", "Utf8")];
    let site = SqlSite::open(folder.path(), &columns, &rows).await;
    let (status, headers, body) = site.view("graph", "text/html").await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert!(is_framed(&headers), "{headers:?}");
    assert!(body.contains("\"shop\"") && body.contains("\\u003c/script>"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_do_not_fit_are_sentences() {
    let folder = tempfile::tempdir().unwrap();
    let columns = [("service", "Utf8View")];
    let site = SqlSite::open(folder.path(), &columns, &[json!({ "service": "shop" })]).await;
    for (view, sentence) in [
        (
            "graph",
            "a flame graph needs a column of flamegraph(stack, weight)",
        ),
        ("series", "a time series needs a column of times"),
        ("heat", "a heat map needs a column of times"),
        ("distribution", "a distribution needs a column of numbers"),
        ("table", "as is graph, series, heat or distribution"),
    ] {
        let (status, _, body) = site.view(view, "application/json").await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{view}: {body}");
        let error: Value = serde_json::from_str(&body).unwrap();
        assert!(
            error["error"].as_str().unwrap().contains(sentence),
            "{view}: {body}"
        );
    }
    let (status, headers, body) = site.view("graph", "text/html").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(is_framed(&headers), "{headers:?}");
    assert!(
        body.contains("<p id=\"sql-problem\">this answer has no stacks"),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn page_has_the_view_of_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::open(folder.path()).await;
    let path = "/profiles/sql?sql=SELECT+1&from=2h&until=2026-11-29&as=heat";
    let (status, body) = site.send("GET", path, "", Vec::new()).await;
    let body = String::from_utf8(body).unwrap();
    assert_eq!(status, StatusCode::OK, "{body}");
    for text in [
        ">SELECT 1</textarea>",
        "value=\"2h\"",
        "value=\"2026-11-29\"",
        "value=\"heat\" selected",
    ] {
        assert!(body.contains(text), "{text}: {body}");
    }
}
