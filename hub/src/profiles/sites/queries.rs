//! Queries of this hub and of other sites.

use super::answer::{SiteAnswer, SiteProblem};
use super::ask::{Question, ask, pairs, pairs_with_rules, read_json, with_whole_micros};
use super::scope::SiteScope;
use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use crate::profiles::query::{self, EventSeries};
use crate::profiles::selection::Selection;
use backtrail_profile::format::pprof;
use backtrail_profile::{Profile, merge};
use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::sync::Arc;

/// The most bytes of an unpacked profile of a site.
const MAX_UNPACKED: u64 = 256 << 20;
/// The most notes of a site.
const MAX_NOTES: usize = 20;
/// The most samples of all sites.
const MAX_SAMPLES: usize = 4_000_000;

/// The weights of events as sites send them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SeriesAnswer {
    /// The weights.
    pub series: Vec<EventSeries>,
    /// Sentences about what is missing.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether a site is missing.
    #[serde(default)]
    pub partial: bool,
    /// The sites that were asked.
    #[serde(default)]
    pub sites: Vec<SiteAnswer>,
}

/// Returns the sum of a selection over this hub and its sites, and the parts of the sites. Missing
/// parts are notes of the profile too.
///
/// # Errors
/// Fails if a named site is unknown, or the query of this hub fails. The failure of a site is a
/// missing part.
pub async fn merged(hub: &Arc<Hub>, selection: &Selection) -> Result<(Profile, Vec<SiteAnswer>)> {
    if selection.sites == SiteScope::Own {
        return Ok((query::merged(hub, selection).await?, Vec::new()));
    }
    let selection = &with_whole_micros(selection);
    let path = format!("/api/v1/profiles/merge?format=pprof&{}", pairs(selection));
    let (own, asked) = tokio::join!(
        query::merged(hub, selection),
        ask(hub, &selection.sites, Question::Get(path))
    );
    let (mut profile, mut answers) = (own?, Vec::new());
    for (name, body) in asked? {
        let part = match body {
            Ok(Some(body)) => blocking(move || Ok(read(&body))).await?.map(Some),
            Ok(None) => Ok(None),
            Err(problem) => Err(problem),
        };
        let is_full = |part: &Profile| profile.samples.len() + part.samples.len() > MAX_SAMPLES;
        answers.push(match part {
            Ok(Some(part)) if is_full(&part) => {
                SiteAnswer::missing(&name, SiteProblem::failed("the sum has too many samples"))
            }
            Ok(Some(part)) => {
                merge(&mut profile, &part)?;
                let notes = part.notes.iter().take(MAX_NOTES);
                profile
                    .notes
                    .extend(notes.map(|note| format!("site {name}: {note}")));
                SiteAnswer::complete(&name)
            }
            Ok(None) => SiteAnswer::complete(&name),
            Err(problem) => SiteAnswer::missing(&name, problem),
        });
    }
    profile.notes.extend(answers.iter().filter_map(SiteAnswer::note));
    Ok((profile, answers))
}

/// Returns the weights of each event over time of this hub and its sites, processor time first.
///
/// # Errors
/// As [`merged`].
pub async fn series(hub: &Arc<Hub>, selection: &Selection, intervals: u64) -> Result<SeriesAnswer> {
    if selection.sites == SiteScope::Own {
        let (series, notes) = query::series(hub, selection, intervals).await?;
        return Ok(SeriesAnswer {
            series,
            notes,
            ..SeriesAnswer::default()
        });
    }
    let selection = &with_whole_micros(selection);
    let path = format!(
        "/api/v1/profiles/series?intervals={intervals}&{}",
        pairs_with_rules(selection)
    );
    let (own, asked) = tokio::join!(
        query::series(hub, selection, intervals),
        ask(hub, &selection.sites, Question::Get(path))
    );
    let (series, notes) = own?;
    let mut answer = SeriesAnswer {
        series,
        notes,
        ..SeriesAnswer::default()
    };
    for (name, body) in asked? {
        let part = body.and_then(|body| match body {
            None => Ok(SeriesAnswer::default()),
            Some(body) => read_json::<SeriesAnswer>(&body),
        });
        let added = part.and_then(|part| {
            let notes = part.notes.iter().take(MAX_NOTES);
            answer
                .notes
                .extend(notes.map(|note| format!("site {name}: {note}")));
            add_series(&mut answer.series, part.series, intervals)
        });
        answer.sites.push(match added {
            Ok(()) => SiteAnswer::complete(&name),
            Err(problem) => SiteAnswer::missing(&name, problem),
        });
    }
    answer.partial = super::answer::is_partial(&answer.sites);
    query::sort_series(&mut answer.series);
    Ok(answer)
}

