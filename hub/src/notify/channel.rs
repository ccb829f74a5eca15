//! The configuration of alerts: `[[alert]]` tables, and the `[mail]` table of the mail server.

use super::job_message::JobEvent;
use crate::lifecycle::EventKind;
use serde::de::IntoDeserializer;
use serde::{Deserialize, Deserializer, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The alerts per hour and channel, unless the configuration names another number.
const PER_HOUR: u32 = 60;
/// The events of a channel, unless the configuration names others.
const EVENTS: &[EventKind] = &[EventKind::New, EventKind::Regressed, EventKind::Escalating];
/// The largest file with a secret, in bytes.
const MAX_SECRET: u64 = 4096;

/// The place where a channel's messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelTarget {
    /// A URL that takes the documented JSON.
    Webhook {
        /// The URL.
        url: Secret,
        /// The file with the key of the signature.
        secret_file: Option<PathBuf>,
    },
    /// A URL that takes messages of Slack's form.
    Slack {
        /// The URL.
        url: Secret,
    },
    /// Mail addresses.
    Mail {
        /// The addresses.
        to: Vec<String>,
    },
}

/// A text in the configuration, or the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The text.
    Text(String),
    /// The file.
    File(PathBuf),
}

impl Secret {
    /// Returns the text.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(&self) -> io::Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => read_secret(path),
        }
    }
}

/// Reads a file with a secret, without the white space at its ends.
///
/// # Errors
/// Fails if the file cannot be read, is empty, or has more than 4 KiB.
pub fn read_secret(path: &Path) -> io::Result<String> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let invalid = |reason: &str| named(io::Error::new(io::ErrorKind::InvalidData, reason));
    if std::fs::metadata(path).map_err(named)?.len() > MAX_SECRET {
        return Err(invalid("a file with a secret has at most 4 KiB"));
    }
    let text = std::fs::read_to_string(path).map_err(named)?;
    match text.trim() {
        "" => Err(invalid("the file with the secret is empty")),
        text => Ok(text.to_owned()),
    }
}

/// A channel: a receiver of alerts, and the events that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "AlertTable")]
pub struct AlertChannel {
    /// The name, which is unique.
    pub name: String,
    /// The place where messages go.
    pub target: ChannelTarget,
    /// The events of groups.
    pub events: Vec<EventKind>,
    /// The events of jobs.
    pub job_events: Vec<JobEvent>,
    /// The services, as names or globs. Empty: all.
    pub services: Vec<String>,
    /// The most alerts per hour. Further ones are held back, and one message reports their number.
    pub per_hour: u32,
}

/// An `[[alert]]` table as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertTable {
    name: String,
    kind: String,
    url: Option<String>,
    url_file: Option<PathBuf>,
    secret_file: Option<PathBuf>,
    #[serde(default)]
    to: Vec<String>,
    events: Option<Vec<ChannelEvent>>,
    #[serde(default)]
    services: Vec<String>,
    per_hour: Option<u32>,
}

/// An event of a group or of a job, by its name.
#[derive(Clone, Copy, Debug)]
enum ChannelEvent {
    Group(EventKind),
    Job(JobEvent),
}

impl<'de> Deserialize<'de> for ChannelEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(event) = JobEvent::ALL.into_iter().find(|event| event.name() == name) {
            return Ok(Self::Job(event));
        }
        EventKind::deserialize(name.into_deserializer()).map(Self::Group)
    }
}

/// The reason for which an `[[alert]]` table is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidChannel {
    /// The name is empty or too long.
    #[error("the name of an alert has 1 to 64 bytes and no control characters")]
    Name,
    /// The kind is unknown.
    #[error("alert {name}: the kind `{kind}` is unknown: use webhook, slack or mail")]
    Kind {
        /// The channel.
        name: String,
        /// The kind.
        kind: String,
    },
    /// A key is missing, or one too many is there.
    #[error("alert {name}: {reason}")]
    Key {
        /// The channel.
        name: String,
        /// The reason.
        reason: &'static str,
    },
}

impl TryFrom<AlertTable> for AlertChannel {
    type Error = InvalidChannel;

