//! The settings: tokens, alert channels, hosts and builds.

use super::layout::{PageFrame, Section, Viewer, csrf, page};
use super::text::{Ago, number, shown, shown_to};
use maud::{Markup, html};

/// The most rows of a list.
const ROWS: usize = 200;

/// The page of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The tokens.
    pub tokens: Vec<TokenRow>,
    /// The secret of a new token, which is shown once.
    pub new_secret: Option<String>,
    /// The alert channels.
    pub channels: Vec<ChannelRow>,
    /// The last deliveries, newest first.
    pub deliveries: Vec<DeliveryRow>,
    /// The hosts.
    pub hosts: Vec<HostRow>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRow {
    /// The token's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its scopes.
    pub scopes: Vec<String>,
    /// The time of its creation.
    pub created: i64,
    /// The time after which it is invalid.
    pub expires: Option<i64>,
    /// The time of its last use.
    pub last_used: Option<i64>,
    /// Whether it was revoked.
    pub is_revoked: bool,
}

/// An alert channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRow {
    /// The name in the configuration.
    pub name: String,
    /// The kind: `webhook`, `slack` or `mail`.
    pub kind: String,
    /// The receiver, without secrets.
    pub to: String,
    /// The events.
    pub events: Vec<String>,
}

/// A delivery of an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryRow {
    /// The time of the change that it reports.
    pub time: i64,
    /// The channel.
    pub channel: String,
    /// The event.
    pub event: String,
    /// The group or job: the address of its page, and its title.
    pub subject: (String, String),
    /// The state: `waiting`, `sent`, `failed` or `suppressed`.
    pub state: String,
    /// The number of attempts.
    pub attempts: u64,
    /// The reason of the last failure.
    pub problem: Option<String>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostRow {
    /// The host.
    pub host: String,
    /// The collector's version.
    pub collector: String,
    /// The time of the last heartbeat or report.
    pub last_seen: i64,
    /// The builds that it runs: service and build.
    pub builds: Vec<(String, String)>,
}

/// Returns the page.
#[must_use]
pub fn render(view: &SettingsPage) -> Markup {
    let viewer = view.frame.viewer.as_ref();
    let content = html! {
        div class="headline" { h1 { "Settings" } }
        nav class="tabs" aria-label="Parts" {
            a href="#tokens" { "Tokens" } a href="#alerts" { "Alerts" } a href="#hosts" { "Hosts and builds" }
            a href="/settings/rules" { "Grouping rules" } a href="/settings/sites" { "Sites" }
        }
        (tokens(view, viewer))
        (alerts(view, viewer))
        (hosts(view))
    };
    page(&view.frame, Section::Settings, &["crash.js"], &content)
}

fn tokens(view: &SettingsPage, viewer: Option<&Viewer>) -> Markup {
    html! {
        section class="panel" id="tokens" {
            h2 { "Tokens" }
            @if let Some(secret) = &view.new_secret {
                div class="notice" role="status" {
                    p { b { "Copy the new token now." } " The hub keeps its hash only, and shows it this once." }
                    p { code class="secret" { (shown(secret)) } " " button type="button" class="button" data-copy=(secret) { "Copy" } }
                }
            }
            div class="scroll" tabindex="0" role="region" aria-label="Tokens" {
                table class="list" {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Scopes" } th scope="col" { "Created" } th scope="col" { "Last used" } th scope="col" { "Expires" } th scope="col" { span class="spoken" { "Action" } } } }
                    tbody { @for token in view.tokens.iter().take(ROWS) { (token_row(token, viewer, view.now)) } }
                }
            }
            form method="post" action="/settings/tokens" class="row" {
                (csrf(viewer))
                label { span { "Name" } input name="name" required maxlength="255" placeholder="host web-17"; }
                fieldset { legend { "Scopes" }
                    @for (scope, label) in [("ingest", "ingest: send crashes"), ("read", "read: see crashes"), ("admin", "admin: change states and settings")] {
                        label class="check" { input type="checkbox" name="scope" value=(scope); (label) }
                    }
                }
                button type="submit" class="button primary" { "Create token" }
            }
        }
    }
}

