//! The OpenAPI document of the routes for programs.

use axum::http::header;
use axum::response::{IntoResponse, Response};

/// The document. A test compares it with the table of routes.
pub const DOCUMENT: &str = include_str!("../../../../docs/hub-openapi.json");

/// Returns the document.
pub async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT).into_response()
}
