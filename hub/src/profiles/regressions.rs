//! Functions whose cost differs between two builds of a service.
//!
//! A unit of the comparison is a host in an interval of time. [`backtrail_store::regression`] has
//! the statistics.

use super::build_units::UnitFunction;
use super::changed_branches::{BuildBranches, ChangedBranch};
use super::selection::{FIRST_EVENT, Selection, SelectionParameters};
use super::sites;
use super::sites::answer::{SiteAnswer, SiteState, is_partial};
use super::sites::units::SiteUnits;
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use backtrail_profile::{FunctionKey, match_functions};
use backtrail_store::regression::{Direction, RegressionRule, changed_functions};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// The most intervals of time of a build.
pub const MAX_INTERVALS: u64 = 48;
/// The most weights that are compared: units of both builds, times functions.
const MAX_CELLS: usize = 64 << 20;
/// The intervals unless the request names another number.
pub const INTERVALS: u64 = 12;

/// The parameters of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegressionParameters {
    /// The service.
    pub service: String,
    /// The earlier build.
    pub before: String,
    /// The later build.
    pub after: String,
    /// The event. Empty: `cpu`.
    pub event: String,
    /// The start, as in a selection. Empty: a day.
    pub from: String,
    /// The end.
    pub until: String,
    /// The start for the earlier build. Empty: the same.
    pub before_from: String,
    /// The end for the earlier build.
    pub before_until: String,
    /// The number of intervals of each build. Empty: 12.
    pub intervals: String,
    /// Other sites that are asked too: `all`, or names separated by commas.
    pub sites: String,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RegressionReport {
    /// The units of the earlier and of the later build.
    pub units: [usize; 2],
    /// The functions that were compared.
    pub functions: usize,
    /// The changed functions, the largest change first.
    pub changes: Vec<ReportedChange>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
    /// Whether a site is missing.
    pub partial: bool,
    /// The sites that were asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<SiteAnswer>,
}

/// A changed function. Shares are parts of the earlier build's total.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportedChange {
    /// The function.
    pub function: String,
    /// Its source file. Empty: unknown.
    pub file: String,
    /// Its module. Empty: unknown.
    pub module: String,
    /// `slower` or `faster`.
    pub direction: &'static str,
    /// The share before.
    pub before: f64,
    /// The share after.
    pub after: f64,
    /// The lower bound of the difference.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
    /// The branch that goes another way, by traces in stored bundles of both builds. `None`: no
    /// trace shows one, or the function is faster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<ChangedBranch>,
}

impl RegressionParameters {
    /// Returns the selection of a build.
    fn selection(&self, build: &str, from: &str, until: &str, now: i64) -> Result<Selection> {
        let or = |text: &str, other: &str| if text.is_empty() { other } else { text }.to_owned();
        let parameters = SelectionParameters {
            service: self.service.clone(),
            build: build.to_owned(),
            event: or(&self.event, FIRST_EVENT),
            from: or(&or(from, &self.from), "1d"),
            until: or(until, &self.until),
            sites: self.sites.clone(),
            ..SelectionParameters::default()
        };
        parameters.selection_at(now)
    }

    /// Returns the samples of all builds.
    ///
    /// # Errors
    /// Fails if a time is malformed.
    pub fn all_builds(&self, now: i64) -> Result<Selection> {
        self.selection("", "", "", now)
    }

    /// Checks the parameters of a comparison that is made later, and may leave both builds open.
    ///
    /// # Errors
    /// Fails if the service is missing, one build alone is named, or a parameter is malformed.
    pub fn check_at(&self, now: i64) -> Result<()> {
        if self.service.is_empty() {
            return Err(Error::Invalid(
                "a comparison of builds names a service".to_owned(),
            ));
        }
        if self.before.is_empty() != self.after.is_empty() {
            return Err(Error::Invalid(
                "name both builds, or none for the newest one and the one before".to_owned(),
            ));
        }
        self.intervals()?;
        self.selection(&self.before, &self.before_from, &self.before_until, now)?;
        self.selection(&self.after, "", "", now).map(|_| ())
    }

