//! The audit log.

use super::frame::frame;
use crate::clock;
use crate::error::Result;
use crate::hub::Hub;
use crate::server::caller::Caller;
use crate::server::pages::audit::{self, AuditEntry, AuditPage};
use axum::Extension;
use axum::extract::State;
use maud::Markup;
use std::sync::Arc;

/// The entries of the page.
const ENTRIES: i64 = 500;

/// Returns the page.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Result<Markup> {
    let entries = hub.database.audit(ENTRIES).await?;
    let entry = |entry: crate::database::audit::AuditEntry| AuditEntry {
        time: entry.time,
        address: address(&entry.action, &entry.subject),
        actor: entry.actor,
        action: entry.action,
        subject: entry.subject,
    };
    let view = AuditPage {
        frame: frame(&caller, "Audit log"),
        entries: entries.into_iter().map(entry).collect(),
        next: None,
        now: clock::now(),
    };
    Ok(audit::render(&view))
}

/// Returns the page of the subject of an action.
fn address(action: &str, subject: &str) -> Option<String> {
    match action {
        "open" | "download" | "pin" | "unpin" => Some(format!("/c/{subject}")),
        "assign" | "comment" | "resolve" | "archive" | "reopen" => Some(format!("/g/{subject}")),
        "add rule" | "delete rule" | "compare grouping" | "switch grouping" | "cancel grouping" => {
            Some("/settings/rules".to_owned())
        }
        "add job" | "change job" | "run job" => Some(format!("/jobs/{subject}")),
        "add site" | "change site" | "remove site" => Some("/settings/sites".to_owned()),
        "delete job" => Some("/jobs".to_owned()),
        _ => None,
    }
}
