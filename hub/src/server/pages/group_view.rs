//! The data that the page of a group shows.

use super::layout::PageFrame;
use super::trend::Trend;

/// The page of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupPage {
    /// The frame of the page.
    pub frame: PageFrame,
    /// The group's id.
    pub id: String,
    /// The title: the signature in words.
    pub title: String,
    /// The head of the signature, such as `SIGSEGV null-deref`.
    pub head: String,
    /// The place, such as `ledger.cc:41`.
    pub place: Option<String>,
    /// The service.
    pub service: String,
    /// The state.
    pub state: String,
    /// More about the state, such as `fixed in 2026.11.4`.
    pub state_detail: Option<String>,
    /// The time of the last change of the state.
    pub state_since: i64,
    /// The responsible person.
    pub assignee: Option<String>,
    /// The number of reports.
    pub reports: u64,
    /// The number of hosts with such crashes.
    pub hosts: u64,
    /// The number of hosts that run the service.
    pub hosts_reporting: Option<u64>,
    /// The number of stored bundles.
    pub bundles: u64,
    /// The time of the first crash.
    pub first_seen: i64,
    /// The build of the first crash.
    pub first_build: String,
    /// The time at which a host first ran that build. `None`: unknown.
    pub first_build_ran: Option<i64>,
    /// The time of the last crash.
    pub last_seen: i64,
    /// The build of the last crash.
    pub last_build: String,
    /// Reports by hour and build.
    pub trend: Trend,
    /// Values that are more frequent in this group than elsewhere.
    pub values: Vec<OverValue>,
    /// Builds, in the order in which hosts first ran them.
    pub builds: Vec<BuildRow>,
    /// The explanation of the grouping, frame by frame.
    pub explanation: Explanation,
    /// The ways into the crash.
    pub ways: Vec<CrashWay>,
    /// Similar groups.
    pub similar: Vec<SimilarGroup>,
    /// Moves of stack keys between groups.
    pub moves: Vec<KeyMove>,
    /// Changes of the state.
    pub changes: Vec<StateChange>,
    /// Comments, oldest first.
    pub comments: Vec<Comment>,
    /// The latest crashes.
    pub crashes: Vec<CrashRow>,
    /// Build ids without debug information.
    pub missing_symbols: Vec<String>,
    /// Now, in microseconds since 1970.
    pub now: i64,
}

/// A value that is more frequent in a group than outside of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OverValue {
    /// The field: `build`, `host`, `kernel`, `cpu`, or the name of a label.
    pub field: String,
    /// The value.
    pub value: String,
    /// The reports with this value, inside the group.
    pub inside: u64,
    /// All reports of the group that have the field.
    pub inside_all: u64,
    /// The reports with this value, of the service's other groups.
    pub outside: u64,
    /// All reports of these groups that have the field.
    pub outside_all: u64,
}

/// A build of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildRow {
    /// The build.
    pub build: String,
    /// The address of the groups that crashed with it.
    pub address: String,
    /// The time at which a host first ran it. `None`: unknown, so the order is undetermined.
    pub first_ran: Option<i64>,
    /// The reports of the group with this build.
    pub reports: u64,
    /// The hosts that crashed with this build.
    pub hosts: u64,
    /// The hosts that ran it.
    pub hosts_ran: Option<u64>,
    /// Whether the group was first seen in it.
    pub is_first: bool,
}

/// The explanation of a grouping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// The version of the rules.
    pub version: u32,
    /// The whole signature.
    pub signature: String,
    /// The frames, innermost first.
    pub frames: Vec<ExplainedFrame>,
    /// The same crashes by the version that is computed beside. `None`: there is none.
    pub next: Option<NextSignatures>,
}

/// The groups of a group's crashes by another version of the signatures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextSignatures {
    /// The version.
    pub version: u32,
    /// The time at which it replaces the other one.
    pub switch_at: i64,
    /// The groups by that version: signature and reports.
    pub groups: Vec<(String, u64)>,
    /// Other groups that would become one with this one, or with a part of it: id and title.
    pub merged_with: Vec<(String, String)>,
}

/// A frame, and its part in the signature.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExplainedFrame {
    /// The function, or module and offset.
    pub frame: String,
    /// The normalized text in the signature. `None`: the frame is not a part of it.
    pub kept_as: Option<String>,
    /// The reason: `prefix`, `irrelevant`, `end`, `after the end`, or a rule.
    pub reason: String,
    /// The rule of a user that decided.
    pub rule: Option<String>,
}

/// A way into a crash: the last distinct call edges before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashWay {
    /// The pairs of caller and callee, newest first.
    pub edges: Vec<(String, String)>,
    /// The number of bundles that came this way.
    pub bundles: u64,
    /// The id of one such crash.
    pub crash: String,
}

/// A group with a similar stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimilarGroup {
    /// The group's id.
    pub id: String,
    /// The title.
    pub title: String,
    /// The similarity from 0 to 1.
    pub similarity: f64,
}

/// A move of a stack key between groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyMove {
    /// The time.
    pub time: i64,
    /// The group before: id and title.
    pub from: (String, String),
    /// The group after: id and title.
    pub to: (String, String),
    /// The reason: `symbols`, `rules` or `version`.
    pub reason: String,
    /// The number of reports that moved.
    pub reports: u64,
}

/// A change of a group's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StateChange {
    /// The time.
    pub time: i64,
    /// The event: `new`, `first-in-build`, `regressed`, `escalating`, `resolved`, …
    pub event: String,
    /// The build.
    pub build: Option<String>,
    /// The person. `None`: a report caused the change.
    pub actor: Option<String>,
    /// The report that caused it.
    pub report: Option<String>,
}

/// A comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comment {
    /// The time.
    pub time: i64,
    /// The author.
    pub author: String,
    /// The text.
    pub text: String,
}

/// A crash in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CrashRow {
    /// The id of the report.
    pub id: String,
    /// The time of the crash.
    pub time: i64,
    /// The host.
    pub host: String,
    /// The build.
    pub build: String,
    /// The state of the bundle: `none`, `wanted`, `uploading`, `checking`, `stored`, `refused`,
    /// `expired`.
    pub bundle: String,
    /// Whether the bundle is kept for ever.
    pub is_pinned: bool,
    /// The labels, as `key=value`.
    pub labels: Vec<String>,
}
