//! The record of a build's index: the files it was made of, or the reason why there is none.

use crate::clock;
use crate::database::blobs::BuildFile;
use crate::error::{Error, Result};
use crate::objects::{self, Objects};
use serde::{Deserialize, Serialize};

/// The files of a build, by the SHA-256 of their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSources {
    /// The executable or library.
    pub executable: Option<String>,
    /// The file with debug information.
    pub debuginfo: Option<String>,
    /// The package of split DWARF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_dwarf: Option<String>,
}

impl IndexSources {
    /// Returns the sources that an executable, a debug file and a package of split DWARF are.
    #[must_use]
    pub fn of(
        executable: Option<&BuildFile>,
        debuginfo: Option<&BuildFile>,
        split_dwarf: Option<&BuildFile>,
    ) -> Self {
        let sha256 = |file: Option<&BuildFile>| file.map(|file| file.sha256.clone());
        Self {
            executable: sha256(executable),
            debuginfo: sha256(debuginfo),
            split_dwarf: sha256(split_dwarf),
        }
    }

    /// Returns whether the hub has no file of the build.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.executable.is_none() && self.debuginfo.is_none()
    }
}

/// The record of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRecord {
    /// The files that the index was made of.
    pub sources: IndexSources,
    /// The time at which it was made.
    pub made: i64,
    /// The reason why there is no index, as one sentence.
    pub refused: Option<String>,
    /// The time of the last use, to about a day. `None`: not since it was made.
    #[serde(default)]
    pub used: Option<i64>,
}

impl IndexRecord {
    /// Builds the record of an index that is made now.
    #[must_use]
    pub fn new(sources: IndexSources, refused: Option<String>) -> Self {
        Self {
            sources,
            made: clock::now(),
            refused,
            used: None,
        }
    }

    /// Reads the record of a build. `None`: no index was tried yet, or the record is damaged.
    ///
    /// # Errors
    /// Fails if the object store fails.
    pub async fn read(store: &Objects, build_id: &str) -> Result<Option<Self>> {
        let Some(text) = store.get(&objects::symbols(build_id, "json")).await? else {
            return Ok(None);
        };
        let record = serde_json::from_slice(&text);
        Ok(record
            .inspect_err(|error| tracing::warn!("the record of build {build_id}'s index is damaged: {error}"))
            .ok())
    }

    /// Notes a use of the index, at most once a day. Returns whether it did.
    ///
    /// # Errors
    /// Fails if the object store fails.
    pub async fn renew(&self, store: &Objects, build_id: &str, now: i64) -> Result<bool> {
        if now - self.used.unwrap_or(self.made) < clock::DAY {
            return Ok(false);
        }
        let renewed = Self {
            used: Some(now),
            ..self.clone()
        };
        renewed.write(store, build_id).await?;
        Ok(true)
    }

    /// Writes the record of a build. It makes the objects of the index visible.
    ///
    /// # Errors
    /// Fails if the object store fails.
    pub async fn write(&self, store: &Objects, build_id: &str) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Invalid(error.to_string()))?;
        store.put(&objects::symbols(build_id, "json"), text).await
    }
}
