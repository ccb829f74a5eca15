//! The units of a comparison of builds: the weights of functions by host and interval of time.
//!
//! Hubs send each other their units, so that samples stay where they are.

use super::default_event::{note_of_units, rank};
use super::query;
use super::selection::{Column, Selection};
use crate::error::Result;
use crate::hub::Hub;
use backtrail_profile::{FunctionKey, FunctionProfile, LabelSetId, LabelValue, Profile, Symbol};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The units of a build.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildUnits {
    /// The functions.
    pub functions: Vec<UnitFunction>,
    /// The units.
    pub units: Vec<Unit>,
    /// Sentences about what is missing.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UnitFunction {
    /// The name, or module and offset of code without a symbol.
    pub name: String,
    /// The source file. Empty: unknown.
    #[serde(default)]
    pub file: String,
    /// The name of the module's file. Empty: unknown.
    #[serde(default)]
    pub module: String,
    /// The build id of the module, of code without a symbol. Empty: unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build_id: String,
    /// Whether the name is no function's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_nameless: bool,
}

impl UnitFunction {
    /// Returns the parts by which functions of builds are matched.
    #[must_use]
    pub fn key(&self) -> FunctionKey<'_> {
        FunctionKey {
            name: &self.name,
            file: &self.file,
            module: &self.module,
            build_id: &self.build_id,
            is_function: !self.is_nameless,
        }
    }
}

/// A host in an interval of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The number of the interval.
    pub interval: u64,
    /// The host. Empty: unknown.
    #[serde(default)]
    pub host: String,
    /// The own weights of functions, by their indexes.
    pub weights: Vec<(u32, f64)>,
}

/// The weights of functions in each interval and host.
type Weights = BTreeMap<(u64, String), BTreeMap<u32, f64>>;

/// Functions by number, and their weights by the name and unit of the event.
#[derive(Default)]
struct Sums {
    indexes: HashMap<Symbol, u32>,
    functions: Vec<UnitFunction>,
    weights: BTreeMap<(String, String), Weights>,
}

impl Sums {
    fn index(&mut self, symbol: &Symbol) -> u32 {
        if let Some(index) = self.indexes.get(symbol) {
            return *index;
        }
        let index = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        self.functions.push(UnitFunction {
            name: symbol.name.to_string(),
            file: symbol.file.to_string(),
            module: symbol.module.to_string(),
            build_id: symbol
                .build_id
                .as_ref()
                .map_or_else(String::new, ToString::to_string),
            is_nameless: !symbol.is_function,
        });
        self.indexes.insert(symbol.clone(), index);
        index
    }

    /// Adds the own weight of each function by host.
    fn add(&mut self, profile: &Profile, interval: u64) -> Result<()> {
        let shown = FunctionProfile::new(profile)?;
        for sample in &shown.samples {
            let Some((_, site)) = shown.stacks.split(sample.stack) else {
                continue;
            };
            let Some(symbol) = shown.symbols.get(site.symbol) else {
                continue;
            };
            let Some(event) = profile.events.get(sample.event) else {
                continue;
            };
            let index = self.index(symbol);
            let event = [event.name, event.unit].map(|text| profile.text(text).to_owned());
            let weights = self.weights.entry(event.into()).or_default();
            let unit = (interval, host(profile, sample.labels));
            *weights.entry(unit).or_default().entry(index).or_default() += sample.weight as f64;
        }
        Ok(())
    }

    /// Returns the weights of the event that is shown first, and a note of its other units. Weights
    /// of several units cannot be compared.
    fn first_event(&mut self) -> (Weights, Option<String>) {
        let by_rank =
            |((event, unit), weights): &(&(String, String), &Weights)| rank((event, unit), weights.len());
        let Some((key, _)) = self.weights.iter().max_by_key(by_rank) else {
            return Default::default();
        };
        let (event, unit) = key.clone();
        let same = self.weights.keys().filter(|(other, _)| *other == event);
        let note = note_of_units(&event, &unit, same.map(|(_, unit)| &**unit));
        let weights = self.weights.remove(&(event, unit)).unwrap_or_default();
        (weights, note)
    }
}

/// Returns the weights of functions in each host and interval of a selection of this hub.
///
/// # Errors
/// Fails if the store fails, or a profile is malformed.
pub async fn units(hub: &Arc<Hub>, selection: &Selection, intervals: u64) -> Result<BuildUnits> {
    let mut sums = Sums::default();
    let mut notes = Vec::new();
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
        sums.add(&profile, interval)?;
        notes.extend(profile.notes);
    }
    let (weights, note) = sums.first_event();
    notes.extend(note);
    notes.sort_unstable();
    notes.dedup();
    let unit = |((interval, host), weights): (_, BTreeMap<u32, f64>)| Unit {
        interval,
        host,
        weights: weights.into_iter().collect(),
    };
    Ok(BuildUnits {
        functions: sums.functions,
        units: weights.into_iter().map(unit).collect(),
        notes,
    })
}

fn host(profile: &Profile, labels: LabelSetId) -> String {
    let labels = profile.labels(labels).iter();
    let host = labels.filter(|label| profile.text(label.key) == Column::Host.name());
    let mut text = host.filter_map(|label| match label.value {
        LabelValue::Text(text) => Some(profile.text(text).to_owned()),
        _ => None,
    });
    text.next().unwrap_or_default()
}
