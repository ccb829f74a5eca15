//! The table of all routes, from which the router and the OpenAPI document come.

use super::api::{crashes, groups, health, heartbeat, reports, tokens, uploads, whoami};
use super::caller::{self, Credentials};
use super::failure::Failure;
use super::listen::Peer;
use super::{assets, guard, headers, site};
use crate::access::Scope;
use crate::error::Error;
use crate::hub::Hub;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, head, patch, post};
use axum::{Json, Router};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tower_http::catch_panic::CatchPanicLayer;

/// A route.
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// The scope that a caller needs. `None`: nobody is asked.
    pub scope: Option<Scope>,
    /// The task, one sentence.
    pub summary: &'static str,
    /// The handler.
    pub handler: fn() -> MethodRouter<Arc<Hub>>,
}

/// All routes of the API.
pub const ROUTES: &[Route] = &[
    route("GET", "/healthz", None, "Returns whether the hub works.", || {
        get(health::health)
    }),
    route(
        "GET",
        "/metrics",
        None,
        "Returns counters for Prometheus.",
        || get(health::metrics),
    ),
    route(
        "GET",
        "/api/v1/whoami",
        Some(Scope::Read),
        "Returns the token's name and scopes.",
        || get(whoami::whoami),
    ),
    route(
        "POST",
        "/api/v1/reports",
        Some(Scope::Ingest),
        "Takes crash reports.",
        || post(reports::take),
    ),
    route(
        "POST",
        "/api/v1/heartbeat",
        Some(Scope::Ingest),
        "Takes a heartbeat.",
        || post(heartbeat::take),
    ),
    route(
        "OPTIONS",
        "/api/v1/uploads",
        None,
        "Returns the abilities of the TUS server.",
        || axum::routing::options(uploads::abilities),
    ),
    route(
        "POST",
        "/api/v1/uploads",
        Some(Scope::Ingest),
        "Begins an upload (TUS creation).",
        || post(uploads::create),
    ),
    route(
        "HEAD",
        "/api/v1/uploads/{id}",
        Some(Scope::Ingest),
        "Returns the offset of an upload.",
        || head(uploads::offset),
    ),
    route(
        "PATCH",
        "/api/v1/uploads/{id}",
        Some(Scope::Ingest),
        "Continues an upload.",
        || patch(uploads::add),
    ),
    route(
        "DELETE",
        "/api/v1/uploads/{id}",
        Some(Scope::Ingest),
        "Ends an upload (TUS termination).",
        || delete(uploads::end),
    ),
    route(
        "GET",
        "/api/v1/groups",
        Some(Scope::Read),
        "Lists groups.",
        || get(groups::list),
    ),
    route(
        "GET",
        "/api/v1/groups/{id}",
        Some(Scope::Read),
        "Returns a group.",
        || get(groups::one),
    ),
    route(
        "GET",
        "/api/v1/crashes",
        Some(Scope::Read),
        "Lists crashes, the newest first.",
        || get(crashes::list),
    ),
    route(
        "GET",
        "/api/v1/crashes/{id}",
        Some(Scope::Read),
        "Returns a crash.",
        || get(crashes::one),
    ),
    route(
        "GET",
        "/api/v1/tokens",
        Some(Scope::Admin),
        "Lists tokens, without their secrets.",
        || get(tokens::list),
    ),
    route(
        "POST",
        "/api/v1/tokens",
        Some(Scope::Admin),
        "Creates a token.",
        || post(tokens::create),
    ),
    route(
        "DELETE",
        "/api/v1/tokens/{id}",
        Some(Scope::Admin),
        "Revokes a token.",
        || delete(tokens::revoke),
    ),
];

