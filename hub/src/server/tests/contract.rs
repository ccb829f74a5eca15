//! The OpenAPI document has each route for programs, and the fields of each request. Forms of other
//! sites change nothing.

use crate::access::Scope;
use crate::config::Config;
use crate::hub::Hub;
use crate::profiles::sql::SqlRequest;
use crate::query_jobs::definition::JobDefinition;
use crate::query_jobs::threshold::Threshold;
use crate::server::api::openapi::DOCUMENT;
use crate::server::api::{calls, crashes, groups, jobs, sites, symbolize, tokens};
use crate::server::guard::form_key;
use crate::server::jobs::{JOB_PAGES, JOBS};
use crate::server::profiles::requests::NewRequest;
use crate::server::profiles::views::NewView;
use crate::server::profiles::{PUSHING, QUERYING, REQUESTING};
use crate::server::route::{Access, Route};
use crate::server::routes::{PAGES, ROUTES, router};
use crate::server::sites::{SITE_PAGES, SITES};
use crate::server::symbols::{READING, UPLOADING};
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use backtrail_report::{AddressFrame, CrashReport, Heartbeat, ModuleOffer, Receipt, RunningBuild};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tower::ServiceExt;

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// Returns a schema's content.
fn schema(name: &str) -> Value {
    document()["components"]["schemas"][name].clone()
}

#[test]
fn document_has_each_route_for_programs_and_no_other() {
    let scope = |route: &Route| match route.access {
        Access::Open => "open",
        Access::SignedIn => "signed-in",
        Access::With(scope) => scope.name(),
    };
    let tables = [
        ROUTES, READING, UPLOADING, PUSHING, REQUESTING, QUERYING, JOBS, SITES,
    ];
    let routes: BTreeMap<_, _> = tables
        .into_iter()
        .flatten()
        .map(|route| {
            // OpenAPI has no name for a rest of several segments.
            let path = route.path.replace("{*", "{");
            let about = (scope(route).to_owned(), route.summary.to_owned());
            ((path, route.method.to_owned()), about)
        })
        .collect();
    let mut documented = BTreeMap::new();
    for (path, methods) in document()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let text = |key: &str| operation[key].as_str().unwrap_or_default().to_owned();
            let needs_token = !operation["security"].as_array().unwrap().is_empty();
            assert_eq!(needs_token, text("x-scope") != "open", "{method} {path}");
            let about = (text("x-scope"), text("summary"));
            documented.insert((path.clone(), method.to_uppercase()), about);
        }
    }
    assert_eq!(documented, routes);
}