    fn intervals(&self) -> Result<u64> {
        if self.intervals.is_empty() {
            return Ok(INTERVALS);
        }
        let number = self.intervals.parse().ok();
        number
            .filter(|number| (1..=MAX_INTERVALS).contains(number))
            .ok_or_else(|| Error::Invalid(format!("intervals is a number from 1 to {MAX_INTERVALS}")))
    }
}

/// Compares two builds of a service.
///
/// # Errors
/// Fails if a parameter is malformed, a build has too few samples, or the store fails.
pub async fn compare(hub: &Arc<Hub>, parameters: &RegressionParameters) -> Result<RegressionReport> {
    compare_at(hub, parameters, clock::now()).await
}

/// Does the same at a time in microseconds since 1970.
///
/// # Errors
/// As [`compare`]. The error is [`Error::Comparison`] if a build has too few samples.
pub async fn compare_at(
    hub: &Arc<Hub>,
    parameters: &RegressionParameters,
    now: i64,
) -> Result<RegressionReport> {
    let RegressionParameters {
        service,
        before,
        after,
        before_from,
        before_until,
        ..
    } = parameters;
    if [service, before, after].iter().any(|text| text.is_empty()) {
        return Err(Error::Invalid(
            "a comparison names a service and two builds: service, before and after".to_owned(),
        ));
    }
    let intervals = parameters.intervals()?;
    let earlier = parameters.selection(before, before_from, before_until, now)?;
    let later = parameters.selection(after, "", "", now)?;
    let (first, asked) = sites::units::units(hub, &earlier, intervals).await?;
    let (second, asked_later) = sites::units::units(hub, &later, intervals).await?;
    let mut notes = notes_of(first.iter().chain(&second));
    let functions = Functions::of_builds([&first, &second]);
    let sites = worst(asked, asked_later);
    notes.extend(sites.iter().filter_map(SiteAnswer::note));
    notes.sort_unstable();
    notes.dedup();
    let units: usize = first
        .iter()
        .chain(&second)
        .map(|(_, part)| part.units.len())
        .sum();
    let cells = units.saturating_mul(functions.symbols.len());
    if cells > MAX_CELLS {
        return Err(Error::TooLarge(format!(
            "the builds have {units} hosts and intervals and {} functions, too many for a comparison; \
             choose fewer intervals",
            functions.symbols.len()
        )));
    }
    let [first, second] = [&first, &second].map(|parts| functions.weights(parts));
    let changes = changed_functions(&first, &second, RegressionRule::default())?;
    let changes = changes.into_iter().filter_map(|change| {
        let symbol = functions.symbols.get(change.function)?;
        Some(ReportedChange {
            function: symbol.name.clone(),
            file: symbol.file.clone(),
            module: symbol.module.clone(),
            direction: match change.direction {
                Direction::Slower => "slower",
                Direction::Faster => "faster",
            },
            before: change.before,
            after: change.after,
            low: change.interval.0,
            high: change.interval.1,
            branch: None,
        })
    });
    let mut changes: Vec<_> = changes.collect();
    name_branches(hub, parameters, &mut changes).await?;
    Ok(RegressionReport {
        units: [first.len(), second.len()],
        functions: functions.symbols.len(),
        changes,
        notes,
        partial: is_partial(&sites),
        sites,
    })
}

/// Returns the notes of all parts, with the names of their sites.
fn notes_of<'a>(parts: impl Iterator<Item = &'a SiteUnits>) -> Vec<String> {
    let notes = parts.flat_map(|(site, part)| {
        part.notes.iter().map(move |note| match site.as_str() {
            "" => note.clone(),
            site => format!("site {site}: {note}"),
        })
    });
    notes.collect()
}

/// Returns the states of sites that were asked twice: a part that is missing once is missing.
fn worst(first: Vec<SiteAnswer>, second: Vec<SiteAnswer>) -> Vec<SiteAnswer> {
    let mut answers = first;
    for other in second {
        match answers.iter_mut().find(|answer| answer.name == other.name) {
            Some(answer) if answer.state == SiteState::Complete => *answer = other,
            Some(_) => {}
            None => answers.push(other),
        }
    }
    answers
}