/// All pages for people.
pub const PAGES: &[Route] = &[
    route("GET", "/", Some(Scope::Read), "Lists groups.", || {
        get(site::groups::page)
    }),
    route("GET", "/g/{id}", Some(Scope::Read), "Shows a group.", || {
        get(site::group::page)
    }),
    route(
        "POST",
        "/g/{id}/assignee",
        Some(Scope::Admin),
        "Sets who looks at a group.",
        || post(site::group_actions::assign),
    ),
    route(
        "POST",
        "/g/{id}/comments",
        Some(Scope::Read),
        "Adds a comment.",
        || post(site::group_actions::comment),
    ),
    route("GET", "/c/{id}", Some(Scope::Read), "Shows a crash.", || {
        get(site::crash::page)
    }),
    route(
        "GET",
        "/c/{id}/state",
        Some(Scope::Read),
        "Returns the state of a bundle.",
        || get(site::crash::state),
    ),
    route(
        "GET",
        "/c/{id}/timeline",
        Some(Scope::Read),
        "Returns the timelines of a crash.",
        || get(site::crash::timeline),
    ),
    route(
        "POST",
        "/c/{id}/pin",
        Some(Scope::Admin),
        "Pins a crash, or unpins it.",
        || post(site::crash::pin),
    ),
    route(
        "GET",
        "/crash/{name}",
        Some(Scope::Read),
        "Downloads a bundle.",
        || get(site::download::bundle),
    ),
    route(
        "GET",
        "/settings",
        Some(Scope::Admin),
        "Shows the settings.",
        || get(site::settings::page),
    ),
    route(
        "POST",
        "/settings/tokens",
        Some(Scope::Admin),
        "Creates a token.",
        || post(site::settings::create_token),
    ),
    route(
        "POST",
        "/settings/tokens/{id}/revoke",
        Some(Scope::Admin),
        "Revokes a token.",
        || post(site::settings::revoke_token),
    ),
    route(
        "GET",
        "/audit",
        Some(Scope::Admin),
        "Shows the audit log.",
        || get(site::audit::page),
    ),
    route("GET", "/sign-in", None, "Shows the sign-in.", || {
        get(site::session::page)
    }),
    route("POST", "/sign-in", None, "Begins a session.", || {
        post(site::session::sign_in)
    }),
    route("POST", "/sign-out", Some(Scope::Read), "Ends a session.", || {
        post(site::session::sign_out)
    }),
    route("GET", "/static/{name}", None, "Returns a static file.", || {
        get(static_file)
    }),
];

async fn static_file(Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Response {
    assets::respond(&name, uri.query(), &headers)
}

const fn route(
    method: &'static str,
    path: &'static str,
    scope: Option<Scope>,
    summary: &'static str,
    handler: fn() -> MethodRouter<Arc<Hub>>,
) -> Route {
    Route {
        method,
        path,
        scope,
        summary,
        handler,
    }
}

/// Returns the router of a hub.
pub fn router(hub: Arc<Hub>) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        router = router.route(route.path, guarded(route, &hub));
    }
    for page in PAGES {
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
        .layer(middleware::from_fn_with_state(hub.clone(), protect))
        .layer(CatchPanicLayer::custom(|_: Box<dyn std::any::Any + Send>| {
            let text = Json(
                serde_json::json!({ "error": "the hub failed at this request; its log has the reason" }),
            );
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }))
        .with_state(hub)
}

/// Returns the handler of a route, behind the check of its scope.
fn guarded(route: &Route, hub: &Arc<Hub>) -> MethodRouter<Arc<Hub>> {
    let handler = (route.handler)();
    match route.scope {
        Some(scope) => {
            let state = (hub.clone(), scope);
            handler.route_layer(middleware::from_fn_with_state(state, authorize))
        }
        None => handler,
    }
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

/// Checks the sender of a request, and hands it to the handler.
async fn authorize(
    State((hub, scope)): State<(Arc<Hub>, Scope)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Error> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let credentials = Credentials {
        method: request.method(),
        headers: request.headers(),
        peer: peer.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    };
    let caller =
        caller::authenticate(&hub.database, hub.config.proxy.as_ref(), &hub.rates, &credentials).await?;
    caller.require(scope)?;
    request.extensions_mut().insert(caller);
    Ok(next.run(request).await)
}

/// Refuses requests under foreign names, and adds the headers of every response.
async fn protect(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let public = hub.config.public_url();
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|value| value.to_str().ok());
    let mut response = if host.is_some_and(|host| guard::is_own_host(host, &public)) {
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
    response
}