/// Returns the fields that a type reads. Its error at an unknown field lists them.
fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
    let Err(error) = serde_json::from_value::<T>(json!({ "?": 0 })) else {
        panic!("the type takes unknown fields");
    };
    let error = error.to_string();
    let (_, list) = error.split_once("expected ").unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn schemas_of_requests_have_the_fields_of_the_types() {
    let documented = |name: &str| -> BTreeSet<String> {
        let properties = schema(name)["properties"].clone();
        properties.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(documented("CrashReport"), fields::<CrashReport>());
    assert_eq!(documented("AddressFrame"), fields::<AddressFrame>());
    assert_eq!(documented("ModuleOffer"), fields::<ModuleOffer>());
    assert_eq!(documented("Heartbeat"), fields::<Heartbeat>());
    assert_eq!(documented("RunningBuild"), fields::<RunningBuild>());
    assert_eq!(documented("NewToken"), fields::<tokens::NewToken>());
    assert_eq!(
        documented("SymbolizeRequest"),
        fields::<symbolize::SymbolizeRequest>()
    );
    assert_eq!(documented("PositionBatch"), fields::<symbolize::PositionBatch>());
    let parameters = |path: &str| -> BTreeSet<String> {
        let list = document()["paths"][path]["get"]["parameters"].clone();
        let names = list.as_array().unwrap().iter();
        names
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(parameters("/api/v1/groups"), fields::<groups::ListParameters>());
    assert_eq!(parameters("/api/v1/crashes"), fields::<crashes::ListParameters>());
    assert_eq!(
        parameters("/api/v1/exact-calls"),
        fields::<calls::ListParameters>()
    );
    assert_eq!(documented("NewProfileRequest"), fields::<NewRequest>());
    assert_eq!(documented("JobDefinition"), fields::<JobDefinition>());
    assert_eq!(documented("Threshold"), fields::<Threshold>());
    assert_eq!(documented("NewSite"), fields::<sites::SiteBody>());
    assert_eq!(documented("SqlRequest"), fields::<SqlRequest>());
    let mut listed = fields::<jobs::RunParameters>();
    listed.insert("id".to_owned());
    assert_eq!(parameters("/api/v1/jobs/{id}/runs"), listed);
    assert_eq!(documented("NewSavedView"), fields::<NewView>());
}

#[test]
fn examples_of_the_document_are_read() {
    let example = |name: &str| schema(name)["examples"][0].clone();
    let report: CrashReport = serde_json::from_value(example("CrashReport")).unwrap();
    assert_eq!(report.check(), Ok(()));
    let beat: Heartbeat = serde_json::from_value(example("Heartbeat")).unwrap();
    assert_eq!(beat.check(), Ok(()));
    assert!(serde_json::from_value::<Receipt>(example("Receipt")).is_ok());
    assert!(serde_json::from_value::<tokens::NewToken>(example("NewToken")).is_ok());
    let request = example("SymbolizeRequest");
    assert!(serde_json::from_value::<symbolize::SymbolizeRequest>(request).is_ok());
    let job: JobDefinition = serde_json::from_value(example("JobDefinition")).unwrap();
    assert!(job.check(crate::clock::now()).is_ok());
    assert!(serde_json::from_value::<crate::lifecycle::Action>(example("Action")).is_ok());
}

/// The fields of all forms.
const FIELDS: &str = "pinned=true&text=x&assignee=x&state=resolved&build=x&name=x&scope=read&channel=a&token=x\
     &host=a&event=cpu&seconds=1&frequency=1&query=service%3Dx";

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_other_sites_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        data: folder.path().to_owned(),
        ..Config::default()
    };
    let hub = Hub::open(config).await.unwrap();
    let scopes = [Scope::Read, Scope::Admin];
    let (_, secret) = hub.database.create_token("t", &scopes, None).await.unwrap();
    let key = form_key(secret.reveal());
    let status = async |route: &Route, site: Option<&str>, origin: Option<&str>, key: &str| {
        let path = route.path.replace("{id}", "0123456789abcdefghjk");
        let mut request = Request::builder()
            .method(route.method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::COOKIE, format!("backtrail_session={}", secret.reveal()));
        for (name, value) in [("sec-fetch-site", site), ("origin", origin)] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        let request = request.body(Body::from(format!("csrf={key}&{FIELDS}"))).unwrap();
        router(hub.clone()).oneshot(request).await.unwrap().status()
    };
    let is_change = |route: &&Route| route.method == "POST";
    let mut seen = 0;
    let pages = [JOB_PAGES, SITE_PAGES, PAGES].into_iter().flatten();
    for route in pages.filter(is_change) {
        let path = route.path;
        for (site, origin) in [
            (Some("cross-site"), None),
            (Some("same-site"), None),
            (Some("none"), None),
            (None, Some("https://evil.example")),
            (None, Some("null")),
            (Some("cross-site"), Some("http://127.0.0.1:7777")),
            (None, None),
        ] {
            let found = status(route, site, origin, &key).await;
            assert_eq!(found, StatusCode::FORBIDDEN, "{path} {site:?} {origin:?}");
        }
        if path != "/sign-in" {
            for wrong in ["", "0", &form_key("bthub_other")] {
                let found = status(route, Some("same-origin"), None, wrong).await;
                assert_eq!(found, StatusCode::FORBIDDEN, "{path} with the key {wrong:?}");
            }
        }
        // The session ends last, because `/sign-out` is the last form.
        let found = status(route, Some("same-origin"), None, &key).await;
        assert_ne!(found, StatusCode::FORBIDDEN, "{path} of the own page");
        seen += 1;
    }
    assert!(seen >= 9, "{seen}");
    // The API takes a session from the own page only.
    for route in ROUTES
        .iter()
        .filter(|route| route.method != "GET" && route.access != Access::Open)
    {
        let found = status(route, Some("cross-site"), None, &key).await;
        assert!(found.is_client_error(), "{}: {found}", route.path);
    }
}