/// Returns the parts by which functions are matched.
fn keys(functions: &[UnitFunction]) -> Vec<FunctionKey<'_>> {
    functions.iter().map(UnitFunction::key).collect()
}

/// The functions of both builds. Those that only their files name otherwise are one.
#[derive(Default)]
struct Functions {
    indexes: HashMap<UnitFunction, usize>,
    symbols: Vec<UnitFunction>,
}

impl Functions {
    /// Returns the functions of the parts of both builds. A function has the names of the later
    /// build, if this has it.
    fn of_builds([before, after]: [&[SiteUnits]; 2]) -> Self {
        let all = |parts: &'_ [SiteUnits]| -> Vec<UnitFunction> {
            let functions = parts.iter().flat_map(|(_, part)| &part.functions);
            functions.cloned().collect()
        };
        let (before, after) = (all(before), all(after));
        let [before_numbers, after_numbers] = match_functions([&keys(&before), &keys(&after)]);
        let mut functions = Self::default();
        let mut by_number = HashMap::new();
        let later = after.into_iter().zip(after_numbers);
        for (function, number) in later.chain(before.into_iter().zip(before_numbers)) {
            let next = functions.symbols.len();
            let index = *by_number.entry(number).or_insert(next);
            if index == next {
                functions.symbols.push(function.clone());
            }
            functions.indexes.insert(function, index);
        }
        functions
    }

    /// Returns the weights of each unit of a build, by the index of the function.
    fn weights(&self, parts: &[SiteUnits]) -> Vec<Vec<f64>> {
        let units = parts.iter().flat_map(|(_, part)| {
            let indexes: Vec<_> = part.functions.iter().map(|one| self.indexes.get(one)).collect();
            part.units.iter().map(move |unit| {
                let mut weights = vec![0.0; self.symbols.len()];
                for (function, weight) in &unit.weights {
                    let index = indexes.get(*function as usize).copied().flatten();
                    if let Some(sum) = index.and_then(|index| weights.get_mut(*index)) {
                        *sum += weight;
                    }
                }
                weights
            })
        });
        units.collect()
    }
}

/// Names the branches of slower functions that go another way, if bundles of both builds have them.
async fn name_branches(
    hub: &Arc<Hub>,
    parameters: &RegressionParameters,
    changes: &mut [ReportedChange],
) -> Result<()> {
    if changes.iter().all(|change| change.direction != "slower") {
        return Ok(());
    }
    let before = BuildBranches::read(hub, &parameters.service, &parameters.before).await?;
    if before.bundles == 0 {
        return Ok(());
    }
    let after = BuildBranches::read(hub, &parameters.service, &parameters.after).await?;
    for change in changes.iter_mut().filter(|change| change.direction == "slower") {
        change.branch = before.changed(&after, &change.function);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profiles::build_units::{BuildUnits, Unit};

    /// Returns the units of a build with one host and the functions of one module.
    fn build(module: &str, weights: &[(&str, f64)]) -> Vec<SiteUnits> {
        let function = |(name, _): &(&str, f64)| UnitFunction {
            name: (*name).to_owned(),
            module: module.to_owned(),
            ..UnitFunction::default()
        };
        let weight = |(index, (_, weight)): (u32, &(&str, f64))| (index, *weight);
        let units = BuildUnits {
            functions: weights.iter().map(function).collect(),
            units: vec![Unit {
                weights: (0..).zip(weights).map(weight).collect(),
                ..Unit::default()
            }],
            ..BuildUnits::default()
        };
        vec![(String::new(), units)]
    }

    #[test]
    fn functions_of_renamed_binaries_are_one() {
        let before = build("app-1.0", &[("parse", 3.0), ("write", 1.0)]);
        let after = build("app-1.1", &[("write", 2.0), ("parse", 5.0)]);
        let functions = Functions::of_builds([&before, &after]);
        let names: Vec<_> = functions
            .symbols
            .iter()
            .map(|function| (function.name.as_str(), function.module.as_str()))
            .collect();
        assert_eq!(names, [("write", "app-1.1"), ("parse", "app-1.1")]);
        assert_eq!(functions.weights(&before), [[1.0, 3.0]]);
        assert_eq!(functions.weights(&after), [[2.0, 5.0]]);
    }
}
