//! Which stack keys lack symbols, and upstream servers that lack files or fail.

use super::Database;
use super::jobs::{self, JobKind};
use crate::clock;
use crate::database::transact;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;

/// The most bundles that one new debug file lets the hub read again.
const MAX_REPORTS: i64 = 1000;

/// Notes which build ids the frames of a key lack symbols of.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_missing(connection: &mut AnyConnection, key: &str, build_ids: &[String]) -> Result<()> {
    sqlx::query("DELETE FROM missing_symbols WHERE key = $1")
        .bind(key)
        .execute(&mut *connection)
        .await?;
    for build_id in build_ids {
        sqlx::query("INSERT INTO missing_symbols (build_id, key) VALUES ($1, $2) ON CONFLICT DO NOTHING")
            .bind(build_id)
            .bind(key)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

/// Adds jobs that read again the bundles of all keys that lack symbols of a build id. The newest
/// bundle of each key comes first. Returns the number of keys.
///
/// # Errors
/// Fails if the database fails.
pub async fn analyze_again(connection: &mut AnyConnection, build_id: &str) -> Result<usize> {
    let select = "SELECT reports.id AS id, reports.key AS key FROM missing_symbols \
                  JOIN reports ON reports.key = missing_symbols.key \
                  WHERE missing_symbols.build_id = $1 AND reports.bundle = 'stored' \
                  ORDER BY reports.time DESC LIMIT $2";
    let rows = sqlx::query(select)
        .bind(build_id)
        .bind(MAX_REPORTS)
        .fetch_all(&mut *connection)
        .await?;
    let mut keys = std::collections::BTreeSet::new();
    let now = clock::now();
    for row in rows {
        let (report, key): (String, String) = (row.try_get("id")?, row.try_get("key")?);
        // Jobs run in the order of this time.
        let run_at = if keys.insert(key) { 0 } else { now };
        jobs::add(connection, JobKind::Analyze, &report, run_at).await?;
    }
    Ok(keys.len())
}

/// Notes that symbols were applied to a report after its bundle was stored.
///
/// # Errors
/// Fails if the database fails.
pub async fn set_symbolized(connection: &mut AnyConnection, report: &str, time: i64) -> Result<()> {
    sqlx::query("UPDATE reports SET symbolized = $1 WHERE id = $2")
        .bind(time)
        .bind(report)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

impl Database {
    /// Returns the time at which late symbols were applied to a report. `None`: none were.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn symbolized(&self, report: &str) -> Result<Option<i64>> {
        let found: Option<Option<i64>> = sqlx::query_scalar("SELECT symbolized FROM reports WHERE id = $1")
            .bind(report)
            .fetch_optional(self.reader())
            .await?;
        Ok(found.flatten())
    }

    /// Returns whether upstream servers are known to lack a file.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn is_missed(&self, build_id: &str, kind: &str) -> Result<bool> {
        let select =
            "SELECT COUNT(*) FROM upstream_misses WHERE build_id = $1 AND kind = $2 AND expires > $3";
        let count: i64 = sqlx::query_scalar(select)
            .bind(build_id)
            .bind(kind)
            .bind(clock::now())
            .fetch_one(self.reader())
            .await?;
        Ok(count > 0)
    }

    /// Remembers for a time that upstream servers lack a file. Expired notes are removed.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn note_miss(&self, build_id: &str, kind: &str, lifetime: i64) -> Result<()> {
        transact!(self, connection => {
            let now = clock::now();
            sqlx::query("DELETE FROM upstream_misses WHERE expires < $1")
                .bind(now)
                .execute(&mut *connection)
                .await?;
            let upsert = "INSERT INTO upstream_misses (build_id, kind, expires) VALUES ($1, $2, $3) \
                          ON CONFLICT (build_id, kind) DO UPDATE SET expires = $3";
            sqlx::query(upsert)
                .bind(build_id)
                .bind(kind)
                .bind(now + lifetime)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns whether an upstream server failed recently.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn is_failing(&self, server: &str) -> Result<bool> {
        let select = "SELECT COUNT(*) FROM upstream_failures WHERE server = $1 AND expires > $2";
        let count: i64 = sqlx::query_scalar(select)
            .bind(server)
            .bind(clock::now())
            .fetch_one(self.reader())
            .await?;
        Ok(count > 0)
    }

    /// Remembers for a time that an upstream server fails.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn note_failure(&self, server: &str, lifetime: i64) -> Result<()> {
        transact!(self, connection => {
            let upsert = "INSERT INTO upstream_failures (server, expires) VALUES ($1, $2) \
                          ON CONFLICT (server) DO UPDATE SET expires = $2";
            sqlx::query(upsert)
                .bind(server)
                .bind(clock::now() + lifetime)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::blobs::{self, BuildFile, FileKind};
    use crate::database::jobs::JobQueue;

    async fn database(folder: &tempfile::TempDir) -> Database {
        let address = format!("sqlite://{}?mode=rwc", folder.path().join("hub.db").display());
        Database::open(&address).await.unwrap()
    }

    async fn add_report(database: &Database, id: &str, key: &str, time: i64, bundle: &str) {
        let insert = "INSERT INTO reports (id, key, time, received, host, service, build, report, bundle, pinned, segment) \
                      VALUES ($1, $2, $3, 0, 'h', 's', 'b', '{}', $4, 0, 'x')";
        let done = transact!(database, connection => {
            sqlx::query(insert).bind(id).bind(key).bind(time).bind(bundle).execute(&mut *connection).await?;
            Ok(())
        });
        done.unwrap();
    }

    #[tokio::test]
    async fn newest_bundle_of_each_key_is_read_first() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder).await;
        for (id, key, time, bundle) in [
            ("old", "one", 1, "stored"),
            ("new", "one", 2, "stored"),
            ("newest", "one", 3, "wanted"),
            ("other", "two", 1, "stored"),
            ("foreign", "three", 1, "stored"),
        ] {
            add_report(&database, id, key, time, bundle).await;
        }
        let ids = |text: &str| vec![text.to_owned()];
        let keys = transact!(database, connection => {
            set_missing(connection, "one", &ids("abcd")).await?;
            set_missing(connection, "two", &["abcd".to_owned(), "ef01".to_owned()]).await?;
            set_missing(connection, "three", &ids("abcd")).await?;
            set_missing(connection, "three", &ids("ef01")).await?;
            analyze_again(connection, "abcd").await
        });
        assert_eq!(keys.unwrap(), 2);
        let mut subjects = Vec::new();
        while let Some(job) = database.lease_job(JobQueue::Work).await.unwrap() {
            assert_eq!(job.kind, JobKind::Analyze);
            subjects.push(job.subject);
        }
        subjects[..2].sort();
        assert_eq!(subjects, ["new", "other", "old"]);
    }

    #[tokio::test]
    async fn better_files_replace_worse_ones() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder).await;
        let use_file = async |sha256: &str, origin: &str, detail: i64| {
            let file = BuildFile {
                build_id: "abcd".to_owned(),
                kind: FileKind::Debuginfo,
                sha256: sha256.to_owned(),
                name: "a".to_owned(),
                size: 1,
                origin: origin.to_owned(),
                detail,
                created: 0,
            };
            let is_news = transact!(database, connection => { blobs::use_in_build(connection, &file).await });
            let found = database.build_file("abcd", &FileKind::Debuginfo).await.unwrap();
            (is_news.unwrap(), found.unwrap().sha256)
        };
        assert_eq!(use_file("names", "bundle", 1).await, (true, "names".to_owned()));
        assert_eq!(use_file("again", "bundle", 1).await, (false, "names".to_owned()));
        assert_eq!(
            use_file("upload", "upload", 1).await,
            (false, "upload".to_owned())
        );
        assert_eq!(use_file("lines", "upstream", 2).await, (true, "lines".to_owned()));
        assert_eq!(use_file("worse", "upload", 1).await, (false, "lines".to_owned()));
    }

    #[tokio::test]
    async fn misses_and_failures_are_remembered_for_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let database = database(&folder).await;
        assert!(!database.is_missed("abcd", "debuginfo").await.unwrap());
        database
            .note_miss("abcd", "debuginfo", clock::HOUR)
            .await
            .unwrap();
        assert!(database.is_missed("abcd", "debuginfo").await.unwrap());
        assert!(!database.is_missed("abcd", "executable").await.unwrap());
        database.note_miss("abcd", "debuginfo", -1).await.unwrap();
        assert!(!database.is_missed("abcd", "debuginfo").await.unwrap());
        database.note_failure("https://a", clock::HOUR).await.unwrap();
        assert!(database.is_failing("https://a").await.unwrap());
        assert!(!database.is_failing("https://b").await.unwrap());
    }
}
