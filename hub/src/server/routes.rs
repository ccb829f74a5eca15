//! The table of all routes, from which the router and the OpenAPI document come.

use super::api::{
    calls, crashes, groups, health, heartbeat, openapi, reports, rules, symbolize, tokens, uploads, whoami,
};
use super::failure::{Failure, refusals_as_json};
use super::route::Access::{Open, SignedIn, With};
use super::route::{Route, guarded, route};
use super::{assets, guard, headers, jobs, profiles, site, sites, symbols};
use crate::access::Scope;
use crate::error::Error;
use crate::hub::Hub;
use crate::profiles::sites::client::{HUB_HEADER, SITE_HEADER};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, head, patch, post};
use axum::{Json, Router};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// Methods of gRPC beside those of profiles. They are not in the OpenAPI document.
const GRPC: &[Route] = &[route(
    "POST",
    "/backtrail.symbols.v1.SymbolService/Symbolize",
    With(Scope::Read),
    "Returns the frames at offsets of builds.",
    || post(symbolize::symbolize_call).layer(DefaultBodyLimit::disable()),
)];

/// All routes of the API.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", Open, "Returns whether the hub works.", || {
        get(health::health)
    }),
    route(
        "GET",
        "/metrics",
        Open,
        "Returns counters for Prometheus.",
        || get(health::metrics),
    ),
    route("GET", "/api/openapi.json", Open, "Returns this document.", || {
        get(openapi::document)
    }),
    route(
        "GET",
        "/api/v1/whoami",
        SignedIn,
        "Returns the token's name and scopes.",
        || get(whoami::whoami),
    ),
    route(
        "POST",
        "/api/v1/reports",
        With(Scope::Ingest),
        "Takes crash reports.",
        || post(reports::take),
    ),
    route(
        "POST",
        "/api/v1/heartbeat",
        With(Scope::Ingest),
        "Takes a heartbeat.",
        || post(heartbeat::take),
    ),
    route(
        "OPTIONS",
        "/api/v1/uploads",
        Open,
        "Returns the abilities of the TUS server.",
        || axum::routing::options(uploads::abilities),
    ),
    route(
        "POST",
        "/api/v1/uploads",
        With(Scope::Ingest),
        "Begins an upload (TUS creation).",
        || post(uploads::create),
    ),
    route(
        "HEAD",
        "/api/v1/uploads/{id}",
        With(Scope::Ingest),
        "Returns the offset of an upload.",
        || head(uploads::offset),
    ),
    route(
        "PATCH",
        "/api/v1/uploads/{id}",
        With(Scope::Ingest),
        "Continues an upload.",
        || patch(uploads::add),
    ),
    route(
        "DELETE",
        "/api/v1/uploads/{id}",
        With(Scope::Ingest),
        "Ends an upload (TUS termination).",
        || delete(uploads::end),
    ),
    route(
        "GET",
        "/api/v1/groups",
        With(Scope::Read),
        "Lists groups.",
        || get(groups::list),
    ),
    route(
        "GET",
        "/api/v1/groups/{id}",
        With(Scope::Read),
        "Returns a group.",
        || get(groups::one),
    ),
    route(
        "POST",
        "/api/v1/groups/{id}/state",
        With(Scope::Admin),
        "Resolves, archives or reopens a group.",
        || post(groups::change_state),
    ),
    route(
        "GET",
        "/api/v1/crashes",
        With(Scope::Read),
        "Lists crashes, the newest first.",
        || get(crashes::list),
    ),
    route(
        "GET",
        "/api/v1/crashes/{id}",
        With(Scope::Read),
        "Returns a crash.",
        || get(crashes::one),
    ),
    route(
        "GET",
        "/api/v1/exact-calls",
        With(Scope::Read),
        "Lists the stored bundles with complete calls of a function.",
        || get(calls::list),
    ),
    route(
        "POST",
        "/api/v1/symbolize",
        With(Scope::Read),
        "Returns the frames at offsets of builds.",
        || post(symbolize::symbolize).layer(DefaultBodyLimit::max(symbolize::MAX_BODY)),
    ),
    route(
        "GET",
        "/api/v1/rules",
        With(Scope::Read),
        "Lists the rules of the grouping.",
        || get(rules::list),
    ),
    route(
        "POST",
        "/api/v1/rules",
        With(Scope::Admin),
        "Adds a rule of the grouping.",
        || post(rules::add),
    ),
    route(
        "POST",
        "/api/v1/rules/try",
        With(Scope::Read),
        "Tries a change of the rules on past crashes.",
        || post(rules::try_change),
    ),
    route(
        "DELETE",
        "/api/v1/rules/{id}",
        With(Scope::Admin),
        "Deletes a rule of the grouping.",
        || delete(rules::remove),
    ),
    route(
        "GET",
        "/api/v1/grouping",
        With(Scope::Read),
        "Returns the version of the grouping, and what the one beside it would change.",
        || get(rules::grouping),
    ),
    route(
        "POST",
        "/api/v1/grouping",
        With(Scope::Admin),
        "Computes another version of the grouping beside, replaces the version, or ends this.",
        || post(rules::change_grouping),
    ),
    route(
        "GET",
        "/api/v1/tokens",
        With(Scope::Admin),
        "Lists tokens, without their secrets.",
        || get(tokens::list),
    ),
    route(
        "POST",
        "/api/v1/tokens",
        With(Scope::Admin),
        "Creates a token.",
        || post(tokens::create),
    ),
    route(
        "DELETE",
        "/api/v1/tokens/{id}",
        With(Scope::Admin),
        "Revokes a token.",
        || delete(tokens::revoke),
    ),
];

