//! Errors as responses: one sentence as JSON for programs, as a page for people.

use crate::error::Error;
use axum::Json;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use backtrail_profile::Error as ProfileError;
use serde_json::json;
use std::sync::Arc;

/// The longest text of a refusal, in bytes.
const LONGEST: usize = 4096;

/// The error of a response, from which a page can be made.
#[derive(Clone, Debug)]
pub struct Failure(pub Arc<Error>);

impl Error {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) | Self::Comparison(_) => StatusCode::BAD_REQUEST,
            Self::Segment(backtrail_store::Error::Invalid(_)) => StatusCode::BAD_REQUEST,
            Self::Segment(backtrail_store::Error::Memory { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Profile(
                ProfileError::TooLarge { .. }
                | ProfileError::TooManySamples { .. }
                | ProfileError::TooManyStacks { .. }
                | ProfileError::TooManyNames { .. },
            ) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Profile(error) if error.is_refused() => StatusCode::BAD_REQUEST,
            Self::NoToken | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::Scope(_) | Self::ForeignRequest => StatusCode::FORBIDDEN,
            Self::Absent(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            // The sender's next try may succeed.
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Puts a refusal of the framework, which is text, into JSON as all others are.
pub async fn refusals_as_json(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let media = response.headers().get(header::CONTENT_TYPE);
    let is_text = media.is_some_and(|media| media.as_bytes().starts_with(b"text/plain"));
    if !response.status().is_client_error() || !is_text {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = match axum::body::to_bytes(body, LONGEST).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => "the request is malformed".to_owned(),
    };
    (parts.status, Json(json!({ "error": text }))).into_response()
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = self.status();
        let text = if status == StatusCode::SERVICE_UNAVAILABLE {
            tracing::error!("{self}");
            // Addresses and paths of the hub are not the sender's business.
            "the hub cannot do this now; its log has the reason".to_owned()
        } else {
            self.to_string()
        };
        let wait = match self {
            Self::TooMany { seconds } => Some(seconds),
            _ if status == StatusCode::SERVICE_UNAVAILABLE => Some(5),
            _ => None,
        };
        let mut response = (status, Json(json!({ "error": text }))).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(self, Self::NoToken | Self::UnknownToken) {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response.extensions_mut().insert(Failure(Arc::new(self)));
        response
    }
}
