//! The catalog of the profile store, and the pushes that the store has.

use super::Database;
use crate::clock;
use crate::database::transact;
use crate::error::{Error, Result};
use backtrail_profile::UnixNanos;
use backtrail_store::{Hour, PushHash, PushHashes, SegmentEntry, SegmentId, SegmentState};
use sqlx::{AnyConnection, AssertSqlSafe, Row};
use std::collections::HashSet;
use std::fmt::Write;
use std::ops::Range;

/// The time for which a push is known.
const KNOWN: i64 = PushHashes::HOURS as i64 * clock::HOUR;
/// The most parameters of a statement. SQLite and PostgreSQL both take more.
const PARAMETERS: usize = 500;

/// A change of the catalog.
#[derive(Clone, Copy, Debug)]
pub struct SegmentChange<'a> {
    /// Segments that are new.
    pub added: &'a [SegmentEntry],
    /// Segments that are removed.
    pub removed: &'a [SegmentId],
    /// The time of the removal.
    pub at: UnixNanos,
    /// The hashes of the pushes whose samples the new segments have.
    pub pushes: &'a [PushHash],
}

impl Database {
    /// Returns those of some hashes whose pushes the store has.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn known_pushes(&self, hashes: &[PushHash]) -> Result<Vec<PushHash>> {
        let mut known: Vec<PushHash> = Vec::new();
        for part in hashes.chunks(PARAMETERS) {
            let select = format!(
                "SELECT hash FROM profile_pushes WHERE hash IN ({})",
                parameters(part.len())
            );
            let mut query = sqlx::query_scalar(AssertSqlSafe(select));
            for hash in part {
                query = query.bind(hash.to_string());
            }
            let found: Vec<String> = query.fetch_all(self.reader()).await?;
            let found: HashSet<String> = found.into_iter().collect();
            known.extend(part.iter().filter(|hash| found.contains(&hash.to_string())));
        }
        Ok(known)
    }

    /// Adds pushes that the files of segments name, unless they are known.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn restore_pushes(&self, pushes: &PushHashes) -> Result<()> {
        let pushes: Vec<(PushHash, Hour)> = pushes.iter().collect();
        transact!(self, connection => {
            for part in pushes.chunks(PARAMETERS / 2) {
                let insert = format!(
                    "INSERT INTO profile_pushes (hash, received) VALUES {} ON CONFLICT (hash) DO NOTHING",
                    pairs(part.len())
                );
                let mut query = sqlx::query(AssertSqlSafe(insert));
                for (hash, received) in part {
                    query = query.bind(hash.to_string()).bind(whole(received.start().0 / 1000));
                }
                query.execute(&mut *connection).await?;
            }
            Ok(())
        })
    }

    /// Returns the number of live segments, of their samples and of their bytes.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn profile_totals(&self) -> Result<(i64, i64, i64)> {
        let select = "SELECT COUNT(*), CAST(COALESCE(SUM(samples), 0) AS BIGINT), \
                      CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM profile_segments WHERE removed IS NULL";
        let row = sqlx::query(select).fetch_one(self.reader()).await?;
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    }

    /// Returns hours with at least some number of live segments, the newest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn crowded_hours(&self, segments: usize, limit: i64) -> Result<Vec<u32>> {
        let select = "SELECT hour FROM profile_segments WHERE removed IS NULL GROUP BY hour \
                      HAVING COUNT(*) >= $1 ORDER BY hour DESC LIMIT $2";
        let hours: Vec<i64> = sqlx::query_scalar(select)
            .bind(whole(segments as u64))
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        Ok(hours
            .into_iter()
            .filter_map(|hour| u32::try_from(hour).ok())
            .collect())
    }

    /// Changes the catalog, or does nothing.
    ///
    /// # Errors
    /// Fails if the database fails, a removed segment is not live, or another hub has stored a
    /// push.
    pub async fn change_segments(&self, change: SegmentChange<'_>) -> Result<()> {
        transact!(self, connection => {
            for id in change.removed {
                remove(connection, *id, change.at).await?;
            }
            for entry in change.added {
                add(connection, entry).await?;
            }
            if !change.pushes.is_empty() {
                note_pushes(connection, change.pushes).await?;
            }
            Ok(())
        })
    }

    /// Returns the live segments of some hours.
    ///
    /// # Errors
    /// Fails if the database fails, or a newer hub has written an entry.
    pub async fn live_segments(&self, hours: &Range<Hour>) -> Result<Vec<SegmentEntry>> {
        let select = "SELECT entry FROM profile_segments WHERE removed IS NULL AND hour >= $1 AND hour < $2";
        let texts: Vec<String> = sqlx::query_scalar(select)
            .bind(i64::from(hours.start.0))
            .bind(i64::from(hours.end.0))
            .fetch_all(self.reader())
            .await?;
        texts.iter().map(|text| entry_of(text)).collect()
    }

    /// Returns the state of each segment. `None`: it is unknown.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn segment_states(&self, ids: &[SegmentId]) -> Result<Vec<Option<SegmentState>>> {
        let mut states = vec![None; ids.len()];
        for (part, states) in ids.chunks(PARAMETERS).zip(states.chunks_mut(PARAMETERS)) {
            let select = format!(
                "SELECT id, removed FROM profile_segments WHERE id IN ({})",
                parameters(part.len())
            );
            let mut query = sqlx::query(AssertSqlSafe(select));
            for id in part {
                query = query.bind(id.to_string());
            }
            for row in query.fetch_all(self.reader()).await? {
                let (id, removed): (String, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
                let state = match removed {
                    None => SegmentState::Live,
                    Some(at) => SegmentState::Removed {
                        at: UnixNanos(at.unsigned_abs()),
                    },
                };
                let place = part.iter().position(|wanted| wanted.to_string() == id);
                if let Some(place) = place.and_then(|place| states.get_mut(place)) {
                    *place = Some(state);
                }
            }
        }
        Ok(states)
    }

    /// Returns segments that were removed before a time, the earliest first.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn removed_segments(&self, before: UnixNanos, limit: usize) -> Result<Vec<(Hour, SegmentId)>> {
        let select = "SELECT hour, id FROM profile_segments WHERE removed < $1 ORDER BY removed LIMIT $2";
        let rows = sqlx::query(select)
            .bind(whole(before.0))
            .bind(whole(limit as u64))
            .fetch_all(self.reader())
            .await?;
        rows.iter()
            .map(|row| {
                let (hour, id): (i64, String) = (row.try_get(0)?, row.try_get(1)?);
                Ok((Hour(u32::try_from(hour).unwrap_or(0)), id.parse()?))
            })
            .collect()
    }

    /// Forgets removed segments.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn forget_segments(&self, ids: &[SegmentId]) -> Result<()> {
        transact!(self, connection => {
            for id in ids {
                sqlx::query("DELETE FROM profile_segments WHERE id = $1 AND removed IS NOT NULL")
                    .bind(id.to_string())
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
    }
}

/// Returns `$1, $2, …`.
fn parameters(count: usize) -> String {
    (1..=count).fold(String::new(), |mut text, number| {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}${number}");
        text
    })
}

