//! Routes of profiles: pushes of several clients, requests for profiles, and queries.

pub mod body;
pub mod grpc;
pub mod push;
pub mod queries;
pub mod refusals;
pub mod requests;
pub mod selected;
pub mod views;

use super::route::Access::With;
use super::route::{Route, guarded, route};
use crate::access::Scope;
use crate::hub::Hub;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{delete, get, post};
use std::sync::Arc;

/// Routes that take profiles.
pub const PUSHING: &[Route] = &[
    route(
        "POST",
        "/api/v1/profiles",
        With(Scope::Ingest),
        "Stores a profile.",
        || post(push::take).layer(DefaultBodyLimit::max(body::REQUEST_LIMIT)),
    ),
    route(
        "POST",
        "/v1development/profiles",
        With(Scope::Ingest),
        "Stores profiles of OpenTelemetry (OTLP).",
        || post(push::take_otlp).layer(DefaultBodyLimit::max(body::REQUEST_LIMIT)),
    ),
    route(
        "POST",
        "/ingest",
        With(Scope::Ingest),
        "Stores a profile of a client of Pyroscope.",
        || post(push::take_ingest).layer(DefaultBodyLimit::max(body::REQUEST_LIMIT)),
    ),
    route(
        "POST",
        "/push.v1.PusherService/Push",
        With(Scope::Ingest),
        "Stores profiles of a client of Pyroscope (Connect).",
        || post(push::take_push).layer(DefaultBodyLimit::max(body::REQUEST_LIMIT)),
    ),
];

/// Adds the routes that take profiles to a router.
pub fn add(mut router: Router<Arc<Hub>>, hub: &Arc<Hub>) -> Router<Arc<Hub>> {
    for one in PUSHING.iter().chain(GRPC) {
        let count = middleware::from_fn_with_state(hub.clone(), refusals::count);
        router = router.route(one.path, guarded(one, hub).layer(count));
    }
    router
}

/// Methods of gRPC. They are not in the OpenAPI document.
pub const GRPC: &[Route] = &[
    route(
        "POST",
        "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export",
        With(Scope::Ingest),
        "Stores profiles of OpenTelemetry (OTLP).",
        || post(grpc::export).layer(DefaultBodyLimit::disable()),
    ),
    route(
        "POST",
        "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw",
        With(Scope::Ingest),
        "Stores profiles of a client of Parca.",
        || post(grpc::write_raw).layer(DefaultBodyLimit::disable()),
    ),
];

/// Routes of requests for profiles.
pub const REQUESTING: &[Route] = &[
    route(
        "POST",
        "/api/v1/profile-requests",
        With(Scope::Admin),
        "Asks the agent of a host for a profile.",
        || post(requests::create),
    ),
    route(
        "GET",
        "/api/v1/profile-requests/next",
        With(Scope::Ingest),
        "Returns the next request of a host. `Prefer: wait=20` waits for one.",
        || get(requests::next),
    ),
    route(
        "GET",
        "/api/v1/profile-requests/{id}",
        With(Scope::Read),
        "Returns a request with its state.",
        || get(requests::one),
    ),
    route(
        "POST",
        "/api/v1/profile-requests/{id}/end",
        With(Scope::Ingest),
        "Notes that the profile of a request is stored.",
        || post(requests::end),
    ),
];

/// Routes of queries.
pub const QUERYING: &[Route] = &[
    route(
        "GET",
        "/api/v1/profiles/merge",
        With(Scope::Read),
        "Returns the sum of a selection of samples in the format of a tool.",
        || get(queries::merge),
    ),
    route(
        "GET",
        "/api/v1/profiles/regressions",
        With(Scope::Read),
        "Returns the functions whose cost differs between two builds.",
        || get(queries::regressions),
    ),
    route(
        "GET",
        "/api/v1/profiles/series",
        With(Scope::Read),
        "Returns the weights of each event over time.",
        || get(queries::series),
    ),
    route(
        "GET",
        "/api/v1/profiles/top",
        With(Scope::Read),
        "Returns the functions with the largest own weight.",
        || get(queries::top),
    ),
    route(
        "POST",
        "/api/v1/profiles/sql",
        With(Scope::Read),
        "Answers a query in SQL.",
        || post(queries::sql),
    ),
    route(
        "GET",
        "/api/v1/profiles/units",
        With(Scope::Read),
        "Returns the weights of functions by host and interval of time.",
        || get(queries::units),
    ),
    route(
        "GET",
        "/api/v1/profiles/values",
        With(Scope::Read),
        "Lists the values of a column.",
        || get(queries::values),
    ),
    route(
        "GET",
        "/api/v1/profiles/views",
        With(Scope::Read),
        "Lists saved views.",
        || get(views::list),
    ),
    route(
        "POST",
        "/api/v1/profiles/views",
        With(Scope::Read),
        "Saves a view.",
        || post(views::create),
    ),
    route(
        "DELETE",
        "/api/v1/profiles/views/{id}",
        With(Scope::Read),
        "Deletes a saved view.",
        || delete(views::delete),
    ),
];
