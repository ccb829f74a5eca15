//! Questions to sites: all are asked at once, for the same times.

use super::answer::SiteProblem;
use super::client::AskedSite;
use super::scope::SiteScope;
use crate::database::sites::SiteRow;
use crate::error::{Error, Result};
use crate::hub::Hub;
use crate::profiles::selection::{Selection, text_of_labels, time_text};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

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
    let mut answers = Vec::new();
    while let Some(done) = running.join_next().await {
        answers.push(done.map_err(|_| Error::Ending)?);
    }
    answers.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(answers)
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

/// Returns the selection from a whole second to a whole second, which addresses can say.
pub(super) fn with_whole_seconds(selection: &Selection) -> Selection {
    Selection {
        times: whole_seconds(&selection.times),
        ..selection.clone()
    }
}

/// Returns a range of times in nanoseconds from a whole second to a whole second.
pub(super) fn whole_seconds(times: &Range<u64>) -> Range<u64> {
    times.start / SECOND * SECOND..times.end.div_ceil(SECOND).saturating_mul(SECOND)
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