/// Returns `($1, $2), ($3, $4), …`.
fn pairs(count: usize) -> String {
    let pair = |number: usize| format!("(${}, ${})", 2 * number - 1, 2 * number);
    let pairs: Vec<_> = (1..=count).map(pair).collect();
    pairs.join(", ")
}

fn conflict(segment: SegmentId) -> Error {
    Error::Segment(backtrail_store::Error::Conflict {
        segment: segment.to_string(),
    })
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

async fn add(connection: &mut AnyConnection, entry: &SegmentEntry) -> Result<()> {
    let text = serde_json::to_string(entry).map_err(|error| {
        Error::Invalid(format!("the description of a segment cannot be written: {error}"))
    })?;
    let insert = "INSERT INTO profile_segments (id, hour, bytes, samples, entry) VALUES ($1, $2, $3, $4, $5) \
                  ON CONFLICT (id) DO NOTHING";
    let done = sqlx::query(insert)
        .bind(entry.id.to_string())
        .bind(i64::from(entry.hour.0))
        .bind(whole(entry.bytes()))
        .bind(whole(entry.samples.rows))
        .bind(text)
        .execute(&mut *connection)
        .await?;
    match done.rows_affected() {
        1 => Ok(()),
        _ => Err(conflict(entry.id)),
    }
}

async fn remove(connection: &mut AnyConnection, id: SegmentId, at: UnixNanos) -> Result<()> {
    let update = "UPDATE profile_segments SET removed = $1 WHERE id = $2 AND removed IS NULL";
    let done = sqlx::query(update)
        .bind(whole(at.0))
        .bind(id.to_string())
        .execute(&mut *connection)
        .await?;
    match done.rows_affected() {
        1 => Ok(()),
        _ => Err(conflict(id)),
    }
}

async fn note_pushes(connection: &mut AnyConnection, hashes: &[PushHash]) -> Result<()> {
    let now = clock::now();
    sqlx::query("DELETE FROM profile_pushes WHERE received < $1")
        .bind(now - KNOWN)
        .execute(&mut *connection)
        .await?;
    for hash in hashes {
        let insert =
            "INSERT INTO profile_pushes (hash, received) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING";
        let done = sqlx::query(insert)
            .bind(hash.to_string())
            .bind(now)
            .execute(&mut *connection)
            .await?;
        if done.rows_affected() == 0 {
            // Another hub has got the same push. Its sender tries again, and finds it stored.
            return Err(Error::Conflict(
                "another hub has stored a push of this batch; send it again".to_owned(),
            ));
        }
    }
    Ok(())
}

fn entry_of(text: &str) -> Result<SegmentEntry> {
    serde_json::from_str(text).map_err(|error| {
        Error::Invalid(format!(
            "the catalog has a segment that this version cannot read: {error}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::tests::testing::TestDatabase;

    #[tokio::test(flavor = "multi_thread")]
    async fn restored_pushes_are_known() {
        let hash = |number: u16| PushHash(u128::from(number).to_be_bytes());
        let mut pushes = PushHashes::default();
        for number in 0..600 {
            pushes.add(hash(number), Hour(498_900 + u32::from(number % 3)));
        }
        // Of another segment of the same commit.
        pushes.add(hash(7), Hour(498_905));
        for test in TestDatabase::all().await {
            for _ in 0..2 {
                test.database.restore_pushes(&pushes).await.unwrap();
            }
            test.database
                .restore_pushes(&PushHashes::default())
                .await
                .unwrap();
            let asked: Vec<_> = (590..1200).map(hash).collect();
            let known = test.database.known_pushes(&asked).await.unwrap();
            let expected: Vec<_> = (590..600).map(hash).collect();
            assert_eq!(known, expected, "{}", test.name());
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM profile_pushes")
                .fetch_one(test.database.reader())
                .await
                .unwrap();
            assert_eq!(count, 600, "{}", test.name());
        }
    }
}