fn token_row(token: &TokenRow, viewer: Option<&Viewer>, now: i64) -> Markup {
    let time = |time: Option<i64>, none: &str| {
        html! { @match time { Some(time) => (Ago { time, now }), None => { span class="dim" { (none) } } } }
    };
    html! {
        tr {
            td { b { (shown_to(&token.name, 80)) } }
            td { @for scope in token.scopes.iter().take(8) { span class="tag" { (shown_to(scope, 20)) } } }
            td { (Ago { time: token.created, now }) }
            td { (time(token.last_used, "never")) }
            td { (time(token.expires, "never")) }
            td class="num" {
                @if token.is_revoked { span class="state dim" { "revoked" } }
                @else {
                    form method="post" action={ "/settings/tokens/" (token.id) "/revoke" } { (csrf(viewer)) button type="submit" class="button small" { "Revoke" } }
                }
            }
        }
    }
}

fn alerts(view: &SettingsPage, viewer: Option<&Viewer>) -> Markup {
    html! {
        section class="panel" id="alerts" {
            h2 { "Alert channels" }
            @if view.channels.is_empty() { p class="none" { "No channel is configured. Channels are in the configuration of the hub." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Alert channels" { table class="list" {
                    thead { tr { th scope="col" { "Channel" } th scope="col" { "Receiver" } th scope="col" { "Events" } th scope="col" { span class="spoken" { "Action" } } } }
                    tbody { @for channel in view.channels.iter().take(ROWS) {
                        tr {
                            td { b { (shown_to(&channel.name, 60)) } " " span class="dim" { (shown_to(&channel.kind, 20)) } }
                            td { (shown_to(&channel.to, 120)) }
                            td { @for event in channel.events.iter().take(12) { span class="tag" { (shown_to(event, 30)) } } }
                            td class="num" { form method="post" action="/settings/channels/test" { (csrf(viewer)) input type="hidden" name="channel" value=(shown(&channel.name)); button type="submit" class="button small" { "Send a test" } } }
                        }
                    } }
                } }
            }
            h3 { "Deliveries" }
            @if view.deliveries.is_empty() { p class="none" { "Nothing was sent yet." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Deliveries" { table class="list" {
                    thead { tr { th scope="col" { "Time" } th scope="col" { "Channel" } th scope="col" { "Event" } th scope="col" { "Subject" } th scope="col" { "State" } } }
                    tbody { @for delivery in view.deliveries.iter().take(ROWS) { (delivery_row(delivery, view.now)) } }
                } }
            }
        }
    }
}

fn delivery_row(delivery: &DeliveryRow, now: i64) -> Markup {
    let class = match delivery.state.as_str() {
        "sent" => "state ok",
        "failed" => "state bad",
        "waiting" => "state wait",
        _ => "state dim",
    };
    html! {
        tr {
            td { (Ago { time: delivery.time, now }) }
            td { (shown_to(&delivery.channel, 60)) }
            td { (shown_to(&delivery.event, 40)) }
            td { a href=(delivery.subject.0) { (shown_to(&delivery.subject.1, 100)) } }
            td {
                span class=(class) { (shown_to(&delivery.state, 20)) }
                @if delivery.attempts > 1 { span class="dim" { " after " (delivery.attempts) " attempts" } }
                @if let Some(problem) = &delivery.problem { div class="dim" { (shown_to(problem, 200)) } }
            }
        }
    }
}

fn hosts(view: &SettingsPage) -> Markup {
    html! {
        section class="panel" id="hosts" {
            h2 { "Hosts and builds " span class="dim" { (number(view.hosts.len() as u64)) } }
            @if view.hosts.is_empty() { p class="none" { "No host has sent a heartbeat." } }
            @else {
                div class="scroll" tabindex="0" role="region" aria-label="Hosts and builds" { table class="list" {
                    thead { tr { th scope="col" { "Host" } th scope="col" { "Last heard of" } th scope="col" { "Collector" } th scope="col" { "Builds" } } }
                    tbody { @for host in view.hosts.iter().take(ROWS) {
                        tr {
                            td { b { (shown_to(&host.host, 80)) } }
                            td { (Ago { time: host.last_seen, now: view.now }) }
                            td { (shown_to(&host.collector, 40)) }
                            td { @for (service, build) in host.builds.iter().take(20) { span class="tag" { (shown_to(service, 60)) " " span class="dim" { (shown_to(build, 60)) } } } }
                        }
                    } }
                } }
                @if view.hosts.len() > ROWS { p class="dim" { "and " (view.hosts.len() - ROWS) " more" } }
            }
        }
    }
}
