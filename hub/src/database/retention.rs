//! Rows whose time is over, and blobs that nothing uses.

use super::Database;
use super::reports;
use crate::clock::HOUR;
use crate::database::{groups, leases, stack_keys, transact};
use crate::error::{Error, Result};
use sqlx::AnyConnection;
use sqlx::Row;

/// The bundles that are removed in one transaction.
const BATCH: i64 = 20;

/// The state of a blob that may be garbage.
const MARKED: &str = "marked";
/// The state of a blob whose object is being deleted.
const DELETING: &str = "deleting";

impl Database {
    /// Returns keys that have reports before a time which no person pinned.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn expired_keys(&self, before: i64, limit: i64) -> Result<Vec<String>> {
        let select = "SELECT DISTINCT key FROM reports WHERE time < $1 AND pinned = 0 LIMIT $2";
        Ok(sqlx::query_scalar(select)
            .bind(before)
            .bind(limit)
            .fetch_all(self.reader())
            .await?)
    }

    /// Removes the reports of a key before a time, and counts the key and its group again. Returns
    /// the number of reports.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn expire_key(&self, key: &str, before: i64) -> Result<u64> {
        transact!(self, connection => {
            leases::lock_counts(connection).await?;
            let blobs = "DELETE FROM report_blobs WHERE report IN \
                         (SELECT id FROM reports WHERE key = $1 AND time < $2 AND pinned = 0)";
            let calls = "DELETE FROM exact_calls WHERE report IN \
                         (SELECT id FROM reports WHERE key = $1 AND time < $2 AND pinned = 0)";
            let rows = "DELETE FROM reports WHERE key = $1 AND time < $2 AND pinned = 0";
            let mut removed = 0;
            for statement in [blobs, calls, rows] {
                let done = sqlx::query(statement)
                    .bind(key)
                    .bind(before)
                    .execute(&mut *connection)
                    .await?;
                removed = done.rows_affected();
            }
            let group = stack_keys::find(connection, key).await?.map(|key| key.group);
            recount_key(connection, key).await?;
            if let Some(group) = group {
                groups::recount(connection, &group).await?;
                groups::delete_empty(connection, &group).await?;
            }
            Ok(removed)
        })
    }

    /// Removes other rows whose time is over: hosts that are silent, what they ran, and messages.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn expire_rest(&self, before: i64) -> Result<()> {
        transact!(self, connection => {
            for statement in [
                "DELETE FROM hosts WHERE last_seen < $1",
                "DELETE FROM host_builds WHERE last_ran < $1",
                "DELETE FROM deliveries WHERE created < $1",
            ] {
                sqlx::query(statement).bind(before).execute(&mut *connection).await?;
            }
            Ok(())
        })
    }

    /// Returns segments of the journal before a day since 1970 whose reports were not removed yet.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn long_segments(&self, day: i64, limit: i64) -> Result<Vec<String>> {
        let select = "SELECT name FROM segments WHERE shortened = 0 AND name < $1 ORDER BY name LIMIT $2";
        Ok(sqlx::query_scalar(select)
            .bind(format!("{day:06}"))
            .bind(limit)
            .fetch_all(self.reader())
            .await?)
    }

    /// Notes that the reports of a segment without a row are removed.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn set_shortened(&self, segment: &str) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("UPDATE segments SET shortened = 1 WHERE name = $1")
                .bind(segment)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the bytes of all blobs.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn blob_bytes(&self) -> Result<i64> {
        let select = "SELECT COALESCE(CAST(SUM(size) AS BIGINT), 0) FROM blobs";
        Ok(sqlx::query_scalar(select).fetch_one(self.reader()).await?)
    }

    /// Returns the bytes of blobs that no report uses, and no file that a person uploaded.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn unused_bytes(&self) -> Result<i64> {
        let select = "SELECT COALESCE(CAST(SUM(b.size) AS BIGINT), 0) FROM blobs b \
                      WHERE NOT EXISTS (SELECT 1 FROM report_blobs r WHERE r.sha256 = b.sha256) \
                      AND NOT EXISTS (SELECT 1 FROM build_files f WHERE f.sha256 = b.sha256 AND f.origin <> 'bundle')";
        Ok(sqlx::query_scalar(select).fetch_one(self.reader()).await?)
    }

    /// Removes the oldest bundles that no person pinned. Returns their reports.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn remove_oldest_bundles(&self) -> Result<Vec<String>> {
        transact!(self, connection => {
            leases::lock_counts(connection).await?;
            let select = "SELECT r.id, k.group_id FROM reports r JOIN stack_keys k ON k.key = r.key \
                          WHERE r.bundle = 'stored' AND r.pinned = 0 ORDER BY r.time, r.id LIMIT $1";
            let rows = sqlx::query(select).bind(BATCH).fetch_all(&mut *connection).await?;
            let mut removed = Vec::new();
            for row in rows {
                let id: String = row.try_get("id")?;
                let group: String = row.try_get("group_id")?;
                reports::set_removed(connection, &id).await?;
                sqlx::query("UPDATE groups SET bundles = bundles - 1 WHERE id = $1")
                    .bind(&group)
                    .execute(&mut *connection)
                    .await?;
                removed.push(id);
            }
            Ok(removed)
        })
    }

    /// Keeps a blob that is about to be written, or is there already, from garbage collection until
    /// a time. The caller checks the object after this.
    ///
    /// # Errors
    /// Fails if the blob is being deleted, or the database fails. The caller tries again later.
    pub async fn reserve_blob(&self, sha256: &str, until: i64) -> Result<()> {
        match self.reserve_blobs(&[sha256], until).await?.as_slice() {
            [] => Ok(()),
            _ => Err(Error::Conflict(format!(
                "the old blob {sha256} is being deleted; try again"
            ))),
        }
    }

    /// Keeps blobs from garbage collection until a time. Returns those that are being deleted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn reserve_blobs(&self, blobs: &[&str], until: i64) -> Result<Vec<String>> {
        if blobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut blobs: Vec<_> = blobs.to_vec();
        // Two hubs that reserve the same blobs lock their rows in the same order.
        blobs.sort_unstable();
        blobs.dedup();
        transact!(self, connection => {
            let mut refused = Vec::new();
            for sha256 in &blobs {
                if !reserve(connection, sha256, until).await? {
                    refused.push((*sha256).to_owned());
                }
            }
            Ok(refused)
        })
    }

    /// Marks a blob that nothing uses. Returns whether the mark is older than a time: the caller
    /// then deletes the object.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn doom_blob(&self, sha256: &str, now: i64, marked_before: i64) -> Result<bool> {
        transact!(self, connection => {
            if is_used(connection, sha256, now).await? {
                sqlx::query("DELETE FROM garbage WHERE sha256 = $1 AND state = 'marked'")
                    .bind(sha256)
                    .execute(&mut *connection)
                    .await?;
                return Ok(false);
            }
            sqlx::query("INSERT INTO garbage (sha256, state, since) VALUES ($1, $2, $3) ON CONFLICT (sha256) DO NOTHING")
                .bind(sha256)
                .bind(MARKED)
                .bind(now)
                .execute(&mut *connection)
                .await?;
            // One that is being deleted is left to the hub that does so.
            let update = "UPDATE garbage SET state = $1, since = $4 WHERE sha256 = $2 AND since < $3 AND state = $5";
            let done = sqlx::query(update)
                .bind(DELETING)
                .bind(sha256)
                .bind(marked_before)
                .bind(now)
                .bind(MARKED)
                .execute(&mut *connection)
                .await?;
            if done.rows_affected() == 0 {
                return Ok(false);
            }
            for statement in [
                "DELETE FROM build_files WHERE sha256 = $1",
                "DELETE FROM blobs WHERE sha256 = $1",
            ] {
                sqlx::query(statement).bind(sha256).execute(&mut *connection).await?;
            }
            Ok(true)
        })
    }

    /// Notes that the object of a doomed blob is deleted.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn forget_doomed_blob(&self, sha256: &str) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("DELETE FROM garbage WHERE sha256 = $1 AND state = 'deleting'")
                .bind(sha256)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the blobs whose deletion a hub began before a time and did not end.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn doomed_blobs(&self, before: i64) -> Result<Vec<String>> {
        let select = "SELECT sha256 FROM garbage WHERE state = 'deleting' AND since < $1";
        Ok(sqlx::query_scalar(select)
            .bind(before)
            .fetch_all(self.reader())
            .await?)
    }

    /// Removes the reservations of blobs that end before a time.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn end_reservations(&self, now: i64) -> Result<()> {
        transact!(self, connection => {
            sqlx::query("DELETE FROM reservations WHERE until < $1")
                .bind(now)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }
}

