//! Exact calls of functions as JSON.

use super::json::Parameters;
use crate::clock;
use crate::database::exact_calls::BundleCalls;
use crate::error::{Error, Result};
use crate::hub::Hub;
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The most entries of a list.
const MOST: u32 = 200;

/// The parameters of a list of exact calls.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListParameters {
    /// The function, in any of the forms of its name.
    pub function: String,
    /// The build id of its module. Empty: all.
    pub build_id: String,
    /// The most entries, up to 200.
    pub limit: Option<u32>,
}

impl ListParameters {
    /// Returns the bundles with complete calls of the function.
    ///
    /// # Errors
    /// Fails if no function is named, or the database fails.
    pub async fn find(&self, hub: &Hub) -> Result<Vec<BundleCalls>> {
        if self.function.is_empty() {
            return Err(Error::Invalid(
                "name a function: ?function=Ledger::close".to_owned(),
            ));
        }
        let build_id = Some(&*self.build_id).filter(|id| !id.is_empty());
        let limit = i64::from(self.limit.unwrap_or(50).clamp(1, MOST));
        hub.database.exact_calls(&self.function, build_id, limit).await
    }
}

/// The exact calls of a function in a bundle, in JSON.
#[derive(Serialize)]
pub struct CallsView {
    crash: String,
    /// The address of the crash, at the newest call.
    link: String,
    date: String,
    title: String,
    host: String,
    service: String,
    build: String,
    build_id: Option<String>,
    position: String,
    calls: i64,
    instructions: i64,
    duration: Option<String>,
}

impl CallsView {
    fn new(hub: &Hub, found: BundleCalls) -> Self {
        Self {
            link: format!("{}{}", hub.config.public_url(), call_address(&found)),
            crash: found.crash,
            date: clock::iso_date(found.time),
            title: found.title,
            host: found.host,
            service: found.service,
            build: found.build,
            build_id: found.build_id,
            position: found.position,
            calls: found.calls,
            instructions: found.instructions,
            duration: found.duration,
        }
    }
}

/// Returns the address of a crash's page at the newest call of a function.
#[must_use]
pub fn call_address(found: &BundleCalls) -> String {
    let position = form_urlencoded::byte_serialize(found.position.as_bytes());
    format!("/c/{}#{}", found.crash, position.collect::<String>())
}

/// Lists the stored bundles with complete calls of a function, the newest first.
///
/// # Errors
/// Fails if a parameter is malformed, or the database fails.
pub async fn list(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Json<Vec<CallsView>>> {
    let found = parameters.find(&hub).await?.into_iter();
    Ok(Json(found.map(|found| CallsView::new(&hub, found)).collect()))
}
