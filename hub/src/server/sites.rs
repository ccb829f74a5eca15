//! Routes of sites: for programs, and the page for people.

use super::api::sites as api;
use super::route::Access::With;
use super::route::{Route, route};
use super::site::sites as site;
use crate::access::Scope;
use axum::routing::{delete, get, post, put};

/// Routes for programs.
pub const SITES: &[Route] = &[
    route(
        "GET",
        "/api/v1/sites",
        With(Scope::Admin),
        "Lists sites, without their tokens.",
        || get(api::list),
    ),
    route(
        "PUT",
        "/api/v1/sites/{name}",
        With(Scope::Admin),
        "Adds a site, or changes it.",
        || put(api::set),
    ),
    route(
        "DELETE",
        "/api/v1/sites/{name}",
        With(Scope::Admin),
        "Removes a site.",
        || delete(api::remove),
    ),
];

/// Pages for people.
pub const SITE_PAGES: &[Route] = &[
    route(
        "GET",
        "/settings/sites",
        With(Scope::Admin),
        "Shows the sites.",
        || get(site::page),
    ),
    route(
        "POST",
        "/settings/sites",
        With(Scope::Admin),
        "Adds a site, or changes it.",
        || post(site::set),
    ),
    route(
        "POST",
        "/settings/sites/{id}/remove",
        With(Scope::Admin),
        "Removes a site.",
        || post(site::remove),
    ),
];
