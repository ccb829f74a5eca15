//! The page of a function's exact calls.

use super::crash::editor_link;
use super::frame::frame;
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use crate::server::api::calls::{ListParameters, call_address};
use crate::server::api::json::Parameters;
use crate::server::caller::Caller;
use crate::server::pages::calls::{self, CallRow, CallsPage};
use axum::Extension;
use axum::extract::State;
use maud::Markup;
use std::sync::Arc;

/// Returns the page.
///
/// # Errors
/// Fails if a parameter is malformed, or the database fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Markup> {
    let public = hub.config.public_url();
    let found = parameters.find(&hub).await?.into_iter();
    let rows = found.map(|found| CallRow {
        address: call_address(&found),
        editor: editor_link(&public, &found.crash, Some(&found.position)),
        title: found.title,
        time: found.time,
        service: found.service,
        build: found.build,
        host: found.host,
        position: found.position,
        calls: found.calls.unsigned_abs(),
        instructions: found.instructions.unsigned_abs(),
        duration: found.duration,
    });
    Ok(calls::render(&CallsPage {
        rows: rows.collect(),
        frame: frame(&caller, "Exact calls"),
        function: parameters.function,
        now: clock::now(),
    }))
}
