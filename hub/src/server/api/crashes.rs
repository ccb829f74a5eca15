//! Crashes as JSON.

use super::json::Parameters;
use crate::clock;
use crate::database::listing::{CrashFilter, ListedCrash};
use crate::error::Result;
use crate::hub::Hub;
use axum::Json;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The parameters of a list of crashes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ListParameters {
    /// A group.
    pub group: String,
    /// A service.
    pub service: String,
    /// A build.
    pub build: String,
    /// A host.
    pub host: String,
    /// A function on the stack.
    pub function: String,
    /// Only crashes with a stored bundle.
    pub stored: bool,
    /// Where the page before ended.
    pub after: String,
    /// The most entries, up to 200.
    pub limit: Option<u32>,
}

impl ListParameters {
    /// Returns the filter of the database.
    #[must_use]
    pub fn filter(&self) -> CrashFilter {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        CrashFilter {
            group: some(&self.group),
            service: some(&self.service),
            build: some(&self.build),
            host: some(&self.host),
            function: some(&self.function),
            only_stored: self.stored,
            after: some(&self.after),
            limit: i64::from(self.limit.unwrap_or(50).clamp(1, 200)),
        }
    }
}

/// A crash in JSON.
#[derive(Serialize)]
pub struct CrashView {
    id: String,
    /// In microseconds since 1970.
    time: i64,
    date: String,
    title: String,
    signal: i64,
    signal_name: String,
    host: String,
    service: String,
    build: String,
    group: String,
    bundle: &'static str,
    pinned: bool,
    link: String,
}

impl CrashView {
    fn new(hub: &Hub, listed: ListedCrash) -> Self {
        Self {
            link: format!("{}/c/{}", hub.config.public_url(), listed.id),
            id: listed.id,
            time: listed.time,
            date: clock::iso_date(listed.time),
            title: listed.title,
            signal: listed.signal,
            signal_name: signal_name(listed.signal),
            host: listed.host,
            service: listed.service,
            build: listed.build,
            group: listed.group,
            bundle: listed.bundle.name(),
            pinned: listed.is_pinned,
        }
    }
}

/// Returns the name of a signal: `SIGSEGV`.
fn signal_name(signal: i64) -> String {
    let number = i32::try_from(signal).unwrap_or_default();
    backtrail_debugger::signal::name(number)
}

/// Lists crashes, the newest first.
///
/// # Errors
/// Fails if a parameter is malformed, or the database fails.
pub async fn list(
    State(hub): State<Arc<Hub>>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Json<Vec<CrashView>>> {
    let (crashes, _) = hub.database.list_crashes(&parameters.filter()).await?;
    Ok(Json(
        crashes
            .into_iter()
            .map(|listed| CrashView::new(&hub, listed))
            .collect(),
    ))
}

/// Returns a crash: its report, how far its bundle has come, and its analysis.
///
/// # Errors
/// Fails if there is no such crash, or the database or the object store fails.
pub async fn one(State(hub): State<Arc<Hub>>, Path(id): Path<String>) -> Result<Json<Value>> {
    let row = hub.database.report(&id).await?;
    let group = hub.database.group_of_key(&row.key).await?;
    let analysis = match hub.objects.get(&crate::objects::analysis(&row.id)).await? {
        Some(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        None => Value::Null,
    };
    Ok(Json(json!({
        "id": row.id,
        "link": format!("{}/c/{}", hub.config.public_url(), row.id),
        "time": clock::iso_date(row.time),
        "received": clock::iso_date(row.received),
        "group": group,
        "bundle": row.bundle.name(),
        "bundle_problem": row.bundle_problem,
        "bundle_size": row.bundle_size,
        "pinned": row.is_pinned,
        "report": serde_json::from_str::<Value>(&row.report).unwrap_or(Value::Null),
        "analysis": analysis,
    })))
}
