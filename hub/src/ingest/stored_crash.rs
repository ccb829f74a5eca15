//! The description of a stored crash, beside its objects: an index is computed from it.

use crate::analysis::Analysis;
use crate::error::{Error, Result};
use crate::objects::{self, Objects};
use serde::{Deserialize, Serialize};

/// The description of a stored crash.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredCrash {
    /// The report's row.
    pub report: serde_json::Value,
    /// The time at which the hub received the report.
    pub received: i64,
    /// The time at which the bundle was stored. 0: an earlier hub did not note it.
    #[serde(default)]
    pub stored: i64,
    /// The time at which symbols that came later were applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbolized: Option<i64>,
    /// The reason for which the hub asked for the bundle, by its name in JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The SHA-256 of the bundle without its modules.
    pub bundle: String,
    /// The size of the bundle in bytes, without its modules.
    pub size: u64,
    /// The modules: path in the bundle, build id, and SHA-256.
    pub modules: Vec<StoredModule>,
}

/// A module of a stored crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredModule {
    /// The path in the bundle.
    pub path: String,
    /// The build id.
    pub build_id: String,
    /// The SHA-256 of its content.
    pub sha256: String,
    /// The size in bytes.
    pub size: u64,
    /// Whether the file itself has the build id.
    pub is_verified: bool,
    /// The detail of its functions: 0 nothing, 1 their names, 2 lines and variables too.
    #[serde(default)]
    pub detail: i64,
}

impl StoredCrash {
    /// Writes the description of a crash whose other objects are there.
    ///
    /// # Errors
    /// Fails if the object store fails.
    pub async fn write(&self, store: &Objects, report: &str) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Invalid(error.to_string()))?;
        store.put(&objects::crash(report), text).await
    }
}

/// Writes the analysis of a bundle, and its branches as an object of their own.
///
/// # Errors
/// Fails if the object store fails.
pub async fn write_analysis(store: &Objects, report: &str, analysis: &Analysis) -> Result<()> {
    let json = |error: serde_json::Error| Error::Invalid(error.to_string());
    let branches = serde_json::to_vec(&analysis.branches).map_err(json)?;
    store.put(&objects::branches(report), branches).await?;
    let without = Analysis {
        branches: Vec::new(),
        ..analysis.clone()
    };
    let text = serde_json::to_vec(&without).map_err(json)?;
    store.put(&objects::analysis(report), text).await
}

/// Notes in the description of a stored crash that later symbols were applied.
///
/// # Errors
/// Fails if the object store fails.
pub async fn note_symbols(store: &Objects, report: &str, time: i64) -> Result<()> {
    let Some(text) = store.get(&objects::crash(report)).await? else {
        return Ok(());
    };
    match serde_json::from_slice::<StoredCrash>(&text) {
        Ok(mut crash) => {
            crash.symbolized = Some(time);
            crash.write(store, report).await
        }
        // One of a newer hub is left as it is.
        Err(_) => Ok(()),
    }
}

/// Replaces the description of a crash whose bundle was removed. The new one keeps the times and
/// the reason. The analysis stays, so that the page and the group keep the stack. Its branches go.
///
/// # Errors
/// Fails if the object store fails.
pub async fn note_removal(store: &Objects, report: &str) -> Result<()> {
    store.delete(&objects::branches(report)).await?;
    let key = objects::crash(report);
    let Some(text) = store.get(&key).await? else {
        return Ok(());
    };
    store.put(&objects::removed_crash(report), text).await?;
    store.delete(&key).await
}
