//! Errors as pages.

use crate::error::Error;
use crate::server::pages::error;
use crate::server::pages::layout::PageFrame;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};

/// Returns the page of an error. Without a sign-in, leads to the page where one signs in.
#[must_use]
pub fn page(error: &Error, address: &Uri) -> Response {
    if matches!(error, Error::NoToken | Error::UnknownToken) {
        let then = address.path_and_query().map_or("/", |path| path.as_str());
        let mut query = form_urlencoded::Serializer::new(String::new());
        let query = query.append_pair("then", then).finish();
        return Redirect::to(&format!("/sign-in?{query}")).into_response();
    }
    let status = error.status();
    let (message, hint) = match error {
        Error::Scope(_) => (
            error.to_string(),
            Some("Ask the administrator of this hub for a token with it."),
        ),
        _ if status == StatusCode::SERVICE_UNAVAILABLE => {
            tracing::error!("{error}");
            let text = "The hub cannot do this now; its log has the reason.";
            (text.to_owned(), Some("Try again in a moment."))
        }
        _ => (error.to_string(), None),
    };
    let frame = PageFrame {
        title: message.clone(),
        ..PageFrame::default()
    };
    (status, error::render(&frame, status.as_u16(), &message, hint)).into_response()
}
