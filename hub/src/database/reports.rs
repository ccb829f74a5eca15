//! Reports: one row per crash.

use super::Database;
use crate::database::transact;
use crate::error::{Error, Result};
use backtrail_report::CrashReport;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

/// How far the bundle of a report has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BundleState {
    /// The report was counted only.
    None,
    /// The hub asked for the bundle.
    Wanted,
    /// All has arrived, and a child process checks it.
    Checking,
    /// The bundle is stored.
    Stored,
    /// The check failed.
    Refused,
    /// Retention or sampling removed it.
    Removed,
}

impl BundleState {
    const ALL: [Self; 6] = [
        Self::None,
        Self::Wanted,
        Self::Checking,
        Self::Stored,
        Self::Refused,
        Self::Removed,
    ];

    /// Returns the name, as the database and the API have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Wanted => "wanted",
            Self::Checking => "checking",
            Self::Stored => "stored",
            Self::Refused => "refused",
            Self::Removed => "removed",
        }
    }

    pub(super) fn named(name: &str) -> Result<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|state| state.name() == name)
            .ok_or_else(|| Error::Absent(format!("bundle state {name}")))
    }
}

/// A report as the database has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportRow {
    /// The report's identifier.
    pub id: String,
    /// Its stack key.
    pub key: String,
    /// The time of the crash.
    pub time: i64,
    /// The time at which the hub received it.
    pub received: i64,
    /// The host.
    pub host: String,
    /// The service.
    pub service: String,
    /// The build.
    pub build: String,
    /// The report without modules, as JSON.
    pub report: String,
    /// How far its bundle has come.
    pub bundle: BundleState,
    /// The end of the time for which a wanted bundle counts as on its way.
    pub bundle_until: Option<i64>,
    /// The reason for which the bundle was refused.
    pub bundle_problem: Option<String>,
    /// The SHA-256 of the stored bundle without its modules.
    pub bundle_sha256: Option<String>,
    /// The size of the bundle in bytes, with its modules.
    pub bundle_size: Option<i64>,
    /// Whether retention keeps it.
    pub is_pinned: bool,
    /// The segment of the journal that has it.
    pub segment: String,
}

impl ReportRow {
    pub(super) fn read(row: &AnyRow) -> Result<Self> {
        let bundle: String = row.try_get("bundle")?;
        let pinned: i64 = row.try_get("pinned")?;
        Ok(Self {
            id: row.try_get("id")?,
            key: row.try_get("key")?,
            time: row.try_get("time")?,
            received: row.try_get("received")?,
            host: row.try_get("host")?,
            service: row.try_get("service")?,
            build: row.try_get("build")?,
            report: row.try_get("report")?,
            bundle: BundleState::named(&bundle)?,
            bundle_until: row.try_get("bundle_until")?,
            bundle_problem: row.try_get("bundle_problem")?,
            bundle_sha256: row.try_get("bundle_sha256")?,
            bundle_size: row.try_get("bundle_size")?,
            is_pinned: pinned != 0,
            segment: row.try_get("segment")?,
        })
    }

    /// Returns the report.
    ///
    /// # Errors
    /// Fails if the row's JSON is damaged.
    pub fn parsed(&self) -> Result<CrashReport> {
        serde_json::from_str(&self.report).map_err(|error| {
            Error::Conflict(format!(
                "the row of report {} is damaged: {error}; run rebuild-index",
                self.id
            ))
        })
    }
}

/// Adds a report. Returns `false` if there is one with this identifier.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, row: &ReportRow) -> Result<bool> {
    let insert = "INSERT INTO reports (id, key, time, received, host, service, build, report, bundle, bundle_until, \
                  bundle_problem, bundle_sha256, bundle_size, pinned, segment) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING";
    let done = sqlx::query(insert)
        .bind(&row.id)
        .bind(&row.key)
        .bind(row.time)
        .bind(row.received)
        .bind(&row.host)
        .bind(&row.service)
        .bind(&row.build)
        .bind(&row.report)
        .bind(row.bundle.name())
        .bind(row.bundle_until)
        .bind(row.bundle_problem.as_deref())
        .bind(row.bundle_sha256.as_deref())
        .bind(row.bundle_size)
        .bind(i64::from(row.is_pinned))
        .bind(&row.segment)
        .execute(&mut *connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Returns a report within a transaction.
///
/// # Errors
/// Fails if the database fails.
pub async fn find(connection: &mut AnyConnection, id: &str) -> Result<Option<ReportRow>> {
    let found = sqlx::query("SELECT * FROM reports WHERE id = $1")
        .bind(id)
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(ReportRow::read).transpose()
}

/// Changes how far a bundle has come, if the report is in one of the states `from`. Returns whether
/// it was.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_bundle(
    connection: &mut AnyConnection,
    id: &str,
    from: &[BundleState],
    to: BundleState,
    until: Option<i64>,
    problem: Option<&str>,
) -> Result<bool> {
    let present = find(connection, id).await?;
    if !present.is_some_and(|row| from.contains(&row.bundle)) {
        return Ok(false);
    }
    sqlx::query("UPDATE reports SET bundle = $1, bundle_until = $2, bundle_problem = $3 WHERE id = $4")
        .bind(to.name())
        .bind(until)
        .bind(problem)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(true)
}

/// Notes that a bundle is stored.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_stored(connection: &mut AnyConnection, id: &str, sha256: &str, size: i64) -> Result<()> {
    let update = "UPDATE reports SET bundle = 'stored', bundle_until = NULL, bundle_problem = NULL, \
                  bundle_sha256 = $1, bundle_size = $2 WHERE id = $3";
    sqlx::query(update)
        .bind(sha256)
        .bind(size)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Returns a report.
    ///
    /// # Errors
    /// Fails if there is no such report, or the database fails.
    pub async fn report(&self, id: &str) -> Result<ReportRow> {
        let found = sqlx::query("SELECT * FROM reports WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader())
            .await?;
        let row = found.ok_or_else(|| Error::Absent(format!("crash {id}")))?;
        ReportRow::read(&row)
    }

    /// Pins a report, so that retention keeps it, or unpins it.
    ///
    /// # Errors
    /// Fails if there is no such report, or the database fails.
    pub async fn pin_report(&self, id: &str, is_pinned: bool) -> Result<()> {
        transact!(self, connection => {
            let done = sqlx::query("UPDATE reports SET pinned = $1 WHERE id = $2")
                .bind(i64::from(is_pinned))
                .bind(id)
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() == 0 {
                return Err(Error::Absent(format!("crash {id}")));
            }
            Ok(())
        })
    }
}
