//! Sites as JSON.

use super::json::Body;
use crate::clock;
use crate::database::sites::{SiteRow, SiteText};
use crate::error::Result;
use crate::hub::Hub;
use crate::profiles::sites::manage;
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A site in JSON. Its token is never shown.
#[derive(Serialize)]
pub struct SiteView {
    name: String,
    url: String,
    has_token: bool,
    enabled: bool,
    author: String,
    created: String,
}

impl From<SiteRow> for SiteView {
    fn from(row: SiteRow) -> Self {
        Self {
            has_token: row.token.is_some(),
            name: row.name,
            url: row.url,
            enabled: row.is_enabled,
            author: row.author,
            created: clock::iso_date(row.created),
        }
    }
}

/// A new site, or a change of one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteBody {
    /// The address of its hub.
    url: String,
    /// A token of its hub with the scope `read`. `None`: the one that is known.
    #[serde(default)]
    token: Option<String>,
    /// Whether it is asked.
    #[serde(default = "enabled")]
    enabled: bool,
}

const fn enabled() -> bool {
    true
}

/// Lists sites.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>) -> Result<Json<Vec<SiteView>>> {
    let sites = hub.database.sites().await?;
    Ok(Json(sites.into_iter().map(SiteView::from).collect()))
}

/// Adds a site, or changes the one of this name.
///
/// # Errors
/// Fails if a part is malformed or refused, a token is missing, or the database fails.
pub async fn set(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Body(body): Body<SiteBody>,
) -> Result<StatusCode> {
    let site = SiteText {
        name: &name,
        url: &body.url,
        token: body.token.as_deref(),
        is_enabled: body.enabled,
    };
    manage::set(&hub, &site, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a site.
///
/// # Errors
/// Fails if there is no such site, or the database fails.
pub async fn remove(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode> {
    hub.database.remove_site(&name, &caller.name).await?;
    Ok(StatusCode::NO_CONTENT)
}
