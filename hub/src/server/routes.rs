//! The table of all routes, from which the router and the OpenAPI document come.

use super::api::{crashes, groups, health, heartbeat, reports, tokens, uploads, whoami};
use super::caller::{self, Credentials};
use super::listen::Peer;
use super::{guard, headers};
use crate::access::Scope;
use crate::error::Error;
use crate::hub::Hub;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
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
        let mut handler = (route.handler)();
        if let Some(scope) = route.scope {
            let state = (hub.clone(), scope);
            handler = handler.route_layer(middleware::from_fn_with_state(state, authorize));
        }
        router = router.route(route.path, handler);
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