/// Returns whether a blob is used at a time: by a report, or by a file that came from elsewhere
/// than a bundle. An answer that named it as present is a use, too.
async fn is_used(connection: &mut AnyConnection, sha256: &str, now: i64) -> Result<bool> {
    let select = "SELECT sha256 FROM report_blobs WHERE sha256 = $1 \
                  UNION ALL SELECT sha256 FROM build_files WHERE sha256 = $1 AND origin <> 'bundle' \
                  UNION ALL SELECT sha256 FROM reservations WHERE sha256 = $1 AND until > $2 LIMIT 1";
    let found = sqlx::query(select)
        .bind(sha256)
        .bind(now)
        .fetch_optional(&mut *connection)
        .await?;
    Ok(found.is_some())
}

/// Keeps a blob until a time. Returns `false` if it is being deleted.
async fn reserve(connection: &mut AnyConnection, sha256: &str, until: i64) -> Result<bool> {
    let deleting = sqlx::query("SELECT sha256 FROM garbage WHERE sha256 = $1 AND state = 'deleting'");
    // Both wait for a deletion that begins at the same time.
    for statement in [
        "INSERT INTO reservations (sha256, until) VALUES ($1, $2) ON CONFLICT (sha256) DO UPDATE SET \
         until = CASE WHEN reservations.until < $2 THEN $2 ELSE reservations.until END",
        "DELETE FROM garbage WHERE sha256 = $1 AND state = 'marked' AND $2 > 0",
    ] {
        sqlx::query(statement)
            .bind(sha256)
            .bind(until)
            .execute(&mut *connection)
            .await?;
    }
    let is_deleted = deleting.bind(sha256).fetch_optional(&mut *connection).await?;
    Ok(is_deleted.is_none())
}

