//! Deliveries: messages to channels, each sent by one hub.

use crate::database::Database;
use crate::database::leases;
use crate::database::transact;
use crate::error::Result;
use sqlx::AnyConnection;
use sqlx::Row;
use sqlx::any::AnyRow;

/// The most deliveries of a channel that are planned at once.
const BATCH: i64 = 200;

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct NewDelivery<'a> {
    /// Its identifier.
    pub id: &'a str,
    /// The change, or the hour of a summary.
    pub change: &'a str,
    /// The channel.
    pub channel: &'a str,
    /// Whether it is a summary of alerts that were held back.
    pub is_summary: bool,
    /// The message as JSON.
    pub payload: &'a str,
    /// The time.
    pub created: i64,
}

/// A message that this hub sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its identifier.
    pub id: String,
    /// The change, or the hour of a summary.
    pub change: String,
    /// The channel.
    pub channel: String,
    /// Whether it is a summary of alerts that were held back.
    pub is_summary: bool,
    /// The message as JSON.
    pub payload: String,
    /// The time at which it was created.
    pub created: i64,
    /// The number of this attempt, from 1.
    pub attempts: i64,
    /// The reason for which the last attempt failed.
    pub problem: Option<String>,
    /// `waiting`, `sending`, `sent`, `failed`, `held-back` or `duplicate`.
    pub state: String,
}

impl Delivery {
    fn read(row: &AnyRow) -> Result<Self> {
        let kind: String = row.try_get("kind")?;
        Ok(Self {
            id: row.try_get("id")?,
            change: row.try_get("change_id")?,
            channel: row.try_get("channel")?,
            is_summary: kind == "summary",
            payload: row.try_get("payload")?,
            created: row.try_get("created")?,
            attempts: row.try_get("attempts")?,
            problem: row.try_get("problem")?,
            state: row.try_get("state")?,
        })
    }
}

/// The recent past of a channel, and its due deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelPast {
    /// The changes that were sent in this hour, or are being sent.
    pub sent: Vec<String>,
    /// The times at which alerts were held back that no summary has reported.
    pub held_back: Vec<i64>,
    /// The due alerts, oldest first.
    pub alerts: Vec<Delivery>,
    /// The due summaries.
    pub summaries: Vec<Delivery>,
}

/// The decision on the due deliveries of a channel.
#[derive(Clone, Debug, Default)]
pub struct ChannelPlan {
    /// The deliveries to send.
    pub send: Vec<String>,
    /// The deliveries to hold back.
    pub hold_back: Vec<String>,
    /// The deliveries of changes that are sent already.
    pub duplicates: Vec<String>,
    /// The payload of a new summary, and its identifier. It reports what was held back before the
    /// time.
    pub summary: Option<(String, String, i64)>,
}

/// Adds a delivery, if its change has none to this channel.
///
/// # Errors
/// Fails if the database fails.
pub async fn insert(connection: &mut AnyConnection, new: &NewDelivery<'_>) -> Result<()> {
    let insert = "INSERT INTO deliveries (id, change_id, channel, kind, payload, state, created, attempts, \
                  next_try, summarized) VALUES ($1, $2, $3, $4, $5, 'waiting', $6, 0, $6, 0) \
                  ON CONFLICT (change_id, channel) DO NOTHING";
    sqlx::query(insert)
        .bind(new.id)
        .bind(new.change)
        .bind(new.channel)
        .bind(if new.is_summary { "summary" } else { "alert" })
        .bind(new.payload)
        .bind(new.created)
        .execute(&mut *connection)
        .await?;
    Ok(())
}

/// Reads the past of a channel.
async fn past(connection: &mut AnyConnection, channel: &str, now: i64, hour: i64) -> Result<ChannelPast> {
    let sent = "SELECT change_id FROM deliveries WHERE channel = $1 AND kind = 'alert' \
                AND ((state = 'sent' AND ended >= $2) OR (state = 'sending' AND next_try > $3))";
    let sent = sqlx::query_scalar(sent)
        .bind(channel)
        .bind(hour)
        .bind(now)
        .fetch_all(&mut *connection)
        .await?;
    let held_back =
        "SELECT ended FROM deliveries WHERE channel = $1 AND state = 'held-back' AND summarized = 0";
    let held_back = sqlx::query_scalar(held_back)
        .bind(channel)
        .fetch_all(&mut *connection)
        .await?;
    // A row that a hub was sending when it ended is due after its lease.
    let due = "SELECT * FROM deliveries WHERE channel = $1 AND state IN ('waiting', 'sending') AND next_try <= $2 \
               ORDER BY created, id LIMIT $3";
    let rows = sqlx::query(due)
        .bind(channel)
        .bind(now)
        .bind(BATCH)
        .fetch_all(&mut *connection)
        .await?;
    let due: Vec<_> = rows.iter().map(Delivery::read).collect::<Result<_>>()?;
    let (summaries, alerts) = due.into_iter().partition(|delivery| delivery.is_summary);
    Ok(ChannelPast {
        sent,
        held_back,
        alerts,
        summaries,
    })
}

