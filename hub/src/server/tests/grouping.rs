//! Rules and versions of the grouping over HTTP: the API, and forms of a session.

use crate::access::Scope;
use crate::config::Config;
use crate::hub::Hub;
use crate::server::caller::COOKIE;
use crate::server::guard::form_key;
use crate::server::routes::router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use serde_json::{Value, json};
use std::sync::Arc;
use tower::ServiceExt;

/// A hub with a token of an administrator.
struct Server {
    hub: Arc<Hub>,
    secret: String,
    _folder: tempfile::TempDir,
}

impl Server {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            data: folder.path().to_owned(),
            ..Config::default()
        };
        let hub = Hub::open(config).await.unwrap();
        let scopes = [Scope::Ingest, Scope::Admin];
        let (_, secret) = hub.database.create_token("ada", &scopes, None).await.unwrap();
        Self {
            secret: secret.reveal().to_owned(),
            hub,
            _folder: folder,
        }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = router(self.hub.clone()).oneshot(request).await.unwrap();
        let status = response.status();
        let bytes = to_bytes(response.into_body(), 8 << 20).await.unwrap();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    /// Sends a request with the token.
    async fn api(&self, method: &str, path: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.secret))
            .body(Body::from(body.to_string()))
            .unwrap();
        let (status, text) = self.send(request).await;
        (status, serde_json::from_str(&text).unwrap_or_default())
    }

    /// Sends a form of a page in a session.
    async fn form(&self, path: &str, fields: &[(&str, &str)], site: &str) -> (StatusCode, String) {
        let mut body = form_urlencoded::Serializer::new(String::new());
        for (name, value) in fields {
            body.append_pair(name, value);
        }
        let request = Request::builder()
            .method("POST")
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::COOKIE, format!("{COOKIE}={}", self.secret))
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header("sec-fetch-site", site)
            .body(Body::from(body.finish()))
            .unwrap();
        self.send(request).await
    }

    /// Sends a form of an own page, with its key.
    async fn own_form(&self, path: &str, fields: &[(&str, &str)]) -> (StatusCode, String) {
        let key = form_key(&self.secret);
        let mut all = vec![("csrf", key.as_str())];
        all.extend(fields);
        self.form(path, &all, "same-origin").await
    }

    async fn page(&self, path: &str) -> String {
        let request = Request::builder()
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::COOKIE, format!("{COOKIE}={}", self.secret));
        let (status, text) = self.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        text
    }

    /// Takes a report of a crash without symbols.
    async fn crash(&self, number: u64) {
        let report = json!([{
            "version": 1, "id": format!("{number:020}"), "time": 1_790_000_000_000_000_u64, "host": "web-1",
            "service": "ledger", "build": "1.0", "executable": "/srv/ledger", "signal": 11, "code": 1, "pid": 1,
            "tid": 1, "frames": [{"module": "/srv/ledger", "build_id": "a1b2", "offset": 16 * number}],
        }]);
        let (status, answer) = self.api("POST", "/api/v1/reports", report).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_are_tried_added_and_deleted_as_json() {
    let server = Server::new().await;
    server.crash(1).await;
    server.crash(2).await;
    let rule = json!({ "rule": "group-by module:ledger as Ledger", "service": "ledger" });
    let (status, trial) = server
        .api("POST", "/api/v1/rules/try", json!({ "add": rule }))
        .await;
    assert_eq!(status, StatusCode::OK, "{trial}");
    assert_eq!(
        (&trial["keys"], &trial["all_keys"], &trial["moved_keys"]),
        (&json!(2), &json!(2), &json!(2))
    );
    assert_eq!(trial["merges"][0]["to"]["title"], "Ledger");
    let (_, listed) = server.api("GET", "/api/v1/rules", Value::Null).await;
    assert_eq!(listed, json!({ "rules": [], "regrouping": null }));

    let (status, added) = server.api("POST", "/api/v1/rules", rule.clone()).await;
    assert_eq!(status, StatusCode::CREATED, "{added}");
    assert_eq!((&added["rule"], &added["author"]), (&rule["rule"], &json!("ada")));
    let (status, _) = server.api("POST", "/api/v1/rules", rule).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (_, listed) = server.api("GET", "/api/v1/rules", Value::Null).await;
    assert_eq!(
        (&listed["rules"][0], &listed["regrouping"]),
        (&added, &json!(0.0))
    );

    let id = added["id"].as_str().unwrap();
    let (status, trial) = server
        .api("POST", "/api/v1/rules/try", json!({ "remove": id }))
        .await;
    assert_eq!((status, &trial["unchanged_keys"]), (StatusCode::OK, &json!(2)));
    let path = format!("/api/v1/rules/{id}");
    assert_eq!(
        server.api("DELETE", &path, Value::Null).await.0,
        StatusCode::NO_CONTENT
    );
    assert_eq!(
        server.api("DELETE", &path, Value::Null).await.0,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_rules_are_refused_in_one_sentence() {
    let server = Server::new().await;
    let long = format!("ignore {}", "x".repeat(10_000));
    for (line, wanted) in [
        ("", "a rule begins with"),
        ("ignore *", "matches every function"),
        ("ignore /(x{1000}){1000}/", "too large"),
        ("ignore /(((((/", "cannot be read"),
        (&*long, "more than 500 bytes"),
        ("ignore a\u{0}b", "control characters"),
        ("ignore a\nignore b", "control characters"),
        ("group-by x as \u{202e}y", "no control characters"),
    ] {
        let body = json!({ "rule": line });
        for (path, body) in [
            ("/api/v1/rules", body.clone()),
            ("/api/v1/rules/try", json!({ "add": body })),
        ] {
            let (status, answer) = server.api("POST", path, body).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{line}: {answer}");
            assert!(
                answer["error"].as_str().unwrap().contains(wanted),
                "{line}: {answer}"
            );
        }
        let (status, _) = server.own_form("/settings/rules/try", &[("rule", line)]).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{line}");
    }
    for body in [
        json!({ "rule": 3 }),
        json!({ "rule": "ignore x", "x": 1 }),
        json!([]),
    ] {
        let (status, _) = server.api("POST", "/api/v1/rules", body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
    }
    let (status, _) = server
        .api("POST", "/api/v1/rules/try", json!({ "remove": "'; --" }))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(server.hub.database.rules().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_of_a_frame_is_tried_and_saved_by_forms() {
    let server = Server::new().await;
    server.crash(1).await;
    server.crash(2).await;
    // The menu of a frame on the page of a crash.
    let crash = server.page(&format!("/c/{:020}", 1)).await;
    assert!(
        crash.contains("name=\"rule\" value=\"ignore module:ledger\""),
        "{crash}"
    );
    let fields = [("rule", "group-by module:ledger"), ("service", "ledger")];
    let (status, page) = server.own_form("/settings/rules/try", &fields).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    assert!(
        page.contains("Save the rule") && page.contains("on 2 stacks"),
        "{page}"
    );
    let fields = [
        ("action", "group-by"),
        ("pattern", "module:ledger"),
        ("service", "ledger"),
    ];
    let (status, _) = server.own_form("/settings/rules", &fields).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let rules = server.hub.database.rules().await.unwrap();
    assert_eq!(
        (rules[0].line(), rules[0].service.as_deref()),
        ("group-by module:ledger".to_owned(), Some("ledger"))
    );
    let page = server.page("/settings/rules").await;
    assert!(page.contains("module:ledger") && page.contains("id=\"progress\""));
    let state: Value = serde_json::from_str(&server.page("/settings/rules/state").await).unwrap();
    assert_eq!(state["state"], "running");
    let audit = server.page("/audit").await;
    assert!(audit.contains("group-by module:ledger for ledger"), "{audit}");
    let (status, page) = server
        .own_form("/settings/rules/try", &[("remove", &rules[0].id)])
        .await;
    assert!(status == StatusCode::OK && page.contains("without"), "{page}");
    let path = format!("/settings/rules/{}/delete", rules[0].id);
    let (status, _) = server.own_form(&path, &[]).await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    assert!(server.hub.database.rules().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_foreign_pages_change_no_rule() {
    let server = Server::new().await;
    let key = form_key(&server.secret);
    let rule = [("csrf", &*key), ("rule", "ignore x"), ("action", "compare")];
    for path in [
        "/settings/rules",
        "/settings/rules/try",
        "/settings/rules/x/delete",
        "/settings/grouping",
    ] {
        for (fields, site) in [
            (&rule[..], "cross-site"),
            (&rule[..], "same-site"),
            (&rule[1..], "same-origin"),
        ] {
            let (status, _) = server.form(path, fields, site).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {site}");
        }
    }
    assert!(server.hub.database.rules().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_compared_over_http() {
    let server = Server::new().await;
    server.crash(1).await;
    let (_, now) = server.api("GET", "/api/v1/grouping", Value::Null).await;
    assert_eq!(now, json!({ "version": 2, "regrouping": null }));
    let compare = json!({ "action": "compare", "version": 1, "days": 7 });
    let (status, now) = server.api("POST", "/api/v1/grouping", compare).await;
    assert_eq!(status, StatusCode::OK, "{now}");
    assert_eq!(
        (&now["next"]["version"], &now["next"]["all_keys"]),
        (&json!(1), &json!(1))
    );
    let page = server.page("/settings/rules").await;
    assert!(page.contains("Version 1 is computed beside it"), "{page}");
    // A crash that comes now has both groups.
    server.crash(2).await;
    let (_, groups) = server.api("GET", "/api/v1/groups", Value::Null).await;
    let mut compared = 0;
    for group in groups["groups"].as_array().unwrap() {
        let path = format!("/api/v1/groups/{}", group["id"].as_str().unwrap());
        let (_, one) = server.api("GET", &path, Value::Null).await;
        assert_eq!(
            (&one["grouping_version"], &one["next"]["version"]),
            (&json!(2), &json!(1))
        );
        compared += one["next"]["groups"].as_array().unwrap().len();
        let page = server
            .page(&format!("/g/{}", group["id"].as_str().unwrap()))
            .await;
        assert!(page.contains("By version 1"), "{page}");
    }
    assert_eq!(compared, 1);
    for body in [
        json!({ "action": "compare", "days": 0 }),
        json!({ "action": "x" }),
        json!({}),
    ] {
        assert_eq!(
            server.api("POST", "/api/v1/grouping", body).await.0,
            StatusCode::BAD_REQUEST
        );
    }
    let (status, _) = server
        .own_form("/settings/grouping", &[("action", "switch")])
        .await;
    assert_eq!(status, StatusCode::SEE_OTHER);
    let (_, now) = server.api("GET", "/api/v1/grouping", Value::Null).await;
    assert_eq!((&now["version"], &now["next"]), (&json!(1), &Value::Null));
    let cancel = json!({ "action": "cancel" });
    assert_eq!(
        server.api("POST", "/api/v1/grouping", cancel).await.0,
        StatusCode::CONFLICT
    );
}
