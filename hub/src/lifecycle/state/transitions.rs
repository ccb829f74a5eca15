//! Transitions of a group on a report, on an action of a user, and with time.

use super::{Action, ArchiveCondition, Event, EventKind, Fix, InvalidAction, State, Status, Transition};
use crate::lifecycle::builds::{BuildOrder, Builds, order_of_times};

/// A day in microseconds.
const DAY: u64 = 24 * 3600 * 1_000_000;
/// The time for which a group is new or regressed.
const RECENT: u64 = 7 * DAY;
/// The least time for which a group is escalating.
const ESCALATION: u64 = DAY;
/// The longest name of a build, in bytes.
const MAX_BUILD: usize = 255;

/// The facts of a report that a transition depends on.
#[derive(Clone, Copy, Debug)]
pub struct ReportFacts<'a> {
    /// The group's identifier.
    pub group: &'a str,
    /// The time at which the hub received the report, in microseconds since 1970.
    pub time: u64,
    /// The build.
    pub build: &'a str,
    /// The number of reports of the group, with this one.
    pub reports: u64,
    /// The builds of the group's earlier reports.
    pub seen_builds: &'a [String],
}

/// The facts that a transition with time depends on.
#[derive(Clone, Copy, Debug)]
pub struct TickFacts<'a> {
    /// The group's identifier.
    pub group: &'a str,
    /// The time, in microseconds since 1970.
    pub now: u64,
    /// The number of reports of the group.
    pub reports: u64,
    /// Whether the share of hosts grows.
    pub is_escalating: bool,
    /// The build of most crashes in the current hour.
    pub build: Option<&'a str>,
}

fn to(state: State, since: u64) -> Option<Status> {
    Some(Status { state, since })
}

/// Returns the transition on a report. `status` is the state before it. `None`: the group is new.
#[must_use]
pub fn on_report(status: Option<&Status>, facts: &ReportFacts<'_>, builds: &Builds) -> Transition {
    let Some(status) = status else {
        let mut event = Event::new(EventKind::New, facts.group, None, 0);
        event.build = Some(facts.build.to_owned());
        return Transition {
            status: to(State::New, facts.time),
            event: Some(event),
            undetermined: None,
        };
    };
    match &status.state {
        State::Resolved(fix) => on_report_after_fix(fix, status.since, facts, builds),
        State::Archived(ArchiveCondition::UntilReports { total }) if facts.reports >= *total => {
            reopened(facts.group, facts.time, Some(facts.build), status.since)
        }
        State::Archived(_) => Transition::default(),
        _ => on_report_of_build(facts, builds),
    }
}

/// Returns the transition of a resolved group: a regression only in a build that has the fix.
fn on_report_after_fix(fix: &Fix, since: u64, facts: &ReportFacts<'_>, builds: &Builds) -> Transition {
    let order = order_to_fix(fix, facts.build, builds);
    let mut transition = Transition {
        status: remembered(fix, since, builds),
        ..Transition::default()
    };
    match order {
        BuildOrder::Same | BuildOrder::Newer => Transition {
            status: to(State::Regressed, facts.time),
            event: Some(Event::new(
                EventKind::Regressed,
                facts.group,
                Some(facts.build),
                since,
            )),
            undetermined: None,
        },
        BuildOrder::Older => transition,
        BuildOrder::Undetermined => {
            let build = facts.build;
            transition.undetermined = Some(match fix {
                Fix::Build { build: fixed, .. } => {
                    format!("No heartbeat orders build {build} and build {fixed}, which has the fix.")
                }
                Fix::NextBuild { .. } => format!("No heartbeat reports when build {build} first ran."),
            });
            transition
        }
    }
}

/// Returns the order of a build in relation to the build with the fix.
#[must_use]
fn order_to_fix(fix: &Fix, build: &str, builds: &Builds) -> BuildOrder {
    let time = builds.first_ran(build);
    match fix {
        Fix::Build { build: fixed, .. } if fixed == build => BuildOrder::Same,
        Fix::Build {
            build: fixed,
            first_ran,
        } => order_of_times(time, builds.first_ran(fixed).or(*first_ran)),
        Fix::NextBuild { after } => match time {
            Some(time) if time > *after => BuildOrder::Newer,
            Some(_) => BuildOrder::Older,
            None => BuildOrder::Undetermined,
        },
    }
}

/// Returns the state with the time at which the build of the fix first ran, if it is new or
/// earlier than known.
fn remembered(fix: &Fix, since: u64, builds: &Builds) -> Option<Status> {
    let Fix::Build { build, first_ran } = fix else {
        return None;
    };
    let time = builds.first_ran(build)?;
    if first_ran.is_some_and(|known| known <= time) {
        return None;
    }
    let fix = Fix::Build {
        build: build.clone(),
        first_ran: Some(time),
    };
    to(State::Resolved(fix), since)
}

