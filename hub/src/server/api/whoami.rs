//! The caller itself.

use crate::server::caller::Caller;
use axum::{Extension, Json};
use serde::Serialize;

/// The answer of `/api/v1/whoami`.
#[derive(Serialize)]
pub struct Identity {
    /// The name of the token or the person.
    name: String,
    /// The scopes.
    scopes: Vec<&'static str>,
}

/// Returns the caller's name and scopes.
pub async fn whoami(Extension(caller): Extension<Caller>) -> Json<Identity> {
    Json(Identity {
        scopes: caller.scopes.iter().map(|scope| scope.name()).collect(),
        name: caller.name,
    })
}
