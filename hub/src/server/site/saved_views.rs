//! Saved views on the explorer and the page for SQL.

use super::frame::{KeyForm, check_form, see};
use crate::database::saved_views::SavedView;
use crate::error::Result;
use crate::hub::Hub;
use crate::profiles::saved_page::SavedPage;
use crate::server::caller::Caller;
use crate::server::pages::saved_views::SavedRow;
use crate::server::profiles::views::{may_delete, remove, save};
use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use serde::Deserialize;
use std::sync::Arc;

/// The form of a view.
#[derive(Deserialize)]
pub struct ViewForm {
    #[serde(default)]
    csrf: String,
    name: String,
    query: String,
}

/// Returns the saved views of a page.
///
/// # Errors
/// Fails if the database fails.
pub async fn rows(hub: &Hub, caller: &Caller, page: SavedPage) -> Result<Vec<SavedRow>> {
    let views = hub.database.saved_views().await?;
    let views = views
        .into_iter()
        .filter(|view| SavedPage::of(&view.query) == page);
    let row = |view: SavedView| SavedRow {
        may_delete: may_delete(caller, &view),
        address: format!("{}?{}", page.path(), view.query),
        id: view.id,
        name: view.name,
        creator: view.creator,
    };
    Ok(views.map(row).collect())
}

/// Saves the view of a page.
///
/// # Errors
/// Fails if the form is foreign or malformed, the name is taken, or the database fails.
pub async fn add(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<ViewForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    let view = save(&hub, &caller, &form.name, &form.query).await?;
    let path = SavedPage::of(&view.query).path();
    Ok(see(&format!("{path}?{}", view.query)))
}

/// Deletes a view.
///
/// # Errors
/// Fails if the form is foreign, the view is another person's, or the database fails.
pub async fn delete(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    let view = remove(&hub, &caller, &id).await?;
    Ok(see(SavedPage::of(&view.query).path()))
}
