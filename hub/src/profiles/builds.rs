//! The order of a service's builds that have samples.

use super::query;
use super::regressions::RegressionParameters;
use super::selection::Column;
use crate::error::{Error, Result};
use crate::hub::Hub;
use std::cmp::Reverse;
use std::sync::Arc;

/// The intervals of time in which the first sample of a build is searched.
const INTERVALS: u64 = 1000;

/// A build with samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledBuild {
    /// The build.
    pub build: String,
    /// The time since which it runs: of a heartbeat or of its first sample, in nanoseconds since
    /// 1970.
    pub since: u64,
    /// The time of its first selected sample.
    pub first_sample: u64,
}

/// Returns the newest build of a service with samples in the selected time, and the one before.
/// `None`: fewer than two builds have samples.
///
/// # Errors
/// Fails if the order of the two is unknown, a parameter is malformed, or the store fails.
pub async fn newest_two(
    hub: &Arc<Hub>,
    parameters: &RegressionParameters,
    now: i64,
) -> Result<Option<[SampledBuild; 2]>> {
    let selection = parameters.all_builds(now)?;
    let samples = query::first_samples(hub, &selection, Column::Build, INTERVALS).await?;
    let runs = hub.database.first_runs(&parameters.service).await?;
    newest(samples, &runs)
}

/// Returns the newest build and the one before. `runs` are times in microseconds.
fn newest(samples: Vec<(String, u64)>, runs: &[(String, i64)]) -> Result<Option<[SampledBuild; 2]>> {
    let named = samples.into_iter().filter(|(build, _)| !build.is_empty());
    let dated = named.map(|(build, first_sample)| {
        let ran = runs.iter().find(|(one, _)| *one == build);
        let ran = ran.map(|(_, time)| time.unsigned_abs().saturating_mul(1000));
        SampledBuild {
            since: ran.unwrap_or(first_sample),
            build,
            first_sample,
        }
    });
    let mut builds: Vec<SampledBuild> = dated.collect();
    builds.sort_by_key(|build| Reverse(build.since));
    let mut builds = builds.into_iter();
    let (Some(after), Some(before)) = (builds.next(), builds.next()) else {
        return Ok(None);
    };
    let is_third_equal = builds.next().is_some_and(|third| third.since == before.since);
    if after.since == before.since || is_third_equal {
        return Err(Error::Conflict(format!(
            "the order of the builds {} and {} is unknown; name the builds to compare, or send heartbeats",
            before.build, after.build
        )));
    }
    Ok(Some([before, after]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(samples: &[(&str, u64)], runs: &[(&str, i64)]) -> Result<Option<[String; 2]>> {
        let samples = samples.iter().map(|&(build, time)| (build.to_owned(), time));
        let runs: Vec<_> = runs
            .iter()
            .map(|&(build, time)| (build.to_owned(), time))
            .collect();
        let found = newest(samples.collect(), &runs)?;
        Ok(found.map(|pair| pair.map(|build| build.build)))
    }

    #[test]
    fn builds_are_ordered_by_first_run_and_sample() {
        let pair = |before: &str, after: &str| Some([before.to_owned(), after.to_owned()]);
        let samples = [("a", 3000), ("", 9000), ("b", 1000), ("c", 2000)];
        assert_eq!(names(&samples, &[]).unwrap(), pair("c", "a"));
        // A rollback runs again, but its heartbeat is old.
        assert_eq!(names(&samples, &[("a", 0)]).unwrap(), pair("b", "c"));
        assert_eq!(names(&samples[..2], &[]).unwrap(), None);
        assert_eq!(names(&[], &[]).unwrap(), None);
    }

    #[test]
    fn unknown_order_is_not_guessed() {
        let error = names(&[("a", 5), ("b", 5)], &[]).unwrap_err().to_string();
        assert!(error.contains("order of the builds"), "{error}");
        assert!(names(&[("a", 5), ("b", 4), ("c", 4)], &[]).is_err());
        assert!(names(&[("a", 5), ("b", 5)], &[("a", 1)]).is_ok());
    }
}
