//! The content of alerts: as JSON, as a message of Slack's form, and as mail.

use crate::grouping::printable::{is_printable, printable};
use crate::lifecycle::{EventKind, HostShare};
use maud::{DOCTYPE, html};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The version of the JSON.
pub const VERSION: u32 = 1;
/// The longest subject of a mail, in bytes.
const MAX_SUBJECT: usize = 200;
/// The longest text of a part of a Slack message, in bytes.
const MAX_SECTION: usize = 2900;
/// The longest title or value in a Slack message, in bytes, before it is escaped.
const MAX_SLACK_TEXT: usize = 250;
/// The labels of a report that mail and Slack show.
const MAX_LABELS: usize = 10;

/// The group of an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertGroup {
    /// The identifier.
    pub id: String,
    /// The title.
    pub title: String,
    /// The page of the group.
    pub link: String,
}

/// The report that caused an alert.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertReport {
    /// The identifier.
    pub id: String,
    /// The page of the crash.
    pub link: String,
    /// The host.
    pub host: String,
    /// The time of the crash, in microseconds since 1970.
    pub time: u64,
    /// The cause, in a few words.
    pub cause: String,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The last message of the process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The labels of the request and the process.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// An alert: a change of a group, and the report that caused the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// The version of the format.
    pub version: u32,
    /// The identifier of the change. A receiver that has it already can ignore the message.
    pub change: String,
    /// The event.
    pub event: EventKind,
    /// The time of the event, in microseconds since 1970.
    pub time: u64,
    /// The group.
    pub group: AlertGroup,
    /// The service.
    pub service: String,
    /// The build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The report. `None`: no single report caused the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<AlertReport>,
    /// The hosts with a crash of the group, and the hosts that report.
    pub hosts: HostShare,
}

/// A summary of alerts that were held back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// The number of alerts.
    pub count: u64,
    /// The name of the channel.
    pub channel: String,
    /// The list of groups.
    pub link: String,
}

/// A mail without its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// The subject, one line.
    pub subject: String,
    /// The content as plain text.
    pub text: String,
    /// The content as HTML.
    pub html: String,
}

/// Returns the share of hosts, such as `7 of 9 812 hosts (0.07 %)`.
#[must_use]
pub fn share_text(hosts: HostShare) -> String {
    let HostShare { crashed, reporting } = hosts;
    let noun = |count: u64| if count == 1 { "host" } else { "hosts" };
    let Some(share) = hosts.share().filter(|_| crashed <= reporting) else {
        return format!("{} {}", grouped(crashed), noun(crashed));
    };
    let percent = share * 100.0;
    let percent = match percent {
        _ if crashed == 0 => "0 %".to_owned(),
        _ if percent < 0.01 => "less than 0.01 %".to_owned(),
        _ if percent < 1.0 => format!("{percent:.2} %"),
        _ if percent < 10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    };
    format!(
        "{} of {} {} ({percent})",
        grouped(crashed),
        grouped(reporting),
        noun(reporting)
    )
}

/// Returns a number with a space before each three digits, from 1 000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

impl Alert {
    /// Returns the event in one line, such as `New crash in ledger`.
    #[must_use]
    pub fn headline(&self) -> String {
        let service = &self.service;
        let build = self.build.as_deref();
        let of_build = build.map_or(String::new(), |build| format!(", build {build}"));
        match self.event {
            EventKind::New => format!("New crash in {service}{of_build}"),
            EventKind::FirstInBuild => format!("First crash in {service}{of_build}"),
            EventKind::Regressed => format!("Regression in {service}{of_build}"),
            EventKind::Escalating => format!("More hosts crash in {service}{of_build}"),
            EventKind::Resolved => format!("Resolved in {service}{of_build}"),
            EventKind::Archived => format!("Archived in {service}"),
            EventKind::Reopened => format!("Reopened in {service}"),
        }
    }

    /// Returns the facts of the alert, as names and values for people.
    fn facts(&self) -> Vec<(String, String)> {
        let mut facts = vec![("Service".to_owned(), self.service.clone())];
        facts.extend(self.build.iter().map(|build| ("Build".to_owned(), build.clone())));
        facts.push(("Hosts".to_owned(), share_text(self.hosts)));
        if let Some(report) = &self.report {
            facts.push(("Cause".to_owned(), report.cause.clone()));
            facts.push(("Host".to_owned(), report.host.clone()));
            facts.extend(
                report
                    .thread
                    .iter()
                    .map(|name| ("Thread".to_owned(), name.clone())),
            );
            facts.extend(
                report
                    .message
                    .iter()
                    .map(|text| ("Message".to_owned(), text.clone())),
            );
            let labels = report.labels.iter().take(MAX_LABELS);
            facts.extend(labels.map(|(key, value)| (key.clone(), value.clone())));
        }
        facts
    }