/// All pages for people.
pub const PAGES: &[Route] = &[
    route("GET", "/", With(Scope::Read), "Lists groups.", || {
        get(site::groups::page)
    }),
    route("GET", "/g/{id}", With(Scope::Read), "Shows a group.", || {
        get(site::group::page)
    }),
    route(
        "POST",
        "/g/{id}/state",
        With(Scope::Admin),
        "Resolves, archives or reopens a group.",
        || post(site::group_actions::change_state),
    ),
    route(
        "POST",
        "/g/{id}/assignee",
        With(Scope::Admin),
        "Sets the person who is responsible for a group.",
        || post(site::group_actions::assign),
    ),
    route(
        "POST",
        "/g/{id}/comments",
        With(Scope::Read),
        "Adds a comment.",
        || post(site::group_actions::comment),
    ),
    route("GET", "/c/{id}", With(Scope::Read), "Shows a crash.", || {
        get(site::crash::page)
    }),
    route(
        "GET",
        "/c/{id}/state",
        With(Scope::Read),
        "Returns the state of a bundle.",
        || get(site::crash::state),
    ),
    route(
        "GET",
        "/c/{id}/timeline",
        With(Scope::Read),
        "Returns the timelines of a crash.",
        || get(site::crash::timeline),
    ),
    route(
        "POST",
        "/c/{id}/pin",
        With(Scope::Admin),
        "Pins a crash, or unpins it.",
        || post(site::crash::pin),
    ),
    route(
        "GET",
        "/calls",
        With(Scope::Read),
        "Shows the exact calls of a function.",
        || get(site::calls::page),
    ),
    route(
        "GET",
        "/crash/{name}",
        With(Scope::Read),
        "Downloads a bundle.",
        || get(site::download::bundle),
    ),
    route(
        "GET",
        "/profiles",
        With(Scope::Read),
        "Shows the explorer of profiles.",
        || get(site::profiles::page),
    ),
    route(
        "GET",
        "/profiles/view",
        With(Scope::Read),
        "Shows the profile of a selection.",
        || get(site::profiles::show),
    ),
    route(
        "POST",
        "/profiles/views",
        With(Scope::Read),
        "Saves a view of profiles.",
        || post(site::saved_views::add),
    ),
    route(
        "POST",
        "/profiles/views/{id}/delete",
        With(Scope::Read),
        "Deletes a saved view of profiles.",
        || post(site::saved_views::delete),
    ),
    route(
        "GET",
        "/profiles/sql",
        With(Scope::Read),
        "Shows the page for SQL over profiles.",
        || get(site::profiles::sql),
    ),
    route(
        "GET",
        "/profiles/sql/view",
        With(Scope::Read),
        "Runs a query, and shows its answer as a flame graph or a chart.",
        || get(site::sql_view::show),
    ),
    route(
        "POST",
        "/profiles/now",
        With(Scope::Admin),
        "Asks the agent of a host for a profile.",
        || post(site::profiles::now),
    ),
    route(
        "GET",
        "/profiles/now/{id}",
        With(Scope::Read),
        "Shows a requested profile.",
        || get(site::profiles::request),
    ),
    route(
        "GET",
        "/profiles/now/{id}/state",
        With(Scope::Read),
        "Returns the state of a requested profile.",
        || get(site::profiles::request_state),
    ),
    route(
        "GET",
        "/settings",
        With(Scope::Admin),
        "Shows the settings.",
        || get(site::settings::page),
    ),
    route(
        "POST",
        "/settings/tokens",
        With(Scope::Admin),
        "Creates a token.",
        || post(site::settings::create_token),
    ),
    route(
        "POST",
        "/settings/tokens/{id}/revoke",
        With(Scope::Admin),
        "Revokes a token.",
        || post(site::settings::revoke_token),
    ),
    route(
        "GET",
        "/settings/rules",
        With(Scope::Admin),
        "Shows the rules and the versions of the grouping.",
        || get(site::rules::page),
    ),
    route(
        "POST",
        "/settings/rules",
        With(Scope::Admin),
        "Adds a rule of the grouping.",
        || post(site::rules::add),
    ),
    route(
        "POST",
        "/settings/rules/try",
        With(Scope::Admin),
        "Tries a change of the rules on past crashes.",
        || post(site::rules::try_rule),
    ),
    route(
        "GET",
        "/settings/rules/state",
        With(Scope::Admin),
        "Returns how far past crashes are grouped again.",
        || get(site::rules::state),
    ),
    route(
        "POST",
        "/settings/rules/{id}/delete",
        With(Scope::Admin),
        "Deletes a rule of the grouping.",
        || post(site::rules::delete),
    ),
    route(
        "POST",
        "/settings/grouping",
        With(Scope::Admin),
        "Changes the version of the grouping.",
        || post(site::rules::change_version),
    ),
    route(
        "POST",
        "/settings/channels/test",
        With(Scope::Admin),
        "Sends a test message to a channel.",
        || post(site::settings::test_channel),
    ),
    route(
        "GET",
        "/audit",
        With(Scope::Admin),
        "Shows the audit log.",
        || get(site::audit::page),
    ),
    route("GET", "/sign-in", Open, "Shows the sign-in.", || {
        get(site::session::page)
    }),
    route("POST", "/sign-in", Open, "Begins a session.", || {
        post(site::session::sign_in)
    }),
    route("POST", "/sign-out", With(Scope::Read), "Ends a session.", || {
        post(site::session::sign_out)
    }),
    route("GET", "/static/{name}", Open, "Returns a static file.", || {
        get(static_file)
    }),
];

