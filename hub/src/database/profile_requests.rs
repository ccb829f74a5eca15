//! Profiles that a person wants of a host now, and the agents that take them.

use super::Database;
use super::tokens::new_id;
use crate::clock;
use crate::database::transact;
use crate::error::{Error, Result};
use serde::Serialize;
use sqlx::{AnyConnection, Row};

/// The time for which a request waits for its agent.
pub const PATIENCE: i64 = 60 * clock::SECOND;
/// The time for which requests are known.
const KNOWN: i64 = 30 * clock::DAY;
/// The time after its last question for which an agent is shown.
const PRESENT: i64 = 2 * 60 * clock::SECOND;
/// The most hosts of a list.
const MAX_HOSTS: i64 = 1000;

/// The part of a request that the agent needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileOrder {
    /// The identifier, which is the label `request` of the samples.
    pub id: String,
    /// The event, as `cpu`.
    pub event: String,
    /// The samples a second of each busy processor.
    pub frequency: i64,
    /// The length in seconds.
    pub seconds: i64,
}

/// A request with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProfileRequest {
    /// The order.
    #[serde(flatten)]
    pub order: ProfileOrder,
    /// The host.
    pub host: String,
    /// The person who wants the profile.
    pub creator: String,
    /// The time of the request.
    pub created: i64,
    /// The time at which the agent took it.
    pub taken: Option<i64>,
    /// The time at which the profile was stored, or failed.
    pub ended: Option<i64>,
    /// The reason for which there is no profile.
    pub problem: Option<String>,
}

impl Database {
    /// Adds a request.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn add_profile_request(
        &self,
        host: &str,
        creator: &str,
        order: &ProfileOrder,
    ) -> Result<String> {
        let id = new_id()?;
        transact!(self, connection => {
            let now = clock::now();
            sqlx::query("DELETE FROM profile_requests WHERE created < $1")
                .bind(now - KNOWN)
                .execute(&mut *connection)
                .await?;
            let insert = "INSERT INTO profile_requests (id, host, event, frequency, seconds, creator, created) \
                          VALUES ($1, $2, $3, $4, $5, $6, $7)";
            sqlx::query(insert)
                .bind(&id)
                .bind(host)
                .bind(&order.event)
                .bind(order.frequency)
                .bind(order.seconds)
                .bind(creator)
                .bind(now)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })?;
        Ok(id)
    }

    /// Takes the oldest request of a host. `None`: there is none.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn take_profile_request(&self, host: &str) -> Result<Option<ProfileOrder>> {
        let since = clock::now() - PATIENCE;
        let select = "SELECT id FROM profile_requests WHERE host = $1 AND taken IS NULL AND created >= $2 \
                      ORDER BY created LIMIT 1";
        let found = sqlx::query(select)
            .bind(host)
            .bind(since)
            .fetch_optional(self.reader())
            .await?;
        if found.is_none() {
            return Ok(None);
        }
        transact!(self, connection => { take(connection, host, since).await })
    }

    /// Notes that an agent asks for requests.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn note_profile_agent(&self, host: &str) -> Result<()> {
        transact!(self, connection => {
            let insert = "INSERT INTO profile_agents (host, seen) VALUES ($1, $2) \
                          ON CONFLICT (host) DO UPDATE SET seen = excluded.seen";
            sqlx::query(insert)
                .bind(host)
                .bind(clock::now())
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the hosts whose agents ask for requests.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn profile_hosts(&self) -> Result<Vec<String>> {
        let select = "SELECT host FROM profile_agents WHERE seen >= $1 ORDER BY host LIMIT $2";
        Ok(sqlx::query_scalar(select)
            .bind(clock::now() - PRESENT)
            .bind(MAX_HOSTS)
            .fetch_all(self.reader())
            .await?)
    }

    /// Notes the end of a request. `problem` is the reason for which there is no profile.
    ///
    /// # Errors
    /// Fails if the host has no such request, or the database fails.
    pub async fn end_profile_request(&self, id: &str, host: &str, problem: Option<&str>) -> Result<()> {
        transact!(self, connection => {
            let update = "UPDATE profile_requests SET ended = $1, problem = $2 \
                          WHERE id = $3 AND host = $4 AND ended IS NULL";
            let done = sqlx::query(update)
                .bind(clock::now())
                .bind(problem)
                .bind(id)
                .bind(host)
                .execute(&mut *connection)
                .await?;
            match done.rows_affected() {
                0 => Err(Error::Absent(format!("request {id} of host {host} that has not ended"))),
                _ => Ok(()),
            }
        })
    }

    /// Returns a request.
    ///
    /// # Errors
    /// Fails if there is no such request, or the database fails.
    pub async fn profile_request(&self, id: &str) -> Result<ProfileRequest> {
        let select = "SELECT id, event, frequency, seconds, host, creator, created, taken, ended, problem \
                      FROM profile_requests WHERE id = $1";
        let row = sqlx::query(select)
            .bind(id)
            .fetch_optional(self.reader())
            .await?
            .ok_or_else(|| Error::Absent(format!("request {id}")))?;
        Ok(ProfileRequest {
            order: order_of(&row)?,
            host: row.try_get("host")?,
            creator: row.try_get("creator")?,
            created: row.try_get("created")?,
            taken: row.try_get("taken")?,
            ended: row.try_get("ended")?,
            problem: row.try_get("problem")?,
        })
    }
}

fn order_of(row: &sqlx::any::AnyRow) -> Result<ProfileOrder> {
    Ok(ProfileOrder {
        id: row.try_get("id")?,
        event: row.try_get("event")?,
        frequency: row.try_get("frequency")?,
        seconds: row.try_get("seconds")?,
    })
}

async fn take(connection: &mut AnyConnection, host: &str, since: i64) -> Result<Option<ProfileOrder>> {
    let update = "UPDATE profile_requests SET taken = $1 WHERE taken IS NULL AND id = \
                  (SELECT id FROM profile_requests WHERE host = $2 AND taken IS NULL AND created >= $3 \
                  ORDER BY created LIMIT 1) RETURNING id, event, frequency, seconds";
    let row = sqlx::query(update)
        .bind(clock::now())
        .bind(host)
        .bind(since)
        .fetch_optional(&mut *connection)
        .await?;
    row.as_ref().map(order_of).transpose()
}
