//! Sends the deliveries of the database to their channels.

use crate::clock;
use crate::config::Config;
use crate::database::Database;
use crate::database::deliveries::{ChannelPast, ChannelPlan, Delivery};
use crate::error::{Error, Result};
use crate::lifecycle::{EventKind, HostShare};
use crate::notify::address::{Lookup, system_lookup};
use crate::notify::channel::{ChannelTarget, read_secret};
use crate::notify::job_message::JobAlert;
use crate::notify::mail::Mailer;
use crate::notify::message::{Alert, AlertGroup, VERSION};
use crate::notify::schedule::{self, ChannelFacts, WaitingDelivery, delivery_id};
use crate::notify::webhook::{self, WebhookRequest};
use crate::notify::{AddressPolicy, AlertChannel, DeliveryError, HeldBack, Mail};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The time between two searches for due deliveries.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time after which another hub tries again what this one began to send. Longer than the
/// longest attempt.
const LEASE: i64 = 120 * clock::SECOND;

/// A message of any kind.
enum Message {
    Alert(Box<Alert>),
    Job(Box<JobAlert>),
    HeldBack(HeldBack),
}

impl Message {
    fn read(delivery: &Delivery) -> std::result::Result<Self, DeliveryError> {
        let damaged = |error| DeliveryError::permanent(format!("the stored message is damaged: {error}"));
        if delivery.is_summary {
            return serde_json::from_str(&delivery.payload)
                .map(Self::HeldBack)
                .map_err(damaged);
        }
        let value: serde_json::Value = serde_json::from_str(&delivery.payload).map_err(damaged)?;
        match value.get("job").is_some() {
            true => serde_json::from_value(value).map(|alert| Self::Job(Box::new(alert))),
            false => serde_json::from_value(value).map(|alert| Self::Alert(Box::new(alert))),
        }
        .map_err(damaged)
    }

    fn to_json(&self) -> String {
        match self {
            Self::Alert(alert) => alert.to_json().to_string(),
            Self::Job(alert) => alert.to_json().to_string(),
            Self::HeldBack(summary) => summary.to_json().to_string(),
        }
    }

    fn to_slack(&self) -> String {
        match self {
            Self::Alert(alert) => alert.to_slack().to_string(),
            Self::Job(alert) => alert.to_slack().to_string(),
            Self::HeldBack(summary) => summary.to_slack().to_string(),
        }
    }

    fn to_mail(&self) -> Mail {
        match self {
            Self::Alert(alert) => alert.to_mail(),
            Self::Job(alert) => alert.to_mail(),
            Self::HeldBack(summary) => summary.to_mail(),
        }
    }
}

/// Sends messages to the configured channels.
pub struct Sender {
    database: Database,
    channels: Vec<AlertChannel>,
    /// The client of the mail server, or the reason for which there is none.
    mailer: std::result::Result<Mailer, DeliveryError>,
    policy: AddressPolicy,
    lookup: Lookup,
    public_url: String,
}

impl Sender {
    /// Returns what sends to the channels of a configuration.
    ///
    /// # Errors
    /// Fails if two channels have one name, or an allowed address is malformed.
    pub fn new(database: Database, config: &Config) -> Result<Self> {
        let policy = AddressPolicy::new(&config.allowed_addresses)
            .map_err(|error| Error::Configuration(format!("allowed_addresses: {error}")))?;
        for (at, channel) in config.alert.iter().enumerate() {
            if config.alert[..at].iter().any(|other| other.name == channel.name) {
                let name = &channel.name;
                return Err(Error::Configuration(format!(
                    "two [[alert]] tables have the name {name}; each needs its own"
                )));
            }
        }
        let mailer = match &config.mail {
            Some(server) => Mailer::new(server),
            None => Err(DeliveryError::permanent(
                "the configuration has no [mail] table, which names the mail server",
            )),
        };
        Ok(Self {
            database,
            channels: config.alert.clone(),
            mailer,
            policy,
            lookup: system_lookup(),
            public_url: config.public_url(),
        })
    }

    /// Sends one test message to a channel, at once.
    ///
    /// # Errors
    /// Fails if there is no such channel, or the message is not delivered.
    pub async fn send_test(&self, channel: &str) -> Result<()> {
        let found = self.channels.iter().find(|one| one.name == channel);
        let found = found.ok_or_else(|| Error::Absent(format!("channel {}", channel.escape_debug())))?;
        let now = clock::now();
        let change = format!("test-{now}");
        let alert = Alert {
            version: VERSION,
            change: change.clone(),
            event: EventKind::New,
            time: now.unsigned_abs(),
            group: AlertGroup {
                id: "test".to_owned(),
                title: "Test message: this channel works".to_owned(),
                link: self.public_url.clone(),
            },
            service: "test".to_owned(),
            build: None,
            report: None,
            hosts: HostShare::default(),
        };
        let id = delivery_id(&change, channel);
        self.send(found, &Message::Alert(Box::new(alert)), &id)
            .await
            .map_err(|error| Error::Conflict(error.to_string()))
    }

