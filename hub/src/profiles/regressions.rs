//! Functions whose cost differs between two builds of a service.
//!
//! A unit of the comparison is a host in an interval of time. [`backtrail_store::regression`] has
//! the statistics.

use super::changed_branches::{BuildBranches, ChangedBranch};
use super::query;
use super::selection::{Column, FIRST_EVENT, Selection, SelectionParameters};
use crate::clock;
use crate::error::{Error, Result};
use crate::hub::Hub;
use backtrail_profile::{FunctionProfile, LabelSetId, Profile, Symbol};
use backtrail_store::regression::{Direction, RegressionRule, changed_functions};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// The most intervals of time of a build.
const MAX_INTERVALS: u64 = 48;
/// The intervals unless the request names another number.
const INTERVALS: u64 = 12;

/// The parameters of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
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

/// A host in an interval of time, by the index of the interval.
type Unit = (u64, String);

/// The weights of functions in each unit of a build.
#[derive(Default)]
struct Units {
    weights: HashMap<Unit, Vec<f64>>,
    notes: Vec<String>,
}

/// The functions of both builds.
#[derive(Default)]
struct Functions {
    indexes: HashMap<Symbol, usize>,
    symbols: Vec<Symbol>,
}

impl Functions {
    fn index(&mut self, symbol: &Symbol) -> usize {
        if let Some(index) = self.indexes.get(symbol) {
            return *index;
        }
        let index = self.symbols.len();
        self.symbols.push(symbol.clone());
        self.indexes.insert(symbol.clone(), index);
        index
    }
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
    let first = units(hub, &earlier, intervals, &mut functions).await?;
    let second = units(hub, &later, intervals, &mut functions).await?;
    let mut notes = first.notes;
    notes.extend(second.notes);
    notes.sort_unstable();
    notes.dedup();
    let padded = |weights: HashMap<Unit, Vec<f64>>| -> Vec<Vec<f64>> {
        let count = functions.symbols.len();
        let resized = weights.into_values().map(|mut weights| {
            weights.resize(count, 0.0);
            weights
        });
        resized.collect()
    };
    let (first, second) = (padded(first.weights), padded(second.weights));
    let changes = changed_functions(&first, &second, RegressionRule::default())?;
    let changes = changes.into_iter().filter_map(|change| {
        let symbol = functions.symbols.get(change.function)?;
        Some(ReportedChange {
            function: symbol.name.to_string(),
            file: symbol.file.to_string(),
            module: symbol.module.to_string(),
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
    })
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

/// Returns the weights of functions in each host and interval of a selection.
async fn units(
    hub: &Arc<Hub>,
    selection: &Selection,
    intervals: u64,
    functions: &mut Functions,
) -> Result<Units> {
    let mut units = Units::default();
    let (start, end) = (selection.times.start, selection.times.end);
    let length = (end - start).div_ceil(intervals).max(1);
    for interval in 0..intervals {
        let first = start + interval * length;
        let part = Selection {
            times: first..first.saturating_add(length).min(end),
            ..selection.clone()
        };
        if part.times.is_empty() {
            break;
        }
        let profile = query::grouped(hub, &part, &[Column::Host]).await?;
        add(&mut units, functions, &profile, interval)?;
        units.notes.extend(profile.notes);
    }
    Ok(units)
}

/// Adds the own weight of each function by host.
fn add(units: &mut Units, functions: &mut Functions, profile: &Profile, interval: u64) -> Result<()> {
    let shown = FunctionProfile::new(profile)?;
    for sample in &shown.samples {
        let Some((_, site)) = shown.stacks.split(sample.stack) else {
            continue;
        };
        let Some(symbol) = shown.symbols.get(site.symbol) else {
            continue;
        };
        let index = functions.index(symbol);
        let unit = (interval, host(profile, sample.labels));
        let weights = units.weights.entry(unit).or_default();
        if weights.len() <= index {
            weights.resize(index + 1, 0.0);
        }
        if let Some(weight) = weights.get_mut(index) {
            *weight += sample.weight as f64;
        }
    }
    Ok(())
}

fn host(profile: &Profile, labels: LabelSetId) -> String {
    let labels = profile.labels(labels).iter();
    let host = labels.filter(|label| profile.text(label.key) == Column::Host.name());
    let mut text = host.filter_map(|label| match label.value {
        backtrail_profile::LabelValue::Text(text) => Some(profile.text(text).to_owned()),
        _ => None,
    });
    text.next().unwrap_or_default()
}