    /// Returns the documented JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        value["headline"] = Value::String(self.headline());
        value["hosts"]["text"] = Value::String(share_text(self.hosts));
        value
    }

    /// Returns a message of Slack's form.
    #[must_use]
    pub fn to_slack(&self) -> Value {
        let headline = self.headline();
        let link = (self.group.link.as_str(), self.group.title.as_str());
        let mut blocks = slack_sections(&headline, link, &self.facts());
        if let Some(report) = &self.report {
            blocks.push(section(&format!("<{}|Open the crash>", slack_link(&report.link))));
        }
        json!({
            "text": slack_text(&format!("{headline}: {}", self.group.title)),
            "blocks": blocks,
        })
    }

    /// Returns a mail.
    #[must_use]
    pub fn to_mail(&self) -> Mail {
        let headline = self.headline();
        let facts = self.facts();
        let crash = self.report.as_ref().map(|report| report.link.as_str());
        let mut text = format!("{headline}\n\n{}\n{}\n\n", self.group.title, self.group.link);
        for (name, value) in &facts {
            text.push_str(&format!("{name}: {}\n", value.replace('\n', "\n    ")));
        }
        if let Some(link) = crash {
            text.push_str(&format!("\nOpen the crash: {link}\n"));
        }
        let html = html! {
            (DOCTYPE)
            html {
                body {
                    p { b { (headline) } }
                    p { a href=(self.group.link) { (self.group.title) } }
                    table {
                        @for (name, value) in &facts {
                            tr { td { (name) } td { (value) } }
                        }
                    }
                    @if let Some(link) = crash {
                        p { a href=(link) { "Open the crash" } }
                    }
                }
            }
        };
        Mail {
            subject: subject(&format!("{headline}: {}", self.group.title)),
            text: printable_lines(&text),
            html: printable_lines(&html.into_string()),
        }
    }
}

impl HeldBack {
    /// Returns the message in one line: `12 more alerts were held back`.
    #[must_use]
    pub fn headline(&self) -> String {
        match self.count {
            1 => "1 more alert was held back".to_owned(),
            count => format!("{} more alerts were held back", grouped(count)),
        }
    }

    /// Returns the documented JSON.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({
            "version": VERSION,
            "event": "held-back",
            "headline": self.headline(),
            "count": self.count,
            "channel": self.channel,
            "link": self.link,
        })
    }

    /// Returns a message of Slack's form.
    #[must_use]
    pub fn to_slack(&self) -> Value {
        let text = format!("{}: <{}|all crashes>", self.headline(), slack_link(&self.link));
        json!({ "text": self.headline(), "blocks": [section(&text)] })
    }

    /// Returns a mail.
    #[must_use]
    pub fn to_mail(&self) -> Mail {
        let reason = format!(
            "The channel {} had more alerts in an hour than its limit `per_hour`.",
            self.channel
        );
        let html = html! {
            (DOCTYPE)
            html {
                body {
                    p { b { (self.headline()) } }
                    p { (reason) }
                    p { a href=(self.link) { "All crashes" } }
                }
            }
        };
        Mail {
            subject: subject(&self.headline()),
            text: printable_lines(&format!(
                "{}\n\n{reason}\n\nAll crashes: {}\n",
                self.headline(),
                self.link
            )),
            html: printable_lines(&html.into_string()),
        }
    }
}

/// Returns the sections of Slack's form for a headline, a link with its title, and facts.
pub(super) fn slack_sections(
    headline: &str,
    (link, title): (&str, &str),
    facts: &[(String, String)],
) -> Vec<Value> {
    let title = format!(
        "*{}*\n<{}|{}>",
        slack_text(headline),
        slack_link(link),
        slack_text(title)
    );
    let line = |(name, value): &(String, String)| format!("*{}:* {}", slack_text(name), slack_text(value));
    let lines: Vec<String> = facts.iter().map(line).collect();
    vec![section(&title), section(&lines.join("\n"))]
}

fn section(text: &str) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": shortened(text, MAX_SECTION) } })
}

/// Returns a text in which no character begins a link, a mention or an entity of Slack.
pub(super) fn slack_text(text: &str) -> String {
    // A line of its own would look like a fact of the hub.
    let text = printable(&shortened(text, MAX_SLACK_TEXT));
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// Returns a link without the characters that end it.
pub(super) fn slack_link(link: &str) -> String {
    link.replace('&', "&amp;")
        .replace('<', "%3C")
        .replace('>', "%3E")
        .replace('|', "%7C")
}

/// Returns the subject of a mail: one line of printable characters.
pub(super) fn subject(text: &str) -> String {
    shortened(&printable(text), MAX_SUBJECT)
}

/// Returns a text of printable characters and ends of lines.
pub(super) fn printable_lines(text: &str) -> String {
    let shown = |letter| match letter == '\n' || is_printable(letter) {
        true => letter,
        false => '?',
    };
    text.chars().map(shown).collect()
}

fn shortened(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(limit.saturating_sub(3))])
}

#[cfg(test)]
pub(super) mod tests;