/// Returns the transition of an open group: an event if the build is the newest, and new to the
/// group.
fn on_report_of_build(facts: &ReportFacts<'_>, builds: &Builds) -> Transition {
    let mut transition = Transition::default();
    if facts.seen_builds.is_empty() || facts.seen_builds.iter().any(|seen| seen == facts.build) {
        return transition;
    }
    let orders: Vec<BuildOrder> = facts
        .seen_builds
        .iter()
        .map(|seen| builds.order(facts.build, seen))
        .collect();
    if orders.contains(&BuildOrder::Older) {
        return transition;
    }
    if orders.contains(&BuildOrder::Undetermined) {
        transition.undetermined = Some(format!(
            "The order of build {} and the group's earlier builds is undetermined: no heartbeat names all.",
            facts.build
        ));
        return transition;
    }
    transition.event = Some(Event::new(
        EventKind::FirstInBuild,
        facts.group,
        Some(facts.build),
        0,
    ));
    transition
}

fn reopened(group: &str, now: u64, build: Option<&str>, left: u64) -> Transition {
    Transition {
        status: to(State::Ongoing, now),
        event: Some(Event::new(EventKind::Reopened, group, build, left)),
        undetermined: None,
    }
}

/// Returns the transition that an action of a user causes.
///
/// # Errors
/// Fails if the action has invalid values, or the group is open and shall be reopened.
pub fn on_action(
    group: &str,
    status: &Status,
    action: &Action,
    now: u64,
    reports: u64,
    builds: &Builds,
) -> Result<Transition, InvalidAction> {
    match action {
        Action::Resolve { build } => {
            let fix = match build {
                Some(build) => Fix::Build {
                    first_ran: builds.first_ran(checked(build)?),
                    build: build.clone(),
                },
                None => Fix::NextBuild { after: now },
            };
            Ok(Transition {
                status: to(State::Resolved(fix), now),
                event: Some(Event::new(
                    EventKind::Resolved,
                    group,
                    build.as_deref(),
                    status.since,
                )),
                undetermined: None,
            })
        }
        Action::Archive {
            until_escalating,
            more_reports,
            until,
        } => {
            let condition = match (until_escalating, more_reports, until) {
                (false, None, None) => ArchiveCondition::Forever,
                (true, None, None) => ArchiveCondition::UntilEscalating,
                (false, Some(0), None) => return Err(InvalidAction::Past),
                (false, Some(more), None) => ArchiveCondition::UntilReports {
                    total: reports.saturating_add(*more),
                },
                (false, None, Some(time)) if *time <= now => return Err(InvalidAction::Past),
                (false, None, Some(time)) => ArchiveCondition::UntilTime { time: *time },
                _ => return Err(InvalidAction::Conditions),
            };
            Ok(Transition {
                status: to(State::Archived(condition), now),
                event: Some(Event::new(EventKind::Archived, group, None, status.since)),
                undetermined: None,
            })
        }
        Action::Reopen if status.state.is_open() => Err(InvalidAction::Open),
        Action::Reopen => Ok(reopened(group, now, None, status.since)),
    }
}

fn checked(build: &str) -> Result<&str, InvalidAction> {
    let is_valid = !build.is_empty() && build.len() <= MAX_BUILD && !build.chars().any(char::is_control);
    is_valid.then_some(build).ok_or(InvalidAction::Build)
}

/// Returns the transition that time and the share of hosts cause.
#[must_use]
pub fn on_tick(status: &Status, facts: &TickFacts<'_>, builds: &Builds) -> Transition {
    let age = facts.now.saturating_sub(status.since);
    let silent = |state: State| Transition {
        status: to(state, facts.now),
        ..Transition::default()
    };
    let escalating = || Transition {
        status: to(State::Escalating, facts.now),
        event: Some(Event::new(
            EventKind::Escalating,
            facts.group,
            facts.build,
            status.since,
        )),
        undetermined: None,
    };
    match &status.state {
        State::New | State::Ongoing | State::Regressed if facts.is_escalating => escalating(),
        State::New | State::Regressed if age >= RECENT => silent(State::Ongoing),
        State::Escalating if !facts.is_escalating && age >= ESCALATION => silent(State::Ongoing),
        State::Archived(ArchiveCondition::UntilEscalating) if facts.is_escalating => escalating(),
        State::Archived(ArchiveCondition::UntilTime { time }) if *time <= facts.now => {
            reopened(facts.group, facts.now, None, status.since)
        }
        State::Archived(ArchiveCondition::UntilReports { total }) if facts.reports >= *total => {
            reopened(facts.group, facts.now, None, status.since)
        }
        State::Resolved(fix) => Transition {
            status: remembered(fix, status.since, builds),
            ..Transition::default()
        },
        _ => Transition::default(),
    }
}

#[cfg(test)]
mod tests;
