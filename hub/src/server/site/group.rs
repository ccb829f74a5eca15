//! The page of a group.

use super::frame::frame;
use super::groups::{head, short_title};
use super::key_view::{frames, grouping_of, place};
use super::over_values::over_values;
use crate::analysis::Analysis;
use crate::clock;
use crate::database::builds::BuildRow as Build;
use crate::database::group_page::BuildCounts;
use crate::database::groups::GroupRow;
use crate::database::listing::{CrashFilter, ListedCrash};
use crate::database::rules::GroupingPolicy;
use crate::database::stack_keys::StackKey;
use crate::error::Result;
use crate::grouping::normalize::normalize;
use crate::grouping::{Decision, similar, ways};
use crate::hub::Hub;
use crate::ingest::key_group::KeyGrouping;
use crate::server::caller::Caller;
use crate::server::pages::group::{
    self, BuildRow, Comment, CrashRow, CrashWay, ExplainedFrame, Explanation, GroupPage, KeyMove,
    NextSignatures, SimilarGroup, StateChange,
};
use crate::server::pages::trend::Trend;
use crate::stack::Frame;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use backtrail_report::CrashReport;
use std::sync::Arc;

/// Hours of the trend: 28 days.
const HOURS: i64 = 28 * 24;
/// Hours of a bar of the trend. Bars of an hour would be too thin to see.
const HOURS_OF_BAR: i64 = 6;
/// Reports that the search for over-represented values reads, inside and outside.
const READ_REPORTS: i64 = 1000;
/// Analyses that the ways into the crash are counted from.
const READ_ANALYSES: i64 = 20;
/// Rows of a table.
const ROWS: i64 = 50;

/// Returns the page. A group whose keys moved leads to the group that has them.
///
/// # Errors
/// Fails if there is no such group, or the database or the object store fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Response> {
    let row = hub.database.group(&id).await?;
    if row.id != id {
        return Ok(Redirect::to(&format!("/g/{}", row.id)).into_response());
    }
    let now = clock::now();
    let database = &hub.database;
    let keys = database.group_keys(&row.id, ROWS).await?;
    let (builds, counts) = database.group_builds(&row).await?;
    let (inside, outside) = database.reports_inside_and_outside(&row, READ_REPORTS).await?;
    let filter = CrashFilter {
        group: Some(row.id.clone()),
        limit: ROWS,
        ..CrashFilter::default()
    };
    let (crashes, _) = database.list_crashes(&filter).await?;
    let running = database.hosts_of_services().await?;
    let last_bar = now.div_euclid(clock::HOUR * HOURS_OF_BAR);
    let first_hour = (last_bar + 1) * HOURS_OF_BAR - HOURS;
    let policy = database.grouping_policy().await?;
    let view = GroupPage {
        frame: frame(&caller, &row.title),
        head: row.signature.split(" | ").next().unwrap_or_default().to_owned(),
        place: keys.first().and_then(|key| place(key, &policy)),
        state: row.state_name.clone(),
        state_detail: row.undetermined.clone(),
        state_since: row.state_since,
        assignee: row.assignee.clone(),
        reports: row.reports.unsigned_abs(),
        hosts: row.hosts.unsigned_abs(),
        hosts_reporting: running.get(&row.service).copied(),
        bundles: row.bundles.unsigned_abs(),
        first_seen: row.first_seen,
        first_build: row.first_build.clone(),
        first_build_ran: builds
            .iter()
            .find(|build| build.build == row.first_build)
            .and_then(|build| build.first_ran),
        last_seen: row.last_seen,
        last_build: row.last_build.clone(),
        trend: trend(&hub, &row, &builds, first_hour).await?,
        values: over_values(&inside, &outside),
        builds: build_rows(&row, &builds, &counts),
        explanation: explanation(&hub, &row, keys.first(), &policy).await?,
        ways: ways_into(&hub, &row.id).await?,
        similar: similar_groups(&hub, &row, keys.first()).await?,
        moves: moves(&hub, &row).await?,
        changes: changes(&hub, &row.id).await?,
        comments: comments(&hub, &row.id).await?,
        crashes: crashes.iter().map(|crash| crash_row(crash, &inside)).collect(),
        missing_symbols: missing_symbols(&keys),
        id: row.id,
        title: short_title(&row.title, head(&row.signature)).to_owned(),
        service: row.service,
        now,
    };
    Ok(group::render(&view).into_response())
}