    async fn send(
        &self,
        channel: &AlertChannel,
        message: &Message,
        delivery: &str,
    ) -> std::result::Result<(), DeliveryError> {
        let unreadable = |error: std::io::Error| DeliveryError::temporary(format!("cannot read {error}"));
        let (url, body, secret) = match &channel.target {
            ChannelTarget::Mail { to } => {
                let mailer = self.mailer.as_ref().map_err(Clone::clone)?;
                return mailer.send(to, &message.to_mail(), delivery).await;
            }
            ChannelTarget::Slack { url } => (url, message.to_slack(), None),
            ChannelTarget::Webhook { url, secret_file } => {
                let secret = secret_file.as_deref().map(read_secret).transpose();
                (url, message.to_json(), secret.map_err(unreadable)?)
            }
        };
        let url = url.read().map_err(unreadable)?;
        let (policy, lookup) = (self.policy.clone(), self.lookup.clone());
        let delivery = delivery.to_owned();
        let time = (clock::now() / clock::SECOND).unsigned_abs();
        let sent = tokio::task::spawn_blocking(move || {
            let request = WebhookRequest {
                url: &url,
                body: &body,
                secret: secret.as_deref(),
                delivery: &delivery,
                time,
            };
            webhook::post(&policy, &lookup, &request)
        });
        sent.await
            .unwrap_or_else(|error| Err(DeliveryError::temporary(format!("the attempt ended: {error}"))))
    }

    /// Sends a leased delivery, and stores the result.
    async fn attempt(&self, channel: &AlertChannel, delivery: &Delivery) -> Result<()> {
        let result = match Message::read(delivery) {
            Ok(message) => self.send(channel, &message, &delivery.id).await,
            Err(error) => Err(error),
        };
        let now = clock::now();
        let Err(error) = result else {
            return self.database.end_delivery(delivery, now, None, None).await;
        };
        let problem = error.to_string();
        tracing::warn!("alert {} to channel {}: {problem}", delivery.id, channel.name);
        let again = match &error {
            DeliveryError::Temporary { retry_after, .. } => {
                let attempts = u32::try_from(delivery.attempts).unwrap_or(u32::MAX);
                let created = delivery.created.unsigned_abs();
                schedule::next_try(&delivery.id, created, attempts, now.unsigned_abs(), *retry_after)
            }
            DeliveryError::Permanent { .. } => None,
        };
        let again = again.and_then(|time| i64::try_from(time).ok());
        self.database
            .end_delivery(delivery, now, Some(&problem), again)
            .await
    }

    /// Sends what is due at a time, and returns the number of attempts.
    ///
    /// # Errors
    /// Fails if the database fails.
    pub async fn send_due(self: &Arc<Self>, now: i64) -> Result<usize> {
        let mut running = JoinSet::new();
        for channel in &self.channels {
            let hour = now.div_euclid(clock::HOUR) * clock::HOUR;
            let times = (now, hour, now + LEASE);
            let due = self
                .database
                .lease_deliveries(&channel.name, times, |past| self.plan(channel, past, now))
                .await?;
            for delivery in due {
                let (sender, channel) = (self.clone(), channel.clone());
                running.spawn(async move { sender.attempt(&channel, &delivery).await });
            }
        }
        let mut attempts = 0;
        while let Some(result) = running.join_next().await {
            attempts += 1;
            if let Ok(result) = result {
                result?;
            }
        }
        Ok(attempts)
    }

    fn plan(&self, channel: &AlertChannel, past: &ChannelPast, now: i64) -> ChannelPlan {
        let waiting: Vec<_> = past
            .alerts
            .iter()
            .map(|delivery| WaitingDelivery {
                id: delivery.id.clone(),
                change: delivery.change.clone(),
            })
            .collect();
        let held_back: Vec<_> = past.held_back.iter().map(|time| time.unsigned_abs()).collect();
        let facts = ChannelFacts {
            now: now.unsigned_abs(),
            per_hour: channel.per_hour,
            sent: &past.sent,
            held_back: &held_back,
        };
        let plan = schedule::plan(&facts, &waiting);
        let hour = now.div_euclid(clock::HOUR);
        let summary = plan.summary.map(|count| {
            let summary = HeldBack {
                count,
                channel: channel.name.clone(),
                link: format!("{}/", self.public_url),
            };
            let payload = serde_json::to_string(&summary).unwrap_or_default();
            let id = delivery_id(&format!("held back before hour {hour}"), &channel.name);
            (id, payload, hour * clock::HOUR)
        });
        ChannelPlan {
            send: plan.send,
            hold_back: plan.hold_back,
            duplicates: plan.duplicates,
            summary,
        }
    }
}

/// Sends due deliveries until `end` is true.
pub async fn run(sender: Arc<Sender>, mut end: watch::Receiver<bool>) {
    while !*end.borrow() {
        if let Err(error) = sender.send_due(clock::now()).await {
            tracing::error!("cannot send alerts: {error}");
        }
        tokio::select! {
            () = tokio::time::sleep(INTERVAL) => {}
            _ = end.changed() => {}
        }
    }
}
