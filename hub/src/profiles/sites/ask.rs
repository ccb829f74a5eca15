//! Questions to sites: all are asked at once, for the same times.

use super::answer::SiteProblem;
use super::client::{AskedSite, Identified};
use super::scope::SiteScope;
use crate::database::sites::SiteRow;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::selection::{Selection, text_of_labels, time_text};
use backtrail_profile::Rules;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Nanoseconds in a microsecond.
const MICRO: u64 = 1000;

/// A question to a site.
#[derive(Clone, Debug)]
pub(super) enum Question {
    /// A path with its query.
    Get(String),
    /// A JSON text for a path, which has a time of its own.
    Post {
        /// The path.
        path: &'static str,
        /// The text.
        text: String,
        /// The longest time.
        timeout: Duration,
    },
}

/// The answer of a site, with its name.
pub(super) type Asked = (String, AskedSite);

/// Asks sites at once. Returns their answers by name.
///
/// # Errors
/// Fails if a named site is unknown, or the database fails.
pub(super) async fn ask(hub: &Arc<Hub>, scope: &SiteScope, question: Question) -> Result<Vec<Asked>> {
    let mut running = JoinSet::new();
    for site in chosen(hub, scope).await? {
        let (client, question) = (hub.sites.clone(), question.clone());
        running.spawn(async move {
            let answer = match question {
                Question::Get(path) => client.get(&site, &path).await,
                Question::Post { path, text, timeout } => client.post(&site, path, text, timeout).await,
            };
            (site.name, answer)
        });
    }
    let mut answers: Vec<(String, Identified)> = Vec::new();
    while let Some(done) = running.join_next().await {
        answers.push(done.map_err(|_| Error::Ending)?);
    }
    answers.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(each_once(&hub.identity, answers))
}

/// Removes the answers of this hub itself, and those of a hub that has another name too. They would
/// count twice.
fn each_once(own: &str, answers: Vec<(String, Identified)>) -> Vec<Asked> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut once = Vec::new();
    for (name, Identified { answer, hub }) in answers {
        let other = hub.as_ref().and_then(|hub| known.get(hub));
        let answer = match (&hub, other) {
            (Some(hub), _) if hub == own => Err(SiteProblem::failed(
                "its address leads to this hub, or to one with the same database; remove the site",
            )),
            (_, Some(other)) => Err(SiteProblem::failed(format!(
                "it is the same hub as the site {other}; remove one of them"
            ))),
            _ => answer,
        };
        if let (Some(hub), Ok(_)) = (hub, &answer) {
            known.insert(hub, name.clone());
        }
        once.push((name, answer));
    }
    once
}

/// Reads the JSON text of a site.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(body: &[u8]) -> std::result::Result<T, SiteProblem> {
    serde_json::from_slice(body)
        .map_err(|error| SiteProblem::failed(format!("its answer is malformed: {error}")))
}

async fn chosen(hub: &Hub, scope: &SiteScope) -> Result<Vec<SiteRow>> {
    let sites = hub.database.sites().await?;
    let enabled = sites.into_iter().filter(|site| site.is_enabled);
    match scope {
        SiteScope::Own => Ok(Vec::new()),
        SiteScope::All => Ok(enabled.collect()),
        SiteScope::Named(names) => {
            let found: Vec<_> = enabled.filter(|site| names.contains(&site.name)).collect();
            let unknown = names
                .iter()
                .find(|name| !found.iter().any(|site| site.name == **name));
            match unknown {
                Some(name) => Err(Error::Absent(format!("enabled site {name}"))),
                None => Ok(found),
            }
        }
    }
}

/// Returns the selection from a whole microsecond to a whole one, which addresses can say and
/// samples have.
pub(super) fn with_whole_micros(selection: &Selection) -> Selection {
    Selection {
        times: whole_micros(&selection.times),
        ..selection.clone()
    }
}

/// Returns a range of times in nanoseconds from a whole microsecond to a whole one.
pub(super) fn whole_micros(times: &Range<u64>) -> Range<u64> {
    times.start / MICRO * MICRO..times.end.div_ceil(MICRO).saturating_mul(MICRO)
}

/// Returns the query of an address for a selection, with the rules that select samples.
pub(super) fn pairs_with_rules(selection: &Selection) -> String {
    let mut query = form_urlencoded::Serializer::new(pairs(selection));
    let Rules { focus, ignore, .. } = &selection.rules;
    for (name, expression) in [("focus", focus), ("ignore", ignore)] {
        if let Some(expression) = expression {
            query.append_pair(name, expression.as_str());
        }
    }
    query.finish()
}

/// Returns the query of an address for a selection. Rules on stacks are for the sum, so that a site
/// does not apply them.
pub(super) fn pairs(selection: &Selection) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("from", &time_text(selection.times.start));
    query.append_pair("until", &time_text(selection.times.end));
    for (column, value) in &selection.columns {
        query.append_pair(column.name(), value);
    }
    if !selection.labels.is_empty() {
        query.append_pair("labels", &text_of_labels(&selection.labels));
    }
    query.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hub_counts_once() {
        let answer = |name: &str, hub: Option<&str>, answer| {
            let hub = hub.map(str::to_owned);
            (name.to_owned(), Identified { answer, hub })
        };
        let late = || Err(SiteProblem::failed("late"));
        let answers = vec![
            answer("a", Some("x"), Ok(None)),
            answer("b", Some("own"), Ok(None)),
            answer("c", Some("x"), Ok(None)),
            // Hubs of earlier versions have no identity.
            answer("d", None, Ok(None)),
            answer("e", None, Ok(None)),
            answer("f", Some("y"), late()),
            answer("g", Some("y"), Ok(None)),
        ];
        let once = each_once("own", answers);
        let missing = once.iter().filter_map(|(name, answer)| {
            let reason = &answer.as_ref().err()?.reason;
            Some((name.as_str(), reason.as_str()))
        });
        assert_eq!(
            missing.collect::<Vec<_>>(),
            [
                (
                    "b",
                    "its address leads to this hub, or to one with the same database; remove the site"
                ),
                ("c", "it is the same hub as the site a; remove one of them"),
                ("f", "late"),
            ]
        );
    }
}