    fn try_from(table: AlertTable) -> Result<Self, InvalidChannel> {
        let name = table.name.clone();
        if name.is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
            return Err(InvalidChannel::Name);
        }
        let invalid = |reason| InvalidChannel::Key {
            name: name.clone(),
            reason,
        };
        let url = match (table.url, table.url_file) {
            (Some(url), None) => Ok(Secret::Text(url)),
            (None, Some(file)) => Ok(Secret::File(file)),
            (None, None) => Err(invalid("`url` or `url_file` is missing")),
            (Some(_), Some(_)) => Err(invalid("`url` and `url_file` exclude each other")),
        };
        let has_url = !matches!(&url, Err(InvalidChannel::Key { reason, .. }) if reason.ends_with("missing"));
        let is_mail = table.kind == "mail";
        if is_mail && has_url {
            return Err(invalid("`url` and `url_file` are for webhook and slack only"));
        }
        if !is_mail && !table.to.is_empty() {
            return Err(invalid("`to` is for mail only"));
        }
        if table.kind != "webhook" && table.secret_file.is_some() {
            return Err(invalid("`secret_file` is for webhook only"));
        }
        let target = match table.kind.as_str() {
            "webhook" => ChannelTarget::Webhook {
                url: url?,
                secret_file: table.secret_file,
            },
            "slack" => ChannelTarget::Slack { url: url? },
            "mail" if table.to.is_empty() => return Err(invalid("`to` has no address")),
            "mail" => ChannelTarget::Mail { to: table.to },
            kind => {
                let kind = kind.to_owned();
                return Err(InvalidChannel::Kind { name, kind });
            }
        };
        if table.per_hour == Some(0) {
            return Err(invalid("`per_hour` is 1 or more"));
        }
        let (mut events, mut job_events) = (EVENTS.to_vec(), JobEvent::ALL.to_vec());
        if let Some(named) = table.events {
            (events, job_events) = (Vec::new(), Vec::new());
            for event in named {
                match event {
                    ChannelEvent::Group(event) => events.push(event),
                    ChannelEvent::Job(event) => job_events.push(event),
                }
            }
        }
        Ok(Self {
            name,
            target,
            events,
            job_events,
            services: table.services,
            per_hour: table.per_hour.unwrap_or(PER_HOUR),
        })
    }
}

impl AlertChannel {
    /// Returns whether the channel gets an event of a service.
    #[must_use]
    pub fn takes(&self, event: EventKind, service: &str) -> bool {
        self.takes_service(service) && self.events.contains(&event)
    }

    /// Returns whether the channel gets an event of a job. A channel of some services gets those of
    /// jobs that are about one of them.
    #[must_use]
    pub fn takes_job(&self, event: JobEvent, service: Option<&str>) -> bool {
        let takes_service = self.services.is_empty() || service.is_some_and(|one| self.takes_service(one));
        takes_service && self.job_events.contains(&event)
    }

    fn takes_service(&self, service: &str) -> bool {
        let mut globs = self.services.iter();
        self.services.is_empty() || globs.any(|glob| matches(glob.as_bytes(), service.as_bytes()))
    }
}