async fn static_file(Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    assets::respond(&name, uri.query(), &headers)
}

/// Returns the router of a hub.
pub fn router(hub: Arc<Hub>) -> Router {
    let mut router = Router::new();
    let tables = [
        ROUTES,
        GRPC,
        profiles::REQUESTING,
        profiles::QUERYING,
        jobs::JOBS,
        sites::SITES,
    ];
    for route in tables.into_iter().flatten() {
        router = router.route(route.path, guarded(route, &hub));
    }
    router = profiles::add(router, &hub);
    router = symbols::add(router, &hub);
    for page in [jobs::JOB_PAGES, sites::SITE_PAGES, PAGES].into_iter().flatten() {
        // Errors are pages too.
        let handler = guarded(page, &hub).layer(middleware::from_fn(failures_as_pages));
        router = router.route(page.path, handler);
    }
    router
        .fallback(async || Error::Absent("page at this address".to_owned()))
        .method_not_allowed_fallback(async || {
            let text = Json(serde_json::json!({ "error": "this address does not take this method" }));
            (StatusCode::METHOD_NOT_ALLOWED, text)
        })
        .layer(middleware::from_fn(refusals_as_json))
        .layer(middleware::from_fn_with_state(hub.clone(), protect))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            let text = Json(
                serde_json::json!({ "error": "the hub failed at this request; its log has the reason" }),
            );
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }))
        .with_state(hub)
}

/// Shows an error as a page to a person. Programs, which do not ask for HTML, get JSON.
async fn failures_as_pages(request: Request, next: Next) -> Response {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let is_person = accept.is_some_and(|accept| accept.contains("text/html"));
    let address = request.uri().clone();
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<Failure>() {
        Some(failure) if is_person => site::failed::page(&failure.0, &address),
        _ => response,
    }
}

/// Refuses requests under foreign names, and adds the headers of every response.
async fn protect(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let public = hub.config.public_url();
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    // HTTP/2 has the name in the address.
    let host = host.or_else(|| request.uri().authority().map(Authority::as_str));
    let is_own = host.is_some_and(|host| guard::is_own_host(host, &public));
    let is_of_hub = request.headers().contains_key(SITE_HEADER);
    let mut response = if is_own && has_zero_byte(request.uri()) {
        Error::Invalid("an address has no zero bytes".to_owned()).into_response()
    } else if is_own {
        next.run(request).await
    } else {
        let text = "this hub has another name; set public_url to the address that people use";
        (
            StatusCode::MISDIRECTED_REQUEST,
            Json(serde_json::json!({ "error": text })),
        )
            .into_response()
    };
    headers::protect(response.headers_mut(), public.starts_with("https:"));
    if is_of_hub && let Ok(identity) = hub.identity.parse() {
        response.headers_mut().insert(HUB_HEADER, identity);
    }
    response
}

