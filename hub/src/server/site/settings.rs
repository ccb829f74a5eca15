//! The settings: tokens, alert channels and hosts.

use super::frame::{KeyForm, check_form, frame, see, typed};
use crate::access::Scope;
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::notify::channel::{AlertChannel, ChannelTarget, Secret};
use crate::server::caller::Caller;
use crate::server::pages::settings::{self, ChannelRow, DeliveryRow, HostRow, SettingsPage, TokenRow};
use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Form, Path, State};
use axum::response::Redirect;
use maud::Markup;
use serde::Deserialize;
use std::sync::Arc;

/// Deliveries of each channel on the page.
const DELIVERIES: i64 = 50;
/// Hosts on the page.
const HOSTS: i64 = 500;

/// Returns the page.
///
/// # Errors
/// Fails if the database fails.
pub async fn page(State(hub): State<Arc<Hub>>, Extension(caller): Extension<Caller>) -> Result<Markup> {
    render(&hub, &caller, None).await
}

/// Creates a token, and shows its secret once.
///
/// # Errors
/// Fails if the form is foreign or malformed, or the database fails.
pub async fn create_token(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    body: Bytes,
) -> Result<Markup> {
    // The form may name several scopes, which serde's forms cannot say.
    let pairs: Vec<_> = form_urlencoded::parse(&body).collect();
    let field = |name: &str| {
        pairs
            .iter()
            .find(|(key, _)| key == name)
            .map_or("", |(_, value)| &**value)
    };
    check_form(&caller, field("csrf"))?;
    caller.require(Scope::Admin)?;
    let name = typed("the name of a token", field("name"), 100)?;
    let scopes: Vec<_> = pairs
        .iter()
        .filter(|(key, _)| key == "scope")
        .filter_map(|(_, value)| Scope::named(value))
        .collect();
    if scopes.is_empty() {
        return Err(Error::Invalid(
            "a token needs a scope: ingest, read or admin".to_owned(),
        ));
    }
    let (_, secret) = hub.database.create_token(name, &scopes, None).await?;
    hub.database
        .log_action(&caller.name, "create token", name)
        .await?;
    render(&hub, &caller, Some(secret.reveal().to_owned())).await
}

/// Revokes a token.
///
/// # Errors
/// Fails if the form is foreign, there is no such token, or the database fails.
pub async fn revoke_token(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Form(form): Form<KeyForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    hub.database.revoke_token(&id).await?;
    hub.database.log_action(&caller.name, "revoke token", &id).await?;
    Ok(see("/settings"))
}

async fn render(hub: &Hub, caller: &Caller, new_secret: Option<String>) -> Result<Markup> {
    let tokens = hub.database.tokens().await?;
    let token = |token: crate::database::tokens::Token| TokenRow {
        id: token.id,
        name: token.name,
        scopes: token.scopes.iter().map(|scope| scope.name().to_owned()).collect(),
        created: token.created,
        expires: token.expires,
        last_used: token.last_used,
        is_revoked: token.revoked.is_some(),
    };
    let hosts = hub.database.hosts(HOSTS).await?;
    let host = |host: crate::database::builds::HostRow| HostRow {
        host: host.host,
        collector: host.collector,
        last_seen: host.last_seen,
        builds: host.builds,
    };
    let view = SettingsPage {
        frame: frame(caller, "Settings"),
        tokens: tokens.into_iter().map(token).collect(),
        new_secret,
        channels: hub.config.alert.iter().map(channel_row).collect(),
        deliveries: deliveries(hub).await?,
        hosts: hosts.into_iter().map(host).collect(),
        now: clock::now(),
    };
    Ok(settings::render(&view))
}

/// The form of a test message.
#[derive(Deserialize)]
pub struct ChannelForm {
    #[serde(default)]
    csrf: String,
    channel: String,
}

/// Sends a test message to a channel.
///
/// # Errors
/// Fails if the form is foreign, there is no such channel, or the message is not delivered.
pub async fn test_channel(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Form(form): Form<ChannelForm>,
) -> Result<Redirect> {
    check_form(&caller, &form.csrf)?;
    caller.require(Scope::Admin)?;
    hub.sender.send_test(&form.channel).await?;
    hub.database
        .log_action(&caller.name, "test channel", &form.channel)
        .await?;
    Ok(see("/settings#alerts"))
}

/// Returns a channel without its secrets.
fn channel_row(channel: &AlertChannel) -> ChannelRow {
    let (kind, to) = match &channel.target {
        ChannelTarget::Webhook { url, .. } => ("webhook", receiver(url)),
        ChannelTarget::Slack { url } => ("slack", receiver(url)),
        ChannelTarget::Mail { to } => ("mail", to.join(", ")),
    };
    ChannelRow {
        name: channel.name.clone(),
        kind: kind.to_owned(),
        to,
        events: channel
            .events
            .iter()
            .map(|event| event.name())
            .chain(channel.job_events.iter().map(|event| event.name()))
            .map(str::to_owned)
            .collect(),
    }
}

/// Returns the host of a URL. Its path is often a secret.
fn receiver(url: &Secret) -> String {
    match url {
        Secret::Text(url) => {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            rest.split(['/', '?']).next().unwrap_or_default().to_owned()
        }
        Secret::File(path) => format!("the URL in {}", path.display()),
    }
}

/// Returns the latest deliveries of all channels, the newest first.
async fn deliveries(hub: &Hub) -> Result<Vec<DeliveryRow>> {
    let mut rows = Vec::new();
    for channel in &hub.config.alert {
        for delivery in hub.database.deliveries(&channel.name, DELIVERIES).await? {
            let alert: serde_json::Value = serde_json::from_str(&delivery.payload).unwrap_or_default();
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            let subject = match &alert["job"] {
                serde_json::Value::Object(job) => {
                    let part = |key: &str| job.get(key).map(text).unwrap_or_default();
                    (format!("/jobs/{}", part("id")), part("name"))
                }
                _ => {
                    let group = &alert["group"];
                    (format!("/g/{}", text(&group["id"])), text(&group["title"]))
                }
            };
            rows.push(DeliveryRow {
                time: delivery.created,
                channel: delivery.channel,
                event: text(&alert["event"]),
                subject,
                state: delivery.state,
                attempts: delivery.attempts.unsigned_abs(),
                problem: delivery.problem,
            });
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.time));
    Ok(rows)
}