/// Returns whether a text matches a glob in which `*` is any text.
fn matches(glob: &[u8], text: &[u8]) -> bool {
    let mut parts = glob.split(|byte| *byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let found = (0..=rest.len().saturating_sub(part.len())).find(|&at| rest[at..].starts_with(part));
        match found {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// The encryption of a connection to a mail server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MailTls {
    /// None, for a server on this machine.
    None,
    /// The connection starts without encryption, and must change to it before any mail.
    #[default]
    Starttls,
    /// The whole connection is encrypted.
    Tls,
}

/// The `[mail]` table: the server that takes mail.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MailServer {
    /// The host name.
    pub host: String,
    /// The port. `None`: 25, 587 or 465 by encryption.
    #[serde(default)]
    pub port: Option<u16>,
    /// The encryption.
    #[serde(default)]
    pub tls: MailTls,
    /// The user.
    #[serde(default)]
    pub user: Option<String>,
    /// The file with the user's password.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// The sender's address.
    pub from: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        alert: Vec<AlertChannel>,
        mail: Option<MailServer>,
    }

    fn read(text: &str) -> Result<File, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn tables_of_each_kind_are_read() {
        let file = read(
            r#"
            [[alert]]
            name = "on-call"
            kind = "webhook"
            url = "https://example.org/hook"
            secret_file = "/etc/backtrail-hub/hook.key"
            events = ["new", "first-in-build", "regressed", "escalating"]
            services = ["ledger", "billing-*"]
            per_hour = 5

            [[alert]]
            name = "chat"
            kind = "slack"
            url_file = "/etc/backtrail-hub/slack.url"

            [[alert]]
            name = "team"
            kind = "mail"
            to = ["team@example.org"]

            [mail]
            host = "mail.example.org"
            from = "Backtrail <hub@example.org>"
            "#,
        )
        .unwrap();
        let [hook, chat, team] = &file.alert[..] else {
            panic!("three alerts");
        };
        assert!(hook.takes(EventKind::FirstInBuild, "billing-eu"));
        assert!(!hook.takes(EventKind::New, "shop"));
        assert!(chat.takes(EventKind::New, "shop") && !chat.takes(EventKind::FirstInBuild, "shop"));
        assert!(!chat.takes(EventKind::Resolved, "shop"));
        assert!(chat.takes_job(JobEvent::Failed, None) && team.takes_job(JobEvent::Alert, Some("shop")));
        assert!(!hook.takes_job(JobEvent::Alert, Some("ledger")));
        assert_eq!((hook.per_hour, team.per_hour), (5, 60));
        assert_eq!(file.mail.unwrap().tls, MailTls::Starttls);
    }

    #[test]
    fn wrong_tables_are_refused_with_a_reason() {
        for (keys, message) in [
            (
                "kind = 'pager'\nurl = 'https://a'",
                "alert x: the kind `pager` is unknown: use webhook, slack or mail",
            ),
            ("kind = 'webhook'", "alert x: `url` or `url_file` is missing"),
            (
                "kind = 'slack'\nurl = 'a'\nurl_file = 'b'",
                "alert x: `url` and `url_file` exclude each other",
            ),
            ("kind = 'mail'", "alert x: `to` has no address"),
            (
                "kind = 'mail'\nto = ['a@b']\nurl = 'a'",
                "alert x: `url` and `url_file` are for webhook and slack only",
            ),
            (
                "kind = 'slack'\nurl = 'a'\nto = ['a@b']",
                "alert x: `to` is for mail only",
            ),
            (
                "kind = 'slack'\nurl = 'a'\nsecret_file = 'k'",
                "alert x: `secret_file` is for webhook only",
            ),
            (
                "kind = 'slack'\nurl = 'a'\nper_hour = 0",
                "alert x: `per_hour` is 1 or more",
            ),
        ] {
            let text = format!("[[alert]]\nname = 'x'\n{keys}\n");
            assert_eq!(read(&text).unwrap_err(), message);
        }
        assert!(read("[[alert]]\nname = 'x'\nkind = 'slack'\nurl = 'a'\nurls = 1\n").is_err());
        assert!(read("[[alert]]\nname = ''\nkind = 'slack'\nurl = 'a'\n").is_err());
    }

    #[test]
    fn channel_of_services_gets_their_jobs() {
        let text = "[[alert]]\nname = 'x'\nkind = 'slack'\nurl = 'a'\nservices = ['shop-*']\n\
                    events = ['new', 'job-alert', 'job-regression']\n";
        let channel = read(text).unwrap().alert.remove(0);
        assert_eq!(channel.events, [EventKind::New]);
        assert!(channel.takes_job(JobEvent::Alert, Some("shop-eu")));
        assert!(!channel.takes_job(JobEvent::Recovered, Some("shop-eu")));
        assert!(!channel.takes_job(JobEvent::Alert, Some("ledger")));
        assert!(!channel.takes_job(JobEvent::Alert, None));
        let error = read(&text.replace("job-alert", "job-late")).unwrap_err();
        assert!(error.contains("unknown variant `job-late`"), "{error}");
    }

    #[test]
    fn globs_match_names_of_services() {
        for (glob, text, expected) in [
            ("ledger", "ledger", true),
            ("ledger", "ledger2", false),
            ("bill*", "billing-eu", true),
            ("*-eu", "billing-eu", true),
            ("b*g*u", "billing-eu", true),
            ("b*x*u", "billing-eu", false),
            ("*", "", true),
            ("a*a", "a", false),
            ("", "a", false),
        ] {
            assert_eq!(
                matches(glob.as_bytes(), text.as_bytes()),
                expected,
                "{glob} {text}"
            );
        }
    }

    #[test]
    fn secrets_are_trimmed_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, " secret\n").unwrap();
        assert_eq!(Secret::File(path.clone()).read().unwrap(), "secret");
        for content in [" \n".to_owned(), "x".repeat(5000)] {
            std::fs::write(&path, content).unwrap();
            assert!(read_secret(&path).is_err());
        }
        let error = read_secret(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }
}
