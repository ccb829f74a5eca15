//! Which reports and builds use which objects.

use super::Database;
use crate::clock;
use crate::error::Result;
use serde::{Deserialize, Serialize};
use sqlx::AnyConnection;
use sqlx::Row;

/// The use of a file of a build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileKind {
    /// Its code, as it ran.
    Executable,
    /// Its debug information.
    Debuginfo,
}

impl FileKind {
    /// Returns the name, as debuginfod has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Executable => "executable",
            Self::Debuginfo => "debuginfo",
        }
    }
}

/// A file of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildFile {
    /// The build id.
    pub build_id: String,
    /// Its use.
    pub kind: FileKind,
    /// The SHA-256 of its content.
    pub sha256: String,
    /// Its name.
    pub name: String,
    /// The size in bytes.
    pub size: i64,
    /// Where it came from: `bundle`, `upload` or `upstream`.
    pub origin: String,
}

/// Notes a blob that is in the object store.
///
/// # Errors
/// Fails if the database fails.
pub async fn note(connection: &mut AnyConnection, sha256: &str, size: i64) -> Result<()> {
    sqlx::query(
        "INSERT INTO blobs (sha256, size, created) VALUES ($1, $2, $3) ON CONFLICT (sha256) DO NOTHING",
    )
    .bind(sha256)
    .bind(size)
    .bind(clock::now())
    .execute(&mut *connection)
    .await?;
    Ok(())
}

/// Notes that a report uses a blob as the file `path` of its bundle.
///
/// # Errors
/// Fails if the database fails.
pub async fn use_in_report(
    connection: &mut AnyConnection,
    report: &str,
    path: &str,
    sha256: &str,
) -> Result<()> {
    let upsert = "INSERT INTO report_blobs (report, sha256, path) VALUES ($1, $2, $3) \
                  ON CONFLICT (report, path) DO UPDATE SET sha256 = $2";
    sqlx::query(upsert)
        .bind(report)
        .bind(sha256)
        .bind(path)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Notes a file of a build. One that is there already stays, unless the new one is an upload.
///
/// # Errors
/// Fails if the database fails.
pub async fn use_in_build(connection: &mut AnyConnection, file: &BuildFile) -> Result<()> {
    let upsert = "INSERT INTO build_files (build_id, kind, sha256, name, size, origin, created) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (build_id, kind) DO UPDATE SET \
                  sha256 = CASE WHEN $6 = 'upload' THEN $3 ELSE build_files.sha256 END, \
                  name = CASE WHEN $6 = 'upload' THEN $4 ELSE build_files.name END, \
                  size = CASE WHEN $6 = 'upload' THEN $5 ELSE build_files.size END, \
                  origin = CASE WHEN $6 = 'upload' THEN $6 ELSE build_files.origin END";
    sqlx::query(upsert)
        .bind(&file.build_id)
        .bind(file.kind.name())
        .bind(&file.sha256)
        .bind(&file.name)
        .bind(file.size)
        .bind(&file.origin)
        .bind(clock::now())
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Returns the file of a build. `None`: the hub has none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn build_file(&self, build_id: &str, kind: FileKind) -> Result<Option<BuildFile>> {
        let select = "SELECT sha256, name, size, origin FROM build_files WHERE build_id = $1 AND kind = $2";
        let found = sqlx::query(select)
            .bind(build_id)
            .bind(kind.name())
            .fetch_optional(self.reader())
            .await?;
        let Some(row) = found else {
            return Ok(None);
        };
        Ok(Some(BuildFile {
            build_id: build_id.to_owned(),
            kind,
            sha256: row.try_get("sha256")?,
            name: row.try_get("name")?,
            size: row.try_get("size")?,
            origin: row.try_get("origin")?,
        }))
    }

    /// Returns the blobs of a report: the path in the bundle, and the SHA-256.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn report_blobs(&self, report: &str) -> Result<Vec<(String, String)>> {
        let rows = sqlx::query("SELECT path, sha256 FROM report_blobs WHERE report = $1 ORDER BY path")
            .bind(report)
            .fetch_all(self.reader())
            .await?;
        rows.iter()
            .map(|row| Ok((row.try_get("path")?, row.try_get("sha256")?)))
            .collect()
    }

    /// Returns which of these build ids have no executable here.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn missing_executables(&self, build_ids: &[&str]) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for build_id in build_ids {
            if self.build_file(build_id, FileKind::Executable).await?.is_none() {
                missing.push((*build_id).to_owned());
            }
        }
        Ok(missing)
    }
}
