//! Saved views: names for addresses of the explorer and the page for SQL.

use crate::access::Scope;
use crate::clock;
use crate::database::saved_views::SavedView;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::saved_page::SavedPage;
use crate::server::api::json::Body;
use crate::server::caller::Caller;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest name in characters.
const MAX_NAME: usize = 100;

/// A view that a program saves.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewView {
    name: String,
    /// The query of the address of the explorer or of the page for SQL.
    query: String,
}

/// A saved view in lists.
#[derive(Serialize)]
pub struct ViewView {
    id: String,
    name: String,
    query: String,
    creator: String,
    created: String,
    link: String,
}

impl ViewView {
    fn new(hub: &Hub, view: SavedView) -> Self {
        Self {
            link: format!(
                "{}{}?{}",
                hub.config.public_url(),
                SavedPage::of(&view.query).path(),
                view.query
            ),
            id: view.id,
            name: view.name,
            query: view.query,
            creator: view.creator,
            created: clock::iso_date(view.created),
        }
    }
}

/// Saves a view under a name.
///
/// # Errors
/// Fails if the name or the query is malformed, the name is taken, or the database fails.
pub async fn save(hub: &Hub, caller: &Caller, name: &str, query: &str) -> Result<SavedView> {
    let name = name.trim();
    let length = name.chars().count();
    if length == 0 || length > MAX_NAME || name.chars().any(char::is_control) {
        return Err(Error::Invalid(format!(
            "the name of a view has 1 to {MAX_NAME} printable characters"
        )));
    }
    let query = SavedPage::checked(query, clock::now())?;
    let id = hub.database.save_view(name, &query, &caller.name).await?;
    hub.database.saved_view(&id).await
}

/// Deletes a view, and returns it. Only its creator and administrators may.
///
/// # Errors
/// Fails if there is no such view, it is another person's, or the database fails.
pub async fn remove(hub: &Hub, caller: &Caller, id: &str) -> Result<SavedView> {
    let view = hub.database.saved_view(id).await?;
    if !may_delete(caller, &view) {
        return Err(Error::Scope(Scope::Admin.name()));
    }
    hub.database.delete_view(&view, &caller.name).await?;
    Ok(view)
}

/// Returns whether a person may delete a view.
#[must_use]
pub fn may_delete(caller: &Caller, view: &SavedView) -> bool {
    caller.allows(Scope::Admin) || view.creator == caller.name
}

/// Lists saved views, by name.
///
/// # Errors
/// Fails if the database fails.
pub async fn list(State(hub): State<Arc<Hub>>) -> Result<Json<Vec<ViewView>>> {
    let views = hub.database.saved_views().await?;
    let views = views.into_iter().map(|view| ViewView::new(&hub, view));
    Ok(Json(views.collect()))
}

/// Saves a view of a program.
///
/// # Errors
/// As [`save`].
pub async fn create(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Body(new): Body<NewView>,
) -> Result<(StatusCode, Json<ViewView>)> {
    let view = save(&hub, &caller, &new.name, &new.query).await?;
    Ok((StatusCode::CREATED, Json(ViewView::new(&hub, view))))
}

/// Deletes a view.
///
/// # Errors
/// As [`remove`].
pub async fn delete(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    remove(&hub, &caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