async fn trend(hub: &Hub, row: &GroupRow, builds: &[Build], first_hour: i64) -> Result<Trend> {
    let found = hub.database.group_trend(&row.id, first_hour).await?;
    let order = |build: &String| {
        builds
            .iter()
            .position(|one| one.build == *build)
            .unwrap_or(usize::MAX)
    };
    let length = usize::try_from(HOURS / HOURS_OF_BAR).unwrap_or_default();
    let mut counted: Vec<(String, Vec<u64>)> = found
        .into_iter()
        .map(|(build, hours)| {
            let mut counts = vec![0; length];
            for (hour, reports) in hours {
                let at = usize::try_from((hour - first_hour).div_euclid(HOURS_OF_BAR)).ok();
                if let Some(count) = at.and_then(|at| counts.get_mut(at)) {
                    *count += reports;
                }
            }
            (build, counts)
        })
        .collect();
    counted.sort_by_key(|(build, _)| order(build));
    Ok(Trend {
        start: first_hour * clock::HOUR,
        step: clock::HOUR * HOURS_OF_BAR,
        builds: counted,
    })
}

/// Returns the address of the list of a service's groups with crashes of a build.
fn address(service: &str, build: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("service", service).append_pair("build", build);
    format!("/?{}", query.finish())
}

fn build_rows(group: &GroupRow, builds: &[Build], counts: &BuildCounts) -> Vec<BuildRow> {
    let row = |build: &Build| {
        let (reports, hosts) = counts.get(&build.build).copied().unwrap_or_default();
        BuildRow {
            address: address(&group.service, &build.build),
            build: build.build.clone(),
            first_ran: build.first_ran,
            reports,
            hosts,
            hosts_ran: (build.hosts > 0).then_some(build.hosts.unsigned_abs()),
            is_first: build.build == group.first_build,
        }
    };
    builds.iter().map(row).collect()
}

async fn explanation(
    hub: &Hub,
    row: &GroupRow,
    key: Option<&StackKey>,
    policy: &GroupingPolicy,
) -> Result<Explanation> {
    let mut explained = Explanation {
        version: u32::try_from(row.grouping_version).unwrap_or_default(),
        signature: row.signature.clone(),
        frames: Vec::new(),
        next: next_signatures(hub, row, policy).await?,
    };
    let Some(key) = key else {
        return Ok(explained);
    };
    let KeyGrouping { grouping, frames } = grouping_of(key, row.grouping_version, policy);
    let rules = policy.rules(&key.service).rules();
    let rule_of = |decision: &Decision| match decision {
        Decision::Ignored { rule } | Decision::IgnoredUpTo { rule } | Decision::GroupedBy { rule } => {
            rules.get(rule.checked_sub(1)?).map(ToString::to_string)
        }
        _ => None,
    };
    explained.frames = grouping
        .decisions
        .iter()
        .map(|decision| {
            let frame = frames.get(decision.frame);
            ExplainedFrame {
                frame: frame.map(shown).unwrap_or_default(),
                kept_as: decision.decision.is_kept().then(|| decision.name.clone()),
                reason: decision.decision.sentence(),
                rule: rule_of(&decision.decision),
            }
        })
        .collect();
    Ok(explained)
}

/// Returns the groups of a group's crashes by the version beside, if there is one.
async fn next_signatures(
    hub: &Hub,
    row: &GroupRow,
    policy: &GroupingPolicy,
) -> Result<Option<NextSignatures>> {
    let Some(next) = policy.next else {
        return Ok(None);
    };
    let groups = hub.database.next_groups_of(&row.id, ROWS).await?;
    let others = hub.database.merged_with(&row.id, ROWS).await?;
    Ok(Some(NextSignatures {
        version: u32::try_from(next.version.number()).unwrap_or_default(),
        switch_at: next.switch_at,
        groups: groups
            .into_iter()
            .map(|group| (group.signature, group.reports.unsigned_abs()))
            .collect(),
        merged_with: others.into_iter().map(|group| (group.id, group.title)).collect(),
    }))
}

/// Returns a frame as a person reads it.
fn shown(frame: &Frame) -> String {
    if let Some(function) = &frame.function {
        return function.clone();
    }
    let module = frame.module.as_deref().unwrap_or("unknown code");
    let name = module.rsplit('/').next().unwrap_or(module);
    match frame.offset {
        Some(offset) => format!("{name}+{offset:#x}"),
        None => name.to_owned(),
    }
}

