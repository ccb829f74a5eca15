//! Which reports and builds use which objects.

use super::Database;
use crate::clock;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

/// Selects a file of a build.
const SELECT_FILE: &str =
    "SELECT sha256, name, size, origin, detail, created FROM build_files WHERE build_id = $1 AND kind = $2";

/// The use of a file of a build.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Its code, as it ran.
    Executable,
    /// Its debug information.
    Debuginfo,
    /// The package of its split DWARF (`.dwp`).
    SplitDwarf,
    /// A source file: `source/` and its path.
    Source(String),
}

impl FileKind {
    /// Returns the name: the end of the address at a debuginfod server.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Executable => "executable",
            Self::Debuginfo => "debuginfo",
            Self::SplitDwarf => "dwp",
            Self::Source(name) => name,
        }
    }

    /// Returns the kind of a source file with this path, without a slash at its start.
    #[must_use]
    pub fn source(path: &str) -> Self {
        Self::Source(format!("source/{path}"))
    }

    fn named(name: &str) -> Self {
        match name {
            "executable" => Self::Executable,
            "debuginfo" => Self::Debuginfo,
            "dwp" => Self::SplitDwarf,
            path => Self::Source(path.to_owned()),
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
    /// The detail of its functions: 0 nothing, 1 their names, 2 lines and variables too.
    pub detail: i64,
    /// The time at which it came.
    pub created: i64,
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

/// Notes a file of a build. One that is there already stays, unless the new one says more of
/// functions, or as much and is an upload. Returns whether the hub now knows more of the build.
///
/// # Errors
/// Fails if the database fails.
pub async fn use_in_build(connection: &mut AnyConnection, file: &BuildFile) -> Result<bool> {
    let old = find_in_build(connection, &file.build_id, file.kind.name()).await?;
    let is_more = old.as_ref().is_none_or(|old| file.detail > old.detail);
    let is_as_good = old
        .as_ref()
        .is_some_and(|old| file.detail == old.detail && file.origin == "upload");
    if !is_more && !is_as_good {
        return Ok(false);
    }
    let upsert = "INSERT INTO build_files (build_id, kind, sha256, name, size, origin, created, detail) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (build_id, kind) DO UPDATE SET \
                  sha256 = $3, name = $4, size = $5, origin = $6, created = $7, detail = $8";
    sqlx::query(upsert)
        .bind(&file.build_id)
        .bind(file.kind.name())
        .bind(&file.sha256)
        .bind(&file.name)
        .bind(file.size)
        .bind(&file.origin)
        .bind(file.created)
        .bind(file.detail)
        .execute(&mut *connection)
        .await?;
    Ok(is_more)
}

/// Returns a file of a build within a transaction. `None`: the hub has none.
///
/// # Errors
/// Fails if the database fails.
pub async fn find_in_build(
    connection: &mut AnyConnection,
    build_id: &str,
    kind: &str,
) -> Result<Option<BuildFile>> {
    let found = sqlx::query(SELECT_FILE)
        .bind(build_id)
        .bind(kind)
        .fetch_optional(&mut *connection)
        .await?;
    found.map(|row| read_file(&row, build_id, kind)).transpose()
}

fn read_file(row: &AnyRow, build_id: &str, kind: &str) -> Result<BuildFile> {
    Ok(BuildFile {
        build_id: build_id.to_owned(),
        kind: FileKind::named(kind),
        sha256: row.try_get("sha256")?,
        name: row.try_get("name")?,
        size: row.try_get("size")?,
        origin: row.try_get("origin")?,
        detail: row.try_get("detail")?,
        created: row.try_get("created")?,
    })
}

impl Database {
    /// Returns the file of a build. `None`: the hub has none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn build_file(&self, build_id: &str, kind: &FileKind) -> Result<Option<BuildFile>> {
        let found = sqlx::query(SELECT_FILE)
            .bind(build_id)
            .bind(kind.name())
            .fetch_optional(self.reader())
            .await?;
        found
            .map(|row| read_file(&row, build_id, kind.name()))
            .transpose()
    }

    /// Returns whether the hub has any file of a build.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn has_build(&self, build_id: &str) -> Result<bool> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM build_files WHERE build_id = $1")
            .bind(build_id)
            .fetch_one(self.reader())
            .await?;
        Ok(count > 0)
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

    /// Returns which of these build ids have no executable here. The files of the others are kept
    /// until a time, because a sender now leaves them out.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn missing_executables(&self, build_ids: &[&str], until: i64) -> Result<Vec<String>> {
        let (mut missing, mut present) = (Vec::new(), Vec::new());
        for build_id in build_ids {
            match self.build_file(build_id, &FileKind::Executable).await? {
                None => missing.push((*build_id).to_owned()),
                Some(file) => present.push((*build_id, file.sha256)),
            }
        }
        let blobs: Vec<_> = present.iter().map(|(_, sha256)| sha256.as_str()).collect();
        let refused = self.reserve_blobs(&blobs, until).await?;
        for (build_id, sha256) in &present {
            // Garbage collection may have deleted the file before it was reserved.
            let is_deleted = self.build_file(build_id, &FileKind::Executable).await?.is_none();
            if is_deleted || refused.contains(sha256) {
                missing.push((*build_id).to_owned());
            }
        }
        Ok(missing)
    }
}