/// Stores a plan, and returns the deliveries that this hub is to send.
async fn follow(
    connection: &mut AnyConnection,
    channel: &str,
    past: ChannelPast,
    plan: &ChannelPlan,
    now: i64,
    until: i64,
) -> Result<Vec<Delivery>> {
    for (ids, state) in [(&plan.hold_back, "held-back"), (&plan.duplicates, "duplicate")] {
        for id in ids {
            sqlx::query("UPDATE deliveries SET state = $1, ended = $2 WHERE id = $3")
                .bind(state)
                .bind(now)
                .bind(id)
                .execute(&mut *connection)
                .await?;
        }
    }
    if let Some((id, payload, before)) = &plan.summary {
        let summary = NewDelivery {
            id,
            change: id,
            channel,
            is_summary: true,
            payload,
            created: now,
        };
        insert(connection, &summary).await?;
        let update = "UPDATE deliveries SET summarized = 1 \
                      WHERE channel = $1 AND state = 'held-back' AND ended < $2";
        sqlx::query(update)
            .bind(channel)
            .bind(before)
            .execute(&mut *connection)
            .await?;
    }
    let alerts = past.alerts.into_iter().filter(|one| plan.send.contains(&one.id));
    let mut leased: Vec<_> = past.summaries.into_iter().chain(alerts).collect();
    for delivery in &mut leased {
        delivery.attempts += 1;
        let update = "UPDATE deliveries SET state = 'sending', attempts = $1, next_try = $2 WHERE id = $3";
        sqlx::query(update)
            .bind(delivery.attempts)
            .bind(until)
            .bind(&delivery.id)
            .execute(&mut *connection)
            .await?;
    }
    Ok(leased)
}

impl Database {
    /// Plans the due deliveries of a channel, and leases those that this hub is to send until a
    /// time. `hour` is the start of the present hour. No other hub plans the channel then.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn lease_deliveries(
        &self,
        channel: &str,
        (now, hour, until): (i64, i64, i64),
        plan: impl Fn(&ChannelPast) -> ChannelPlan + Send + Sync,
    ) -> Result<Vec<Delivery>> {
        let select = "SELECT id FROM deliveries WHERE channel = $1 AND ((state IN ('waiting', 'sending') AND next_try <= $2) \
                      OR (state = 'held-back' AND summarized = 0 AND ended < $3)) LIMIT 1";
        let due = sqlx::query(select)
            .bind(channel)
            .bind(now)
            .bind(hour)
            .fetch_optional(self.reader())
            .await?;
        if due.is_none() {
            return Ok(Vec::new());
        }
        let lock = format!("channel {channel}");
        transact!(self, connection => {
            leases::lock(connection, &lock).await?;
            let past = past(connection, channel, now, hour).await?;
            let decision = plan(&past);
            follow(connection, channel, past, &decision, now, until).await
        })
    }

    /// Stores the end of an attempt: sent, failed for good, or to be tried again at a time. Another
    /// hub that took the delivery over keeps its own result.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn end_delivery(
        &self,
        delivery: &Delivery,
        now: i64,
        problem: Option<&str>,
        again: Option<i64>,
    ) -> Result<()> {
        let (state, next, ended) = match (problem, again) {
            (None, _) => ("sent", now, Some(now)),
            (Some(_), Some(again)) => ("waiting", again, None),
            (Some(_), None) => ("failed", now, Some(now)),
        };
        transact!(self, connection => {
            let update = "UPDATE deliveries SET state = $1, next_try = $2, ended = $3, problem = $4 \
                          WHERE id = $5 AND state = 'sending' AND attempts = $6";
            sqlx::query(update)
                .bind(state)
                .bind(next)
                .bind(ended)
                .bind(problem)
                .bind(&delivery.id)
                .bind(delivery.attempts)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
    }

    /// Returns the latest deliveries of a channel, for the page of alerts.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn deliveries(&self, channel: &str, limit: i64) -> Result<Vec<Delivery>> {
        let select = "SELECT * FROM deliveries WHERE channel = $1 ORDER BY created DESC, id LIMIT $2";
        let rows = sqlx::query(select)
            .bind(channel)
            .bind(limit)
            .fetch_all(self.reader())
            .await?;
        rows.iter().map(Delivery::read).collect()
    }
}
