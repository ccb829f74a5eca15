//! Functions whose cost differs between two builds of a service.
//!
//! A unit of the comparison is a host in an interval of time. [`backtrail_store::regression`] has
//! the statistics.

use super::build_units::{BuildUnits, Unit, UnitFunction};
use super::changed_branches::{BuildBranches, ChangedBranch};
use super::selection::{FIRST_EVENT, Selection, SelectionParameters};
use super::sites;
use super::sites::answer::{SiteAnswer, SiteState, is_partial};
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
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
    let mut functions = Functions::default();
    let (first, mut notes, asked) = matrix(hub, &earlier, intervals, &mut functions).await?;
    let (second, more_notes, asked_later) = matrix(hub, &later, intervals, &mut functions).await?;
    notes.extend(more_notes);
    let sites = worst(asked, asked_later);
    notes.extend(sites.iter().filter_map(SiteAnswer::note));
    notes.sort_unstable();
    notes.dedup();
    let cells = (first.len() + second.len()).saturating_mul(functions.symbols.len());
    if cells > MAX_CELLS {
        return Err(Error::TooLarge(format!(
            "the builds have {} hosts and intervals and {} functions, too many for a comparison; \
             choose fewer intervals",
            first.len() + second.len(),
            functions.symbols.len()
        )));
    }
    let (first, second) = (functions.padded(first), functions.padded(second));
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

/// The weights of functions in each unit, the notes, and the sites that were asked.
type Matrix = (Vec<Vec<f64>>, Vec<String>, Vec<SiteAnswer>);

/// Returns the units of a build of this hub and its sites.
async fn matrix(
    hub: &Arc<Hub>,
    selection: &Selection,
    intervals: u64,
    functions: &mut Functions,
) -> Result<Matrix> {
    let (parts, asked) = sites::units::units(hub, selection, intervals).await?;
    let (mut weights, mut notes) = (Vec::new(), Vec::new());
    for (site, part) in parts {
        weights.extend(functions.weights(&part));
        notes.extend(part.notes.into_iter().map(|note| match site.as_str() {
            "" => note,
            site => format!("site {site}: {note}"),
        }));
    }
    Ok((weights, notes, asked))
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

/// The functions of both builds.
#[derive(Default)]
struct Functions {
    indexes: HashMap<UnitFunction, usize>,
    symbols: Vec<UnitFunction>,
}

impl Functions {
    fn index(&mut self, function: &UnitFunction) -> usize {
        if let Some(index) = self.indexes.get(function) {
            return *index;
        }
        let index = self.symbols.len();
        self.symbols.push(function.clone());
        self.indexes.insert(function.clone(), index);
        index
    }

    /// Returns the weights of each unit by the index of the function.
    fn weights(&mut self, part: &BuildUnits) -> Vec<Vec<f64>> {
        let indexes: Vec<usize> = part.functions.iter().map(|one| self.index(one)).collect();
        let unit = |unit: &Unit| {
            let mut weights = Vec::new();
            for (function, weight) in &unit.weights {
                let Some(&index) = indexes.get(*function as usize) else {
                    continue;
                };
                if weights.len() <= index {
                    weights.resize(index + 1, 0.0);
                }
                if let Some(sum) = weights.get_mut(index) {
                    *sum += weight;
                }
            }
            weights
        };
        part.units.iter().map(unit).collect()
    }

    fn padded(&self, mut weights: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
        for unit in &mut weights {
            unit.resize(self.symbols.len(), 0.0);
        }
        weights
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