/// Counts the ways into the crash over the newest bundles of a group.
async fn ways_into(hub: &Hub, group: &str) -> Result<Vec<CrashWay>> {
    let filter = CrashFilter {
        group: Some(group.to_owned()),
        only_stored: true,
        limit: READ_ANALYSES,
        ..CrashFilter::default()
    };
    let (stored, _) = hub.database.list_crashes(&filter).await?;
    let mut crashes = Vec::with_capacity(stored.len());
    for crash in &stored {
        let Some(bytes) = hub.objects.get(&crate::objects::analysis(&crash.id)).await? else {
            continue;
        };
        let Ok(analysis) = serde_json::from_slice::<Analysis>(&bytes) else {
            continue;
        };
        let edges = analysis.edges.iter().map(|edge| ways::CallEdge {
            caller: normalize(edge.caller.as_deref().unwrap_or_default()),
            callee: normalize(&edge.callee),
        });
        crashes.push((crash.id.as_str(), edges.collect::<Vec<_>>()));
    }
    let counted = ways::count(crashes.iter().map(|(id, edges)| (*id, edges.as_slice())));
    let way = |count: &ways::PathCount| CrashWay {
        edges: count
            .path
            .edges
            .iter()
            .map(|edge| (edge.caller.clone(), edge.callee.clone()))
            .collect(),
        bundles: count.crashes,
        crash: count.examples.first().cloned().unwrap_or_default(),
    };
    Ok(counted.paths.iter().map(way).collect())
}

async fn similar_groups(hub: &Hub, row: &GroupRow, key: Option<&StackKey>) -> Result<Vec<SimilarGroup>> {
    let Some(key) = key else {
        return Ok(Vec::new());
    };
    let names = |key: &StackKey| {
        frames(key)
            .iter()
            .map(|frame| normalize(&shown(frame)))
            .collect::<Vec<_>>()
    };
    let others = hub.database.other_groups(row, 200).await?;
    let stacks: Vec<_> = others
        .iter()
        .map(|(id, _, key)| (id.as_str(), names(key)))
        .collect();
    let found = similar::similar(
        &names(key),
        stacks.iter().map(|(id, names)| (*id, names.as_slice())),
    );
    let title = |id: &str| {
        others
            .iter()
            .find(|(other, ..)| other == id)
            .map(|(_, title, _)| title.clone())
    };
    Ok(found
        .into_iter()
        .map(|suggestion| SimilarGroup {
            title: title(&suggestion.group).unwrap_or_default(),
            id: suggestion.group,
            similarity: suggestion.similarity,
        })
        .collect())
}

async fn moves(hub: &Hub, row: &GroupRow) -> Result<Vec<KeyMove>> {
    let mut shown = Vec::new();
    for found in hub.database.moves(&row.id, ROWS).await? {
        // The first symbols of a crash end its group by addresses. That is no news.
        if found.from != row.id
            && hub
                .database
                .group(&found.from)
                .await
                .is_ok_and(|group| group.id == row.id)
        {
            continue;
        }
        let mut pair = Vec::with_capacity(2);
        for id in [found.from, found.to] {
            // The group of a moved key may be gone.
            let title = if id == row.id {
                row.title.clone()
            } else {
                hub.database
                    .group(&id)
                    .await
                    .map_or_else(|_| id.clone(), |group| group.title)
            };
            pair.push((id, title));
        }
        if let (Some(to), Some(from)) = (pair.pop(), pair.pop()) {
            shown.push(KeyMove {
                time: found.time,
                from,
                to,
                reason: found.reason,
                reports: found.reports.unsigned_abs(),
            });
        }
    }
    Ok(shown)
}

async fn changes(hub: &Hub, group: &str) -> Result<Vec<StateChange>> {
    let rows = hub.database.changes(group, ROWS).await?;
    let change = |row: crate::database::changes::ChangeRow| StateChange {
        time: row.time,
        event: row.event,
        build: row.build,
        actor: row.actor,
        report: row.report,
    };
    Ok(rows.into_iter().map(change).collect())
}

async fn comments(hub: &Hub, group: &str) -> Result<Vec<Comment>> {
    let rows = hub.database.comments(group, 500).await?;
    let comment = |row: crate::database::group_page::CommentRow| Comment {
        time: row.time,
        author: row.author,
        text: row.text,
    };
    Ok(rows.into_iter().map(comment).collect())
}

/// Returns a crash in the list. Its labels come from the newest reports.
fn crash_row(crash: &ListedCrash, reports: &[CrashReport]) -> CrashRow {
    let report = reports.iter().find(|report| report.id.as_str() == crash.id);
    let labels = report.into_iter().flat_map(|report| &report.labels);
    CrashRow {
        labels: labels.map(|(name, value)| format!("{name}={value}")).collect(),
        id: crash.id.clone(),
        time: crash.time,
        host: crash.host.clone(),
        build: crash.build.clone(),
        bundle: crash.bundle.name().to_owned(),
        is_pinned: crash.is_pinned,
    }
}

fn missing_symbols(keys: &[StackKey]) -> Vec<String> {
    let analyzed = keys.iter().filter_map(|key| key.frames.as_ref());
    let mut missing: Vec<String> = analyzed
        .flatten()
        .filter(|frame| frame.function.is_none())
        .filter_map(|frame| frame.build_id.clone())
        .collect();
    missing.sort_unstable();
    missing.dedup();
    missing
}
