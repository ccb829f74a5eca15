//! Reports: one row per crash.

use super::Database;
use crate::database::transact;
use crate::error::{Error, Result};
use backtrail_report::CrashReport;
use sqlx::AnyConnection;
use sqlx::AssertSqlSafe;
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
    /// The reason for which the hub asked for the bundle, by its name in JSON.
    pub bundle_reason: Option<String>,
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

/// A bundle of a group that is stored, or on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRow {
    /// The report.
    pub report: String,
    /// Its build.
    pub build: String,
    /// The time of the crash.
    pub time: i64,
    /// How far the bundle has come.
    pub bundle: BundleState,
    /// The end of the time for which a wanted bundle counts as on its way.
    pub until: Option<i64>,
    /// The reason for which the hub asked for it, by its name in JSON.
    pub reason: Option<String>,
    /// Whether retention keeps it.
    pub is_pinned: bool,
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
            bundle_reason: row.try_get("bundle_reason")?,
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
                  bundle_problem, bundle_sha256, bundle_size, pinned, segment, bundle_reason) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT (id) DO NOTHING";
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
        .bind(row.bundle_reason.as_deref())
        .execute(&mut *connection)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Notes the segment of a report that has come again, if it is earlier than the known one.
///
/// # Errors
/// Fails if the database fails.
pub async fn note_segment(connection: &mut AnyConnection, row: &ReportRow) -> Result<()> {
    sqlx::query("UPDATE reports SET segment = $1, received = $2 WHERE id = $3 AND segment > $1")
        .bind(&row.segment)
        .bind(row.received)
        .bind(&row.id)
        .execute(&mut *connection)
        .await?;
    Ok(())
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

/// Notes that the hub asks for a bundle, and why.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_wanted(connection: &mut AnyConnection, id: &str, reason: &str, until: i64) -> Result<()> {
    let update = "UPDATE reports SET bundle = 'wanted', bundle_until = $1, bundle_reason = $2 \
                  WHERE id = $3 AND bundle = 'none'";
    sqlx::query(update)
        .bind(until)
        .bind(reason)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Sets the reason for which the hub asked for a bundle.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_reason(connection: &mut AnyConnection, id: &str, reason: Option<&str>) -> Result<()> {
    sqlx::query("UPDATE reports SET bundle_reason = $1 WHERE id = $2")
        .bind(reason)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Notes that the bundle of a report is removed. Its objects become garbage.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_removed(connection: &mut AnyConnection, id: &str) -> Result<()> {
    for statement in [
        "UPDATE reports SET bundle = 'removed', bundle_until = NULL, bundle_sha256 = NULL, bundle_size = NULL \
         WHERE id = $1",
        "DELETE FROM report_blobs WHERE report = $1",
        "DELETE FROM exact_calls WHERE report = $1",
    ] {
        sqlx::query(statement).bind(id).execute(&mut *connection).await?;
    }
    Ok(())
}

/// The most bundles of the random sample that are read.
const MAX_SAMPLED: usize = 64;
/// The columns of a sample.
const SAMPLE: &str = "r.id, r.build, r.time, r.bundle, r.bundle_until, r.bundle_reason, r.pinned";
/// The condition of bundles that are stored, or on their way at the time `$2`.
const IS_SAMPLE: &str = "r.bundle IN ('wanted', 'checking', 'stored') \
                         AND (r.bundle <> 'wanted' OR r.bundle_until > $2)";
/// The reports of the group `$1`. SQLite follows the order of a CROSS JOIN. Else it reads the
/// wanted bundles of all groups.
const OF_GROUP: &str = "stack_keys k CROSS JOIN reports r WHERE r.key = k.key AND k.group_id = $1";

/// Returns the bundles of a group that are stored or on their way at a time.
///
/// # Errors
/// Fails if the database fails.
pub async fn samples(connection: &mut AnyConnection, group: &str, now: i64) -> Result<Vec<SampleRow>> {
    let select = format!("SELECT {SAMPLE} FROM {OF_GROUP} AND {IS_SAMPLE} ORDER BY r.time, r.id");
    let rows = sqlx::query(AssertSqlSafe(select))
        .bind(group)
        .bind(now)
        .fetch_all(&mut *connection)
        .await?;
    rows.iter().map(read_sample).collect()
}

/// Returns the bundles that decide whether another one is wanted. These are that of the report,
/// `first` ones of the group, one of the build, and the random sample.
///
/// # Errors
/// Fails if the database fails.
pub async fn deciding_samples(
    connection: &mut AnyConnection,
    group: &str,
    (report, build): (&str, &str),
    first: usize,
    now: i64,
) -> Result<Vec<SampleRow>> {
    let own = format!(
        "SELECT {SAMPLE} FROM reports r CROSS JOIN stack_keys k \
         WHERE r.id = $3 AND k.key = r.key AND k.group_id = $1 AND {IS_SAMPLE}"
    );
    let any = format!("SELECT {SAMPLE} FROM {OF_GROUP} AND {IS_SAMPLE} LIMIT {first}");
    let of_build = format!("SELECT {SAMPLE} FROM {OF_GROUP} AND {IS_SAMPLE} AND r.build = $3 LIMIT 1");
    let sampled = format!(
        "SELECT {SAMPLE} FROM {OF_GROUP} AND {IS_SAMPLE} AND r.bundle_reason = 'sampled' LIMIT {MAX_SAMPLED}"
    );
    let mut found: Vec<SampleRow> = Vec::new();
    for (select, third) in [
        (own, Some(report)),
        (any, None),
        (of_build, Some(build)),
        (sampled, None),
    ] {
        let mut query = sqlx::query(AssertSqlSafe(select)).bind(group).bind(now);
        if let Some(third) = third {
            query = query.bind(third);
        }
        let rows = query.fetch_all(&mut *connection).await?;
        for row in &rows {
            let row = read_sample(row)?;
            if found.iter().all(|known| known.report != row.report) {
                found.push(row);
            }
        }
    }
    Ok(found)
}

fn read_sample(row: &AnyRow) -> Result<SampleRow> {
    let bundle: String = row.try_get("bundle")?;
    let pinned: i64 = row.try_get("pinned")?;
    Ok(SampleRow {
        report: row.try_get("id")?,
        build: row.try_get("build")?,
        time: row.try_get("time")?,
        bundle: BundleState::named(&bundle)?,
        until: row.try_get("bundle_until")?,
        reason: row.try_get("bundle_reason")?,
        is_pinned: pinned != 0,
    })
}

/// Returns the first report of a group, or the latest one of a build.
///
/// # Errors
/// Fails if the database fails.
pub async fn of_group(
    connection: &mut AnyConnection,
    group: &str,
    latest_of: Option<&str>,
) -> Result<Option<ReportRow>> {
    let select = match latest_of {
        None => {
            "SELECT r.* FROM reports r JOIN stack_keys k ON k.key = r.key WHERE k.group_id = $1 AND $2 = '' \
             ORDER BY r.time, r.id LIMIT 1"
        }
        Some(_) => {
            "SELECT r.* FROM reports r JOIN stack_keys k ON k.key = r.key WHERE k.group_id = $1 AND r.build = $2 \
             ORDER BY r.time DESC, r.id DESC LIMIT 1"
        }
    };
    let found = sqlx::query(select)
        .bind(group)
        .bind(latest_of.unwrap_or_default())
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(ReportRow::read).transpose()
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

/// Returns the first report of a key that the hub received. `None`: retention removed all.
///
/// # Errors
/// Fails if the database fails.
pub async fn first_of_key(connection: &mut AnyConnection, key: &str) -> Result<Option<ReportRow>> {
    let found = sqlx::query("SELECT * FROM reports WHERE key = $1 ORDER BY received, id LIMIT 1")
        .bind(key)
        .fetch_optional(&mut *connection)
        .await?;
    found.as_ref().map(ReportRow::read).transpose()
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

    /// Returns whether there is a report.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn has_report(&self, id: &str) -> Result<bool> {
        let found = sqlx::query("SELECT id FROM reports WHERE id = $1")
            .bind(id)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.is_some())
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
