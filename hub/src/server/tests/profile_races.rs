//! Two hubs on one database and one object store: profiles arrive while both compact them.

use crate::access::Scope;
use crate::config::Config;
use crate::database::tests::testing::TestDatabase;
use crate::hub::Hub;
use crate::profiles::maintain;
use crate::server::routes::router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use backtrail_store::Cancel;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tower::ServiceExt;

/// The profiles that each hub takes.
const PROFILES: u64 = 24;

async fn send(hub: &Arc<Hub>, token: &str, method: &str, path: &str, body: String) -> (StatusCode, String) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, "127.0.0.1:7777")
        .header(header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Body::from(body))
        .unwrap();
    let response = router(hub.clone()).oneshot(request).await.unwrap();
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 64 << 20).await;
    (status, String::from_utf8(body.unwrap().to_vec()).unwrap())
}

async fn stored(hub: &Arc<Hub>, token: &str) -> BTreeMap<String, u64> {
    let path = "/api/v1/profiles/merge?format=folded&service=s&from=1d";
    let (status, text) = send(hub, token, "GET", path, String::new()).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let lines = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    lines
        .map(|(stack, weight)| (stack.to_owned(), weight.parse().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn compactions_of_two_hubs_lose_no_arriving_profile() {
    for test in TestDatabase::all().await {
        let config = |name: &str| Config {
            data: test.folder().join(name),
            database: Some(test.address.clone()),
            objects: None,
            ..Config::default()
        };
        // Both keep their objects in one directory.
        let one = Hub::open(config("hub")).await.unwrap();
        let two = Hub::open(config("hub")).await.unwrap();
        let scopes = [Scope::Ingest, Scope::Read, Scope::Admin];
        let (_, secret) = one.database.create_token("t", &scopes, None).await.unwrap();
        let token = secret.reveal().to_owned();
        let is_over = Arc::new(AtomicBool::new(false));
        let compacting: Vec<_> = [&one, &two]
            .map(|hub| {
                let (hub, is_over) = (hub.clone(), is_over.clone());
                tokio::spawn(async move {
                    let mut replaced = 0;
                    while !is_over.load(Ordering::Acquire) {
                        replaced += maintain::compact(&hub, &Cancel::default()).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    replaced
                })
            })
            .into_iter()
            .collect();
        let mut pushing = Vec::new();
        for (number, hub) in [&one, &two].into_iter().enumerate() {
            for client in 0..4_u64 {
                let (hub, token) = (hub.clone(), token.clone());
                pushing.push(tokio::spawn(async move {
                    for push in 0..PROFILES / 4 {
                        let weight = client * 100 + push + 1;
                        let body = format!("main;hub_{number};push_{client}_{push} {weight}\n");
                        let (status, text) =
                            send(&hub, &token, "POST", "/api/v1/profiles?service=s", body).await;
                        assert_eq!(status, StatusCode::NO_CONTENT, "{text}");
                    }
                }));
            }
        }
        for pushed in pushing {
            pushed.await.unwrap();
        }
        is_over.store(true, Ordering::Release);
        let mut replaced = 0;
        for compacted in compacting {
            replaced += compacted.await.unwrap();
        }
        replaced += maintain::compact(&one, &Cancel::default()).await.unwrap();
        assert!(replaced > 0, "{}", test.name());
        let mut expected = BTreeMap::new();
        for number in 0..2 {
            for client in 0..4 {
                for push in 0..PROFILES / 4 {
                    let stack = format!("main;hub_{number};push_{client}_{push}");
                    expected.insert(stack, client * 100 + push + 1);
                }
            }
        }
        for hub in [&one, &two] {
            assert_eq!(stored(hub, &token).await, expected, "{}", test.name());
        }
    }
}
