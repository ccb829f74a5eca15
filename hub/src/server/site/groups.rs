//! The list of groups.

use super::frame::frame;
use super::key_view::place;
use crate::clock;
use crate::database::groups::GroupRow as Row;
use crate::error::Result;
use crate::hub::Hub;
use crate::server::api::groups::ListParameters;
use crate::server::api::json::Parameters;
use crate::server::caller::Caller;
use crate::server::pages::groups::{self, Filter, GroupRow, GroupsPage};
use axum::Extension;
use axum::extract::State;
use maud::Markup;
use std::collections::HashMap;
use std::sync::Arc;

/// The states, with their labels.
const STATES: [(&str, &str); 7] = [
    ("", "all"),
    ("new", "new"),
    ("ongoing", "ongoing"),
    ("escalating", "escalating"),
    ("regressed", "regressed"),
    ("resolved", "resolved"),
    ("archived", "archived"),
];
/// The orders, with their labels.
const ORDERS: [(&str, &str); 4] = [
    ("last-seen", "last crash"),
    ("first-seen", "first crash"),
    ("reports", "reports"),
    ("hosts", "hosts"),
];

/// Returns the page.
///
/// # Errors
/// Fails if a parameter is malformed, or the database fails.
pub async fn page(
    State(hub): State<Arc<Hub>>,
    Extension(caller): Extension<Caller>,
    Parameters(parameters): Parameters<ListParameters>,
) -> Result<Markup> {
    let now = clock::now();
    let (rows, next) = hub.database.list_groups(&parameters.filter()?).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    let days = hub
        .database
        .series(&ids, 24, now.div_euclid(clock::DAY) - 27)
        .await?;
    let hours = hub
        .database
        .series(&ids, 1, now.div_euclid(clock::HOUR) - 23)
        .await?;
    let keys = hub.database.largest_keys(&ids).await?;
    let policy = hub.database.grouping_policy().await?;
    let services = hub.database.services().await?;
    let running = hub.database.hosts_of_services().await?;
    let mut frame = frame(&caller, "Crashes");
    frame.search.clone_from(&parameters.q);
    let is_first = parameters.after.is_empty();
    let view = GroupsPage {
        total: (is_first && next.is_none()).then_some(rows.len() as u64),
        groups: rows
            .into_iter()
            .map(|row| {
                let series = |all: &HashMap<String, Vec<u64>>, length| {
                    all.get(&row.id).cloned().unwrap_or_else(|| vec![0; length])
                };
                let (day, month) = (series(&hours, 24), series(&days, 28));
                let hosts = running.get(&row.service).copied();
                let place = keys.get(&row.id).and_then(|key| place(key, &policy));
                GroupRow {
                    place,
                    ..group_row(row, day, month, hosts)
                }
            })
            .collect(),
        filters: filters(&parameters, &services),
        next: next.map(|next| address(&parameters, &next)),
        first: (!is_first).then(|| address(&parameters, "")),
        frame,
        now,
    };
    Ok(groups::render(&view))
}

fn group_row(row: Row, day: Vec<u64>, month: Vec<u64>, hosts_reporting: Option<u64>) -> GroupRow {
    let head = head(&row.signature).to_owned();
    GroupRow {
        title: short_title(&row.title, &head).to_owned(),
        head,
        id: row.id,
        place: None,
        state: row.state_name,
        service: row.service,
        is_provisional: row.is_provisional,
        day,
        month,
        reports: row.reports.unsigned_abs(),
        hosts: row.hosts.unsigned_abs(),
        hosts_reporting,
        first_seen: row.first_seen,
        first_build: row.first_build,
        last_seen: row.last_seen,
        assignee: row.assignee,
    }
}

/// Returns the cause, with which a signature begins.
#[must_use]
pub fn head(signature: &str) -> &str {
    signature.split(" | ").next().unwrap_or_default()
}

/// Returns a title without the cause, beside which it is shown.
#[must_use]
pub fn short_title<'a>(title: &'a str, head: &str) -> &'a str {
    let rest = title
        .strip_prefix(head)
        .and_then(|rest| rest.strip_prefix(" in "));
    rest.unwrap_or(title)
}

fn filters(parameters: &ListParameters, services: &[String]) -> Vec<Filter> {
    let fixed = |name: &str, label: &str, choices: &[(&str, &str)], chosen: &str| Filter {
        name: name.to_owned(),
        label: label.to_owned(),
        choices: choices
            .iter()
            .map(|&(value, label)| (value.to_owned(), label.to_owned()))
            .collect(),
        chosen: chosen.to_owned(),
    };
    let mut all = vec![(String::new(), "all".to_owned())];
    all.extend(services.iter().map(|service| (service.clone(), service.clone())));
    let mut filters = vec![
        Filter {
            name: "service".to_owned(),
            label: "Service".to_owned(),
            choices: all,
            chosen: parameters.service.clone(),
        },
        fixed("state", "State", &STATES, &parameters.state),
        fixed("sort", "Order", &ORDERS, &parameters.sort),
    ];
    // Builds, hosts and functions are too many for a list. Links of other pages choose one.
    for (name, label, chosen) in [
        ("build", "Build", &parameters.build),
        ("host", "Host", &parameters.host),
        ("function", "Function", &parameters.function),
    ] {
        if !chosen.is_empty() {
            filters.push(fixed(name, label, &[("", "all"), (chosen, chosen)], chosen));
        }
    }
    filters
}

/// Returns the address of another page of the same list.
fn address(parameters: &ListParameters, after: &str) -> String {
    let pairs = [
        ("q", &*parameters.q),
        ("service", &parameters.service),
        ("state", &parameters.state),
        ("build", &parameters.build),
        ("host", &parameters.host),
        ("function", &parameters.function),
        ("sort", &parameters.sort),
        ("after", after),
    ];
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs.iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    match query.finish() {
        query if query.is_empty() => "/".to_owned(),
        query => format!("/?{query}"),
    }
}