/// Returns whether an address has a zero byte, which PostgreSQL takes in no text.
fn has_zero_byte(address: &Uri) -> bool {
    address.path().contains("%00") || address.query().is_some_and(|query| query.contains("%00"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use axum::body::Body;
    use tower::ServiceExt;

    async fn hub(folder: &std::path::Path) -> Arc<Hub> {
        let config = Config {
            data: folder.to_owned(),
            ..Config::default()
        };
        Hub::open(config).await.unwrap()
    }

    async fn status(hub: &Arc<Hub>, route: &Route, token: Option<&str>) -> StatusCode {
        let path = route
            .path
            .replace("{id}", "0123456789abcdefghjk")
            .replace("{run}", "0123456789abcdefghjk")
            .replace("{name}", "x.btz")
            .replace("{*path}", "a.c")
            .replace("{org}", "team")
            .replace("{project}", "ledger");
        let mut request = Request::builder()
            .method(route.method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:7777");
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Body::empty()).unwrap();
        router(hub.clone()).oneshot(request).await.unwrap().status()
    }

    fn all_routes() -> impl Iterator<Item = &'static Route> {
        let tables = [
            ROUTES,
            PAGES,
            symbols::READING,
            symbols::UPLOADING,
            jobs::JOBS,
            jobs::JOB_PAGES,
            sites::SITES,
            sites::SITE_PAGES,
        ];
        tables.into_iter().flatten()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn routes_refuse_callers_without_their_scope() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path()).await;
        let mut tokens = Vec::new();
        for scope in [Scope::Ingest, Scope::Read, Scope::Admin] {
            let (_, secret) = hub.database.create_token("t", &[scope], None).await.unwrap();
            tokens.push((scope, secret));
        }
        for route in all_routes() {
            let label = format!("{} {}", route.method, route.path);
            if route.access == Open {
                assert_ne!(
                    status(&hub, route, None).await,
                    StatusCode::UNAUTHORIZED,
                    "{label}"
                );
                continue;
            }
            assert_eq!(
                status(&hub, route, None).await,
                StatusCode::UNAUTHORIZED,
                "{label}"
            );
            assert_eq!(
                status(&hub, route, Some("bthub_x")).await,
                StatusCode::UNAUTHORIZED,
                "{label}"
            );
            for (scope, secret) in &tokens {
                let is_allowed = match route.access {
                    With(Scope::Read) => *scope != Scope::Ingest,
                    With(wanted) => wanted == *scope,
                    _ => true,
                };
                if !is_allowed {
                    let found = status(&hub, route, Some(secret.reveal())).await;
                    assert_eq!(found, StatusCode::FORBIDDEN, "{label} by {scope:?}");
                }
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn no_route_fails_at_empty_requests() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path()).await;
        let all = [Scope::Ingest, Scope::Read, Scope::Admin];
        let (_, secret) = hub.database.create_token("t", &all, None).await.unwrap();
        for route in all_routes() {
            let found = status(&hub, route, Some(secret.reveal())).await;
            assert!(
                !found.is_server_error(),
                "{} {}: {found}",
                route.method,
                route.path
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn foreign_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path()).await;
        for host in ["evil.example", ""] {
            let request = Request::builder().uri("/healthz").header(header::HOST, host);
            let response = router(hub.clone())
                .oneshot(request.body(Body::empty()).unwrap())
                .await
                .unwrap();
            assert_eq!(response.status(), StatusCode::MISDIRECTED_REQUEST, "{host:?}");
            assert!(response.headers().contains_key(header::CONTENT_SECURITY_POLICY));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn every_refusal_is_json() {
        let folder = tempfile::tempdir().unwrap();
        let hub = hub(folder.path()).await;
        let all = [Scope::Ingest, Scope::Read, Scope::Admin];
        let (_, secret) = hub.database.create_token("t", &all, None).await.unwrap();
        for (method, path, media) in [
            ("GET", "/api/v1/groups/%ff", ""),
            ("GET", "/api/v1/groups?service=a%00b", ""),
            ("GET", "/buildid/abcd/section/%00", ""),
            (
                "POST",
                "/api/0/organizations/team/chunk-upload/",
                "multipart/form-data",
            ),
            ("POST", "/settings/tokens", "text/plain"),
            ("POST", "/sign-out", "application/x-www-form-urlencoded"),
            ("POST", "/api/v1/uploads", ""),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::HOST, "127.0.0.1:7777")
                .header(header::CONTENT_TYPE, media)
                .header(header::AUTHORIZATION, format!("Bearer {}", secret.reveal()));
            let request = request.body(Body::empty()).unwrap();
            let response = router(hub.clone()).oneshot(request).await.unwrap();
            assert!(
                response.status().is_client_error(),
                "{path}: {}",
                response.status()
            );
            let bytes = axum::body::to_bytes(response.into_body(), 9999).await.unwrap();
            let refusal: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            assert!(refusal["error"].is_string(), "{path}: {refusal}");
        }
    }
}
