//! Routes of jobs: for programs, and pages for people.

use super::api::jobs as api;
use super::route::Access::With;
use super::route::{Route, route};
use super::site::jobs as site;
use crate::access::Scope;
use axum::routing::{delete, get, post, put};

/// Routes for programs.
pub const JOBS: &[Route] = &[
    route("GET", "/api/v1/jobs", With(Scope::Read), "Lists jobs.", || {
        get(api::list)
    }),
    route("POST", "/api/v1/jobs", With(Scope::Admin), "Adds a job.", || {
        post(api::add)
    }),
    route(
        "GET",
        "/api/v1/jobs/{id}",
        With(Scope::Read),
        "Returns a job.",
        || get(api::one),
    ),
    route(
        "PUT",
        "/api/v1/jobs/{id}",
        With(Scope::Admin),
        "Replaces the definition of a job.",
        || put(api::change),
    ),
    route(
        "DELETE",
        "/api/v1/jobs/{id}",
        With(Scope::Admin),
        "Deletes a job with its results.",
        || delete(api::remove),
    ),
    route(
        "POST",
        "/api/v1/jobs/{id}/run",
        With(Scope::Admin),
        "Runs a job now.",
        || post(api::run),
    ),
    route(
        "GET",
        "/api/v1/jobs/{id}/runs",
        With(Scope::Read),
        "Lists the runs of a job, the newest first.",
        || get(api::runs),
    ),
    route(
        "GET",
        "/api/v1/jobs/{id}/runs/{run}",
        With(Scope::Read),
        "Returns a run with its result.",
        || get(api::run_result),
    ),
];

/// Pages for people.
pub const JOB_PAGES: &[Route] = &[
    route("GET", "/jobs", With(Scope::Read), "Lists jobs.", || {
        get(site::list)
    }),
    route("POST", "/jobs", With(Scope::Admin), "Adds a job.", || {
        post(site::add)
    }),
    route(
        "GET",
        "/jobs/new",
        With(Scope::Admin),
        "Shows the form of a new job.",
        || get(site::new),
    ),
    route("GET", "/jobs/{id}", With(Scope::Read), "Shows a job.", || {
        get(site::page)
    }),
    route("POST", "/jobs/{id}", With(Scope::Admin), "Changes a job.", || {
        post(site::change)
    }),
    route(
        "POST",
        "/jobs/{id}/run",
        With(Scope::Admin),
        "Runs a job now.",
        || post(site::run),
    ),
    route(
        "POST",
        "/jobs/{id}/delete",
        With(Scope::Admin),
        "Deletes a job with its results.",
        || post(site::delete),
    ),
];
