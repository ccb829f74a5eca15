//! Builds alerts of events, and puts them beside the events into the database.

use crate::database::builds;
use crate::database::changes::{self, NewChange};
use crate::database::deliveries::{self, NewDelivery};
use crate::database::groups::GroupRow;
use crate::database::reports::ReportRow;
use crate::error::Result;
use crate::grouping::cause::{CrashCause, CrashFacts};
use crate::lifecycle::{Event, HostShare};
use crate::notify::channel::AlertChannel;
use crate::notify::message::{self, Alert, AlertGroup, AlertReport};
use crate::notify::schedule::delivery_id;
use sqlx::AnyConnection;
use std::sync::Arc;

/// The channels of alerts, and the address for links in them.
#[derive(Clone, Debug)]
pub struct Outbox {
    public_url: String,
    channels: Arc<[AlertChannel]>,
}

/// The cause of an event.
#[derive(Clone, Copy, Debug)]
pub enum Trigger<'a> {
    /// A report.
    Report(&'a ReportRow),
    /// A person.
    Person(&'a str),
    /// The passing of time.
    Time,
}

impl Outbox {
    /// Returns the outbox of some channels.
    #[must_use]
    pub fn new(public_url: String, channels: &[AlertChannel]) -> Self {
        Self {
            public_url,
            channels: channels.into(),
        }
    }

    /// Returns the address for links.
    #[must_use]
    pub fn public_url(&self) -> &str {
        &self.public_url
    }

    /// Returns the channels.
    #[must_use]
    pub fn channels(&self) -> &[AlertChannel] {
        &self.channels
    }

    /// Stores an event and its alerts. An event that is known has no second alert. Returns whether
    /// the event is new.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn post(
        &self,
        connection: &mut AnyConnection,
        event: &Event,
        group: &GroupRow,
        trigger: Trigger<'_>,
        now: i64,
    ) -> Result<bool> {
        let (report, actor) = match trigger {
            Trigger::Report(report) => (Some(report), None),
            Trigger::Person(actor) => (None, Some(actor)),
            Trigger::Time => (None, None),
        };
        let change = NewChange {
            group: &group.id,
            time: now,
            event: event.kind.name(),
            build: event.build.as_deref(),
            report: report.map(|report| report.id.as_str()),
            actor,
            once: &event.once,
        };
        let Some(id) = changes::insert(connection, &change).await? else {
            return Ok(false);
        };
        let takers = self.channels.iter();
        let takers: Vec<_> = takers
            .filter(|channel| channel.takes(event.kind, &group.service))
            .collect();
        if takers.is_empty() {
            return Ok(true);
        }
        let reporting = builds::hosts_of(connection, &group.service).await?;
        let hosts = HostShare {
            crashed: group.hosts.unsigned_abs(),
            reporting: reporting.unsigned_abs(),
        };
        let alert = self.alert(&id, event, group, report, hosts, now);
        let payload = serde_json::to_string(&alert).unwrap_or_default();
        for channel in takers {
            let delivery = NewDelivery {
                id: &delivery_id(&id, &channel.name),
                change: &id,
                channel: &channel.name,
                is_summary: false,
                payload: &payload,
                created: now,
            };
            deliveries::insert(connection, &delivery).await?;
        }
        Ok(true)
    }

    fn alert(
        &self,
        change: &str,
        event: &Event,
        group: &GroupRow,
        report: Option<&ReportRow>,
        hosts: HostShare,
        now: i64,
    ) -> Alert {
        Alert {
            version: message::VERSION,
            change: change.to_owned(),
            event: event.kind,
            time: now.unsigned_abs(),
            group: AlertGroup {
                id: group.id.clone(),
                title: group.title.clone(),
                link: format!("{}/g/{}", self.public_url, group.id),
            },
            service: group.service.clone(),
            build: event.build.clone(),
            report: report.map(|report| self.alert_report(report)),
            hosts,
        }
    }

    fn alert_report(&self, row: &ReportRow) -> AlertReport {
        // A row that cannot be read still has its link, host and time.
        let report = row.parsed().ok();
        let cause = report.as_ref().map(|report| {
            CrashCause::of(&CrashFacts {
                signal: report.signal,
                code: report.code,
                fault_address: report.fault_address,
                ..CrashFacts::default()
            })
        });
        AlertReport {
            id: row.id.clone(),
            link: format!("{}/c/{}", self.public_url, row.id),
            host: row.host.clone(),
            time: row.time.unsigned_abs(),
            cause: cause.map_or_else(|| "unknown".to_owned(), |cause| cause.words()),
            thread: report.as_ref().and_then(|report| report.thread.clone()),
            message: None,
            labels: report.map(|report| report.labels).unwrap_or_default(),
        }
    }
}
