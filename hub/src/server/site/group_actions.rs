//! Changes that a person makes on the page of a group.

use super::frame::{check_form, see, typed};
use crate::access::Scope;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::ingest::act::act;
use crate::lifecycle::Action;
use crate::server::caller::Caller;
use axum::Extension;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use serde::Deserialize;
use std::sync::Arc;

/// The form of an assignee.
#[derive(Deserialize)]
pub struct AssigneeForm {
    #[serde(default)]
    csrf: String,
    #[serde(default)]
    assignee: String,
}

/// The form of a comment.
#[derive(Deserialize)]
pub struct CommentForm {
    #[serde(default)]
    csrf: String,
    text: String,
}

/// Sets the person who is responsible for a group.
///
/// # Errors
/// Fails if the form is foreign or malformed, or the database fails.
pub async fn assign(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<AssigneeForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let assignee = match form.assignee.trim() {
        "" => None,
        name => Some(typed("an assignee", name, 255)?),
    };
    hub.database.assign_group(&id, assignee).await?;
    hub.database.log_action(&caller.name, "assign", &id).await?;
    Ok(see(&format!("/g/{id}")))
}

/// Adds a comment.
///
/// # Errors
/// Fails if the form is foreign or malformed, or the database fails.
pub async fn comment(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<CommentForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    let text = typed("a comment", &form.text, 4000)?;
    let group = hub.database.group(&id).await?;
    hub.database.add_comment(&group.id, &caller.name, text).await?;
    hub.database
        .log_action(&caller.name, "comment", &group.id)
        .await?;
    Ok(see(&format!("/g/{}", group.id)))
}

/// The form of a state.
#[derive(Deserialize)]
pub struct StateForm {
    #[serde(default)]
    csrf: String,
    state: String,
    #[serde(default)]
    build: String,
    #[serde(default)]
    until: String,
}

impl StateForm {
    /// Returns the action that the form asks for.
    fn action(&self) -> Result<Action> {
        match &*self.state {
            "resolved" => Ok(Action::Resolve {
                build: Some(self.build.trim().to_owned()).filter(|build| !build.is_empty()),
            }),
            "archived" => Ok(Action::Archive {
                until_escalating: self.until == "escalating",
                more_reports: match &*self.until {
                    "reports" => Some(100),
                    _ => None,
                },
                until: None,
            }),
            "ongoing" => Ok(Action::Reopen),
            other => Err(Error::Invalid(format!(
                "\"{}\" is no state that a person sets",
                other.escape_debug()
            ))),
        }
    }
}

/// Resolves, archives or reopens a group.
///
/// # Errors
/// Fails if the form is foreign or malformed, or the database fails.
pub async fn change_state(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<StateForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    let outbox = hub.recorder.outbox();
    let _ = act(&hub.database, outbox, &id, &form.action()?, &caller.name).await?;
    Ok(see(&format!("/g/{id}")))
}
