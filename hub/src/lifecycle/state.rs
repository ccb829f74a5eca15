//! States of a group, and the transitions between them.

mod transitions;

use serde::{Deserialize, Serialize};
use std::fmt;

pub use transitions::{ReportFacts, TickFacts, on_action, on_report, on_tick};

/// The build that has the fix of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fix {
    /// A build by its name. The build may not exist yet.
    Build {
        /// The name.
        build: String,
        /// The time at which a host first ran it, as far as known. The time stays known if the
        /// build is deleted.
        first_ran: Option<u64>,
    },
    /// Each build that first runs after a time.
    NextBuild {
        /// The time of the decision.
        after: u64,
    },
}

/// The condition until which a group is archived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ArchiveCondition {
    /// No condition.
    Forever,
    /// The share of hosts grows.
    UntilEscalating,
    /// The group has a number of reports in total.
    UntilReports {
        /// The number.
        total: u64,
    },
    /// A time, in microseconds since 1970.
    UntilTime {
        /// The time.
        time: u64,
    },
}

/// The state of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum State {
    /// First seen within the last seven days.
    New,
    /// Known.
    Ongoing,
    /// Its share of hosts grows.
    Escalating,
    /// Seen in a build that should have the fix.
    Regressed,
    /// A build has the fix.
    Resolved(Fix),
    /// A user hides the group.
    Archived(ArchiveCondition),
}

/// The stored state cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidState {
    /// The name is unknown.
    #[error("the state `{0}` is unknown to this hub: use a newer hub")]
    Name(String),
    /// The detail is missing or invalid.
    #[error("the detail of the state `{name}` cannot be read: {reason}")]
    Detail {
        /// The state.
        name: String,
        /// The reason.
        reason: String,
    },
}

impl State {
    /// Returns the state's name: new, ongoing, escalating, regressed, resolved or archived.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Ongoing => "ongoing",
            Self::Escalating => "escalating",
            Self::Regressed => "regressed",
            Self::Resolved(_) => "resolved",
            Self::Archived(_) => "archived",
        }
    }

    /// Returns the fix or the condition as JSON, which the database keeps beside the name.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        match self {
            Self::Resolved(fix) => serde_json::to_string(fix).ok(),
            Self::Archived(condition) => serde_json::to_string(condition).ok(),
            _ => None,
        }
    }

    /// Reads a state from its name and its detail.
    ///
    /// # Errors
    /// Fails if the name is unknown, or the detail is missing or invalid.
    pub fn from_parts(name: &str, detail: Option<&str>) -> Result<Self, InvalidState> {
        let invalid = |error: serde_json::Error| InvalidState::Detail {
            name: name.to_owned(),
            reason: error.to_string(),
        };
        let detail = detail.unwrap_or_default();
        match name {
            "new" => Ok(Self::New),
            "ongoing" => Ok(Self::Ongoing),
            "escalating" => Ok(Self::Escalating),
            "regressed" => Ok(Self::Regressed),
            "resolved" => serde_json::from_str(detail).map(Self::Resolved).map_err(invalid),
            "archived" => serde_json::from_str(detail).map(Self::Archived).map_err(invalid),
            other => Err(InvalidState::Name(other.to_owned())),
        }
    }

    /// Returns whether people expect further crashes and work on them.
    #[must_use]
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Resolved(_) | Self::Archived(_))
    }
}

/// The state of a group, and the time since which the group has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: State,
    /// In microseconds since 1970.
    pub since: u64,
}

/// The kind of an event in the life of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum EventKind {
    /// The first report of the group.
    New,
    /// The first report of the group in a build that is newer than the others.
    FirstInBuild,
    /// A report in a build that should have the fix.
    Regressed,
    /// The share of hosts grows.
    Escalating,
    /// A user resolved the group.
    Resolved,
    /// A user archived the group.
    Archived,
    /// A user reopened the group, or the condition of its archive holds.
    Reopened,
}

impl EventKind {
    /// Returns the kind's name, as the database and messages have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::FirstInBuild => "first-in-build",
            Self::Regressed => "regressed",
            Self::Escalating => "escalating",
            Self::Resolved => "resolved",
            Self::Archived => "archived",
            Self::Reopened => "reopened",
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// An event that is announced once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The kind.
    pub kind: EventKind,
    /// The group.
    pub group: String,
    /// The build of the report that caused it, or the build that a user named.
    pub build: Option<String>,
    /// The key of the event. A second event with the same key is no event.
    pub once: String,
}

impl Event {
    /// Builds an event. `left` is the time since which the group had the state that it leaves. So a
    /// group that is resolved twice, and regresses twice in one build, has two events.
    fn new(kind: EventKind, group: &str, build: Option<&str>, left: u64) -> Self {
        Self {
            kind,
            group: group.to_owned(),
            build: build.map(str::to_owned),
            once: format!("{group}/{kind}/{}/{left}", build.unwrap_or_default()),
        }
    }
}

/// The result of a report, an action or the passing of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transition {
    /// The new state. `None`: the state stays.
    pub status: Option<Status>,
    /// The event to announce.
    pub event: Option<Event>,
    /// The reason for which the transition is undetermined, for the page: one sentence.
    pub undetermined: Option<String>,
}

/// An action of a user on a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Action {
    /// A build has the fix.
    Resolve {
        /// The build. `None`: the next build that first runs from now on.
        #[serde(default)]
        build: Option<String>,
    },
    /// Hide the group. At most one condition is given.
    Archive {
        /// Until the share of hosts grows.
        #[serde(default)]
        until_escalating: bool,
        /// Until the group has this number of further reports.
        #[serde(default)]
        more_reports: Option<u64>,
        /// Until a time, in microseconds since 1970.
        #[serde(default)]
        until: Option<u64>,
    },
    /// Show the group as ongoing again.
    Reopen,
}

/// The reason for which an action is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAction {
    /// The build's name is invalid.
    #[error("the name of a build has 1 to 255 bytes and no control characters")]
    Build,
    /// More than one condition is given.
    #[error("a group is archived until one condition: share of hosts, reports, or time")]
    Conditions,
    /// The condition holds already.
    #[error("the condition of the archive holds already: name a later time or more reports")]
    Past,
    /// The group is open.
    #[error("the group is open already")]
    Open,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_survive_the_database() {
        for state in [
            State::New,
            State::Ongoing,
            State::Escalating,
            State::Regressed,
            State::Resolved(Fix::Build {
                build: "2026.11.3".to_owned(),
                first_ran: None,
            }),
            State::Resolved(Fix::NextBuild { after: 7 }),
            State::Archived(ArchiveCondition::Forever),
            State::Archived(ArchiveCondition::UntilReports { total: 9 }),
        ] {
            let read = State::from_parts(state.name(), state.detail().as_deref()).unwrap();
            assert_eq!(read, state);
        }
    }

    #[test]
    fn unreadable_states_are_refused_with_a_reason() {
        let error = State::from_parts("resolved", None).unwrap_err().to_string();
        assert!(
            error.starts_with("the detail of the state `resolved` cannot be read"),
            "{error}"
        );
        let error = State::from_parts("muted", None).unwrap_err().to_string();
        assert_eq!(error, "the state `muted` is unknown to this hub: use a newer hub");
    }

    #[test]
    fn actions_are_read_from_json() {
        let action: Action = serde_json::from_str(r#"{"action": "resolve", "build": "2.1"}"#).unwrap();
        let build = Some("2.1".to_owned());
        assert_eq!(action, Action::Resolve { build });
        assert!(serde_json::from_str::<Action>(r#"{"action": "archive", "until_tomorrow": 1}"#).is_err());
    }
}
