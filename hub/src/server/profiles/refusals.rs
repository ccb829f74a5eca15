//! Counts the requests of pushes that are refused, of HTTP and of gRPC.

use crate::hub::Hub;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tonic::Code;

/// Answers a request of pushes, and counts it if a push is at fault.
pub async fn count(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if is_refusal(&response) {
        hub.intake.counts().refused.fetch_add(1, Ordering::Relaxed);
    }
    response
}

/// Returns whether a push is at fault, and not its token or the store.
fn is_refusal(response: &Response) -> bool {
    // A failed call has its status in the headers.
    let code = response.headers().get("grpc-status");
    let Some(code) = code else {
        let refusals = [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE];
        return refusals.contains(&response.status());
    };
    matches!(
        Code::from_bytes(code.as_bytes()),
        Code::InvalidArgument
            | Code::ResourceExhausted
            | Code::OutOfRange
            | Code::Unimplemented
            // A message that cannot be decoded.
            | Code::Internal
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse;

    #[test]
    fn faults_of_pushes_are_refusals() {
        for (status, expected) in [
            (200, false),
            (204, false),
            (400, true),
            (401, false),
            (413, true),
            (503, false),
        ] {
            let response = StatusCode::from_u16(status).unwrap().into_response();
            assert_eq!(is_refusal(&response), expected, "{status}");
        }
        for (code, expected) in [
            (Code::Ok, false),
            (Code::InvalidArgument, true),
            (Code::Unavailable, false),
        ] {
            let headers = [("grpc-status", (code as i32).to_string())];
            assert_eq!(is_refusal(&headers.into_response()), expected, "{code}");
        }
    }
}
