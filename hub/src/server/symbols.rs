//! Routes of the symbol service: debuginfod, and uploads of debug files as Sentry has them.

pub mod debuginfod;
pub mod sentry;

use super::listen::Peer;
use super::route::Access::With;
use super::route::{Route, guarded, route};
use crate::access::Scope;
use crate::error::Error;
use crate::hub::Hub;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{get, post};
use std::sync::Arc;

/// Routes that read files of builds. With `symbols.public`, they need no token.
pub const READING: &[Route] = &[
    route(
        "GET",
        "/buildid/{id}/debuginfo",
        With(Scope::Read),
        "Returns the debug information of a build.",
        || get(debuginfod::debuginfo),
    ),
    route(
        "GET",
        "/buildid/{id}/executable",
        With(Scope::Read),
        "Returns the executable or library of a build.",
        || get(debuginfod::executable),
    ),
    route(
        "GET",
        "/buildid/{id}/section/{name}",
        With(Scope::Read),
        "Returns a section of a build's files.",
        || get(debuginfod::section),
    ),
    route(
        "GET",
        "/buildid/{id}/source/{*path}",
        With(Scope::Read),
        "Returns a source file of a build.",
        || get(debuginfod::source),
    ),
];

/// Routes of `sentry-cli debug-files upload`.
pub const UPLOADING: &[Route] = &[
    route(
        "GET",
        "/api/0/organizations/{org}/chunk-upload/",
        With(Scope::Ingest),
        "Returns the limits of chunks.",
        || get(sentry::options),
    ),
    route(
        "POST",
        "/api/0/organizations/{org}/chunk-upload/",
        With(Scope::Ingest),
        "Takes chunks of debug files.",
        || post(sentry::upload).layer(DefaultBodyLimit::max(sentry::REQUEST_LIMIT)),
    ),
    route(
        "POST",
        "/api/0/projects/{org}/{project}/files/difs/assemble/",
        With(Scope::Ingest),
        "Makes debug files of chunks, and returns how far each is.",
        || post(sentry::assemble).layer(DefaultBodyLimit::max(sentry::ASSEMBLY_LIMIT)),
    ),
];

/// Adds the routes to a router.
pub fn add(mut router: Router<Arc<Hub>>, hub: &Arc<Hub>) -> Router<Arc<Hub>> {
    for one in READING {
        let handler = if hub.config.symbols.public {
            (one.handler)().route_layer(middleware::from_fn_with_state(hub.clone(), count))
        } else {
            guarded(one, hub)
        };
        router = router.route(one.path, handler);
    }
    for one in UPLOADING {
        let handler = guarded(one, hub).layer(middleware::from_fn(sentry::describe_failures));
        router = router.route(one.path, handler);
    }
    router
}

/// Limits the requests of one address, where no token does.
async fn count(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Result<Response, Error> {
    if let Some(peer) = request.extensions().get::<Peer>() {
        hub.rates.count(&peer.0.to_string())?;
    }
    Ok(next.run(request).await)
}
