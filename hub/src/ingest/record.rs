//! Applies entries of the journal to the database: counts, groups, states and requests for bundles.

use super::entry::Entry;
use super::journal::Apply;
use super::outbox::Outbox;
use super::{key_group, samples, states};
use crate::clock;
use crate::database::groups::{self, GroupRow};
use crate::database::reports::{self, BundleState, ReportRow};
use crate::database::stack_keys::{self, StackKey};
use crate::database::{builds, jobs, rules};
use crate::error::{Error, Result};
use crate::grouping::signature::{self, Grouping};
use crate::objects::hexadecimal;
use crate::stack::Frame;
use backtrail_report::{CrashReport, ReportId, WantReason};
use sha2::{Digest, Sha256};
use sqlx::AnyConnection;

/// The time for which a bundle that the hub asked for counts as on its way.
const ON_ITS_WAY: i64 = clock::HOUR;
/// The time after which a new group is announced, even if its bundle has not come.
const ANNOUNCE_AFTER: i64 = 60 * clock::SECOND;
/// Bytes of a stack key.
const KEY_BYTES: usize = 20;

/// The result of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The report is counted.
    Report(Recorded),
    /// The host or its build is noted.
    Noted,
}

/// A counted report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The report.
    pub id: ReportId,
    /// The group, unless it is provisional.
    pub group: Option<String>,
    /// The reason for which the hub wants the bundle.
    pub wants: Option<WantReason>,
}

/// Applies entries of the journal.
#[derive(Clone, Debug)]
pub struct Recorder {
    outbox: Outbox,
}

impl Recorder {
    /// Returns what applies entries, and announces events.
    #[must_use]
    pub const fn new(outbox: Outbox) -> Self {
        Self { outbox }
    }

    /// Returns the outbox of events.
    #[must_use]
    pub const fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Returns the address for links.
    #[must_use]
    pub fn public_url(&self) -> &str {
        self.outbox.public_url()
    }
}

impl Apply for Recorder {
    type Outcome = Outcome;

    async fn apply(&self, connection: &mut AnyConnection, entry: &Entry, segment: &str) -> Result<Outcome> {
        match entry {
            Entry::Report { received, report } => {
                let recorded = record(connection, &self.outbox, report, *received, segment).await?;
                Ok(Outcome::Report(recorded))
            }
            Entry::FirstCrash { service, build, time } => {
                builds::note_crash(connection, service, build, *time).await?;
                Ok(Outcome::Noted)
            }
            Entry::Host {
                time,
                host,
                collector,
            } => {
                builds::note_host(connection, host, Some(collector), *time).await?;
                Ok(Outcome::Noted)
            }
            Entry::Run {
                time,
                host,
                service,
                build,
                since,
            } => {
                let _ = builds::note_run(connection, service, build, host, *since, *time).await?;
                Ok(Outcome::Noted)
            }
        }
    }
}

/// The group of a report's key.
struct KeyFacts {
    group: String,
    /// Whether a bundle of the key was analyzed.
    is_analyzed: bool,
    /// Whether the report made the group.
    is_new_group: bool,
}

/// Counts a report, applies it to its group, and decides whether its bundle is wanted.
async fn record(
    connection: &mut AnyConnection,
    outbox: &Outbox,
    report: &CrashReport,
    received: i64,
    segment: &str,
) -> Result<Recorded> {
    let time = i64::try_from(report.time).unwrap_or(received);
    let key = stack_key(report);
    let row = report_row(report, &key, time, received, segment)?;
    if !reports::insert(connection, &row).await? {
        // The index names the first segment, as one does that is computed from all of them.
        reports::note_segment(connection, &row).await?;
        return known_report(connection, report).await;
    }
    builds::note_host(connection, &report.host, None, time).await?;
    builds::note_crash(connection, &report.service, &report.build, time).await?;
    let KeyFacts {
        group,
        is_analyzed,
        is_new_group,
    } = group_of(connection, report, &key, time, received).await?;
    let series =
        stack_keys::count_in_series(connection, &key, &group, &report.build, &report.host, time).await?;
    let group = groups::count(connection, &group, time, &report.build, series.is_new_host).await?;
    if is_new_group && !group.is_provisional {
        states::announce(connection, outbox, &group.id, Some(&row), received).await?;
    } else if !is_new_group {
        states::apply_report(connection, outbox, &group, &row, series.is_new_build).await?;
    }
    let wants = if report.bundle_size.is_none() {
        None
    } else {
        let facts = (is_analyzed, group.reports, received);
        samples::choose(connection, &group.id, report, facts).await?
    };
    if let Some(reason) = wants.and_then(samples::reason_name) {
        reports::set_wanted(connection, &row.id, &reason, received + ON_ITS_WAY).await?;
    }
    Ok(Recorded {
        id: report.id.clone(),
        group: (!group.is_provisional).then_some(group.id),
        wants,
    })
}

/// Returns the answer to a report that was sent again.
async fn known_report(connection: &mut AnyConnection, report: &CrashReport) -> Result<Recorded> {
    let row = reports::find(connection, report.id.as_str()).await?;
    let row = row.ok_or_else(|| Error::Absent(format!("report {}", report.id)))?;
    let key = stack_keys::find(connection, &row.key).await?;
    let group = match key {
        Some(key) => groups::find(connection, &key.group).await?,
        None => None,
    };
    Ok(Recorded {
        id: report.id.clone(),
        group: group.filter(|group| !group.is_provisional).map(|group| group.id),
        wants: (row.bundle == BundleState::Wanted)
            .then(|| samples::reason_named(row.bundle_reason.as_deref())),
    })
}