/// Counts a key again from its reports. A key without reports is removed, unless a person decided
/// on its group.
async fn recount_key(connection: &mut AnyConnection, key: &str) -> Result<()> {
    let hour = HOUR;
    for statement in [
        "DELETE FROM key_hours WHERE key = $1",
        "DELETE FROM key_hosts WHERE key = $1",
        "INSERT INTO key_hosts (key, host, reports, last_seen) \
         SELECT key, host, COUNT(*), MAX(time) FROM reports WHERE key = $1 GROUP BY key, host",
        "UPDATE stack_keys SET \
         reports = (SELECT COUNT(*) FROM reports r WHERE r.key = $1), \
         first_seen = COALESCE((SELECT MIN(r.time) FROM reports r WHERE r.key = $1), first_seen), \
         last_seen = COALESCE((SELECT MAX(r.time) FROM reports r WHERE r.key = $1), last_seen) WHERE key = $1",
        "DELETE FROM stack_keys WHERE key = $1 AND reports = 0 \
         AND group_id NOT IN (SELECT id FROM groups WHERE state IN ('resolved', 'archived'))",
        "DELETE FROM next_groups WHERE key = $1 AND NOT EXISTS (SELECT 1 FROM stack_keys WHERE key = $1)",
        "DELETE FROM key_functions WHERE key = $1 AND NOT EXISTS (SELECT 1 FROM stack_keys WHERE key = $1)",
    ] {
        sqlx::query(statement).bind(key).execute(&mut *connection).await?;
    }
    sqlx::query(
        "INSERT INTO key_hours (key, build, hour, reports) \
         SELECT key, build, time / $2, COUNT(*) FROM reports WHERE key = $1 GROUP BY key, build, time / $2",
    )
    .bind(key)
    .bind(hour)
    .execute(&mut *connection)
    .await?;
    Ok(())
}