/// Adds the series of a site. Nothing is added if its intervals are others.
fn add_series(
    own: &mut Vec<EventSeries>,
    part: Vec<EventSeries>,
    intervals: u64,
) -> std::result::Result<(), SiteProblem> {
    let shape = |one: &EventSeries| (one.start, one.step, one.weights.len());
    let wanted = own.first().or_else(|| part.first()).map(shape);
    let is_other = |one: &EventSeries| one.weights.len() as u64 != intervals;
    if part.len() > 1000 || part.iter().any(|one| Some(shape(one)) != wanted || is_other(one)) {
        return Err(SiteProblem::failed("its intervals are others; update its hub"));
    }
    for one in part {
        let is_same = |other: &&mut EventSeries| (&other.event, &other.unit) == (&one.event, &one.unit);
        match own.iter_mut().find(is_same) {
            Some(other) => {
                for (sum, weight) in other.weights.iter_mut().zip(&one.weights) {
                    *sum = sum.saturating_add(*weight);
                }
            }
            None => own.push(one),
        }
    }
    Ok(())
}

/// Reads the profile of a site.
fn read(body: &[u8]) -> std::result::Result<Profile, SiteProblem> {
    let malformed = |reason: String| SiteProblem::failed(format!("its profile cannot be read: {reason}"));
    let mut bytes = Vec::new();
    MultiGzDecoder::new(body)
        .take(MAX_UNPACKED + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| malformed(error.to_string()))?;
    if bytes.len() as u64 > MAX_UNPACKED {
        return Err(malformed(format!("it has more than {} MiB", MAX_UNPACKED >> 20)));
    }
    pprof::read(&bytes).map_err(|error| malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(event: &str, start: u64, weights: &[i64]) -> EventSeries {
        EventSeries {
            event: event.to_owned(),
            unit: "nanoseconds".to_owned(),
            start,
            step: 10,
            weights: weights.to_vec(),
        }
    }

    #[test]
    fn series_of_equal_intervals_are_added() {
        let mut own = vec![series("cpu", 0, &[1, 2])];
        let part = vec![series("cpu", 0, &[3, i64::MAX]), series("wall", 0, &[5, 5])];
        add_series(&mut own, part, 2).unwrap();
        assert_eq!(
            own,
            [series("cpu", 0, &[4, i64::MAX]), series("wall", 0, &[5, 5])]
        );
        for wrong in [
            series("cpu", 10, &[1, 1]),
            series("cpu", 0, &[1]),
            series("cpu", 0, &[1; 9]),
        ] {
            assert!(add_series(&mut own, vec![wrong], 2).is_err());
        }
        let mut none = Vec::new();
        assert!(add_series(&mut none, vec![series("cpu", 0, &[1; 9])], 2).is_err());
    }

    #[test]
    fn damaged_profiles_are_a_reason() {
        for body in [&b""[..], b"rubbish", b"\x1f\x8b\x08"] {
            let problem = read(body).map(|_| ()).unwrap_err();
            assert!(problem.reason.contains("cannot be read"), "{problem:?}");
        }
    }
}