/// Returns the group of a report's key. A new key gets a provisional group by its addresses.
async fn group_of(
    connection: &mut AnyConnection,
    report: &CrashReport,
    key: &str,
    time: i64,
    received: i64,
) -> Result<KeyFacts> {
    if let Some((group, is_analyzed)) = stack_keys::count(connection, key, time).await? {
        return Ok(KeyFacts {
            group,
            is_analyzed,
            is_new_group: false,
        });
    }
    let addresses = address_frames(report);
    let cause = key_group::cause_of_report(report);
    let policy = rules::policy(connection).await?;
    let rules = policy.rules(&report.service);
    let grouping = signature::group_with(policy.version, &cause, &addresses, rules);
    let group = new_group(
        &report.service,
        i64::from(report.signal),
        &grouping,
        (time, received),
        &report.build,
    );
    let words = group_words(&group, &addresses);
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let is_new = groups::insert(connection, &group, &words).await?;
    if is_new && group.is_provisional {
        jobs::add(
            connection,
            jobs::JobKind::Announce,
            &group.id,
            received + ANNOUNCE_AFTER,
        )
        .await?;
    }
    let new_key = StackKey {
        key: key.to_owned(),
        service: report.service.clone(),
        signal: i64::from(report.signal),
        group: group.id.clone(),
        addresses,
        frames: None,
        cause: None,
        report_cause: serde_json::to_string(&cause).ok(),
        reports: 1,
    };
    if !stack_keys::insert(connection, &new_key, time).await? {
        // Another hub added the key in between.
        let found = stack_keys::count(connection, key, time).await?;
        let (group, is_analyzed) = found.ok_or_else(|| Error::Absent(format!("stack key {key}")))?;
        return Ok(KeyFacts {
            group,
            is_analyzed,
            is_new_group: false,
        });
    }
    key_group::note_next(connection, &new_key, &policy).await?;
    Ok(KeyFacts {
        group: group.id,
        is_analyzed: false,
        is_new_group: is_new,
    })
}

/// Returns the row of a new group: when it was first seen, and when it is made.
#[must_use]
pub fn new_group(
    service: &str,
    signal: i64,
    grouping: &Grouping,
    (time, now): (i64, i64),
    build: &str,
) -> GroupRow {
    GroupRow {
        id: signature::group_id(service, grouping),
        service: service.to_owned(),
        title: grouping.title.clone(),
        signature: grouping.signature.clone(),
        grouping_version: grouping.version.number(),
        is_provisional: grouping.provisional,
        signal,
        state_name: "new".to_owned(),
        state: String::new(),
        state_since: now,
        undetermined: None,
        assignee: None,
        first_seen: time,
        last_seen: time,
        first_build: build.to_owned(),
        last_build: build.to_owned(),
        reports: 0,
        hosts: 0,
        bundles: 0,
    }
}

/// Returns the texts by whose words the search finds a group.
#[must_use]
pub fn group_words(group: &GroupRow, frames: &[Frame]) -> Vec<String> {
    let mut texts = vec![
        group.title.clone(),
        group.signature.clone(),
        group.service.clone(),
    ];
    for frame in frames.iter().take(40) {
        texts.extend(
            [&frame.function, &frame.file, &frame.module]
                .into_iter()
                .flatten()
                .cloned(),
        );
    }
    texts
}

/// Returns the key of the crashes at the same addresses, of one service and signal.
#[must_use]
pub fn stack_key(report: &CrashReport) -> String {
    let signature = report.signature();
    let place = match &signature {
        Some(signature) => ("a", signature.as_str()),
        // Without a stack, the program is all that is known.
        None => ("e", &*report.executable),
    };
    let signal = report.signal.to_string();
    let mut digest = Sha256::new();
    for field in [&*report.service, &signal, place.0, place.1] {
        digest.update((field.len() as u64).to_le_bytes());
        digest.update(field);
    }
    hexadecimal(&digest.finalize()[..KEY_BYTES])
}

/// Returns the frames of a report's stack, which have addresses only.
fn address_frames(report: &CrashReport) -> Vec<Frame> {
    let frame = |frame: &backtrail_report::AddressFrame| Frame {
        module: Some(frame.module.clone()),
        build_id: frame.build_id.clone(),
        offset: Some(frame.offset),
        ..Frame::default()
    };
    report.frames.iter().map(frame).collect()
}

fn report_row(report: &CrashReport, key: &str, time: i64, received: i64, segment: &str) -> Result<ReportRow> {
    let json = serde_json::to_string(report).map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(ReportRow {
        id: report.id.to_string(),
        key: key.to_owned(),
        time,
        received,
        host: report.host.clone(),
        service: report.service.clone(),
        build: report.build.clone(),
        report: json,
        bundle: BundleState::None,
        bundle_until: None,
        bundle_reason: None,
        bundle_problem: None,
        bundle_sha256: None,
        bundle_size: None,
        is_pinned: false,
        segment: segment.to_owned(),
    })
}
