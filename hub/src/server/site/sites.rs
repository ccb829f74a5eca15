//! The page of sites, and what a person changes there.

use super::frame::{KeyForm, check_form, frame, see};
use crate::access::Scope;
use crate::clock;
use crate::database::sites::{SiteRow, SiteText};
use crate::error::Result;
use crate::hub::Hub;
use crate::profiles::sites::manage;
use crate::server::caller::Caller;
use crate::server::pages::sites::{self, SiteLine, SitesPage};
use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use maud::Markup;
use serde::Deserialize;
use std::sync::Arc;

/// The page.
const PAGE: &str = "/settings/sites";

/// Returns the page.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Result<Markup> {
    let line = |row: SiteRow| SiteLine {
        has_token: row.token.is_some(),
        name: row.name,
        url: row.url,
        is_enabled: row.is_enabled,
        author: row.author,
        created: row.created,
    };
    let view = SitesPage {
        frame: frame(&caller, "Sites"),
        sites: hub.database.sites().await?.into_iter().map(line).collect(),
        now: clock::now(),
    };
    Ok(sites::render(&view))
}

/// The form of a site.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct SiteForm {
    csrf: String,
    name: String,
    url: String,
    token: String,
    enabled: String,
}

/// Adds a site, or changes the one of this name.
///
/// # Errors
/// Fails if the form is foreign, a part is malformed or refused, or the database fails.
pub async fn set(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<SiteForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let site = SiteText {
        name: form.name.trim(),
        url: &form.url,
        token: Some(form.token.as_str()),
        is_enabled: !form.enabled.is_empty(),
    };
    manage::set(&hub, &site, &caller.name).await?;
    Ok(see(PAGE))
}

/// Removes a site.
///
/// # Errors
/// Fails if the form is foreign, there is no such site, or the database fails.
pub async fn remove(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    hub.database.remove_site(&name, &caller.name).await?;
    Ok(see(PAGE))
}
