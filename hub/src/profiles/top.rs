//! The functions of a selection with the largest own weight.

use super::default_event::{default_event, note_of_other_units};
use super::query::TOO_LARGE;
use super::selection::Selection;
use super::sites::answer::{SiteAnswer, is_partial};
use super::sites::queries;
use crate::error::Result;
use crate::hub::Hub;
use crate::objects::blocking;
use backtrail_profile::{EventId, FunctionProfile, Profile};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// The functions of an event, those with the largest own weight first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TopFunctions {
    /// The event.
    pub event: String,
    /// The unit of the weights.
    pub unit: String,
    /// The weight of all functions.
    pub total: i64,
    /// The functions.
    pub rows: Vec<TopFunction>,
    /// Sentences about what is missing.
    pub notes: Vec<String>,
    /// Whether a site is missing.
    pub partial: bool,
    /// The sites that were asked.
    pub sites: Vec<SiteAnswer>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopFunction {
    /// The name.
    pub function: String,
    /// The source file. Empty: unknown.
    pub file: String,
    /// The module. Empty: unknown.
    pub module: String,
    /// The own weight.
    pub weight: i64,
    /// The part of the total, from 0 to 1.
    pub share: f64,
}

/// Returns the functions of a selection. The event is the selected one, or else processor time, or
/// else the first one. A note names units of the event that are left out.
///
/// # Errors
/// Fails if the store fails, or the query needs too much memory.
pub async fn top(hub: &Arc<Hub>, selection: &Selection, rows: usize) -> Result<TopFunctions> {
    let (merged, sites) = queries::merged(hub, selection).await?;
    let rules = selection.rules.clone();
    blocking(move || {
        let all = FunctionProfile::new(&merged)?;
        let functions = match rules.is_empty() {
            true => all,
            false => rules.apply(&all)?,
        };
        let top = of_profile(&merged, &functions, rows);
        Ok(TopFunctions {
            partial: is_partial(&sites),
            sites,
            ..top
        })
    })
    .await
}

/// Returns the functions of a profile.
#[must_use]
pub fn of_profile(profile: &Profile, functions: &FunctionProfile, rows: usize) -> TopFunctions {
    let text = |id: EventId| {
        let event = profile.events.get(id);
        event.map_or(("", ""), |event| {
            (profile.text(event.name), profile.text(event.unit))
        })
    };
    let mut notes = profile.notes.clone();
    let Some(event) = default_event(profile) else {
        return TopFunctions {
            notes,
            ..TopFunctions::default()
        };
    };
    notes.extend(note_of_other_units(profile, event));
    let mut weights = HashMap::new();
    let mut total = 0_i64;
    let mut without_stack = 0_i64;
    for sample in functions.samples.iter().filter(|sample| sample.event == event) {
        total = total.saturating_add(sample.weight);
        let Some((_, site)) = functions.stacks.split(sample.stack) else {
            without_stack = without_stack.saturating_add(sample.weight);
            continue;
        };
        let weight: &mut i64 = weights.entry(site.symbol).or_default();
        *weight = weight.saturating_add(sample.weight);
    }
    let mut list: Vec<TopFunction> = weights
        .into_iter()
        .filter_map(|(symbol, weight)| {
            let symbol = functions.symbols.get(symbol)?;
            Some(TopFunction {
                function: symbol.name.to_string(),
                file: symbol.file.to_string(),
                module: symbol.module.to_string(),
                weight,
                share: if total > 0 {
                    weight as f64 / total as f64
                } else {
                    0.0
                },
            })
        })
        .collect();
    list.sort_by(|a, b| b.weight.cmp(&a.weight).then_with(|| a.function.cmp(&b.function)));
    list.truncate(rows);
    let (event, unit) = text(event);
    if without_stack != 0 {
        notes.push(format!(
            "{without_stack} of {total} {unit} are of samples without a stack, and of no function"
        ));
    }
    if total == i64::MAX && !notes.iter().any(|note| note == TOO_LARGE) {
        notes.push(TOO_LARGE.to_owned());
    }
    TopFunctions {
        event: event.to_owned(),
        unit: unit.to_owned(),
        total,
        rows: list,
        notes,
        ..TopFunctions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::StackId;
    use backtrail_profile::format::folded;

    #[test]
    fn functions_are_ordered_by_own_weight() {
        let profile = folded::read(&b"main;a 3\nmain;b 5\nmain;a;b 1\nmain 1\n"[..]).unwrap();
        let functions = FunctionProfile::new(&profile).unwrap();
        let top = of_profile(&profile, &functions, 2);
        let rows: Vec<_> = top
            .rows
            .iter()
            .map(|row| (row.function.as_str(), row.weight, row.share))
            .collect();
        assert_eq!(rows, [("b", 6, 0.6), ("a", 3, 0.3)]);
        assert_eq!((top.total, top.event.as_str()), (10, "samples"));
        let mut profile = folded::read(&b"main;a 3\n"[..]).unwrap();
        let event = profile.samples[0].event;
        profile.add(event, 5, StackId::EMPTY).unwrap();
        let functions = FunctionProfile::new(&profile).unwrap();
        let top = of_profile(&profile, &functions, 2);
        assert_eq!((top.total, top.rows.len(), top.rows[0].share), (8, 1, 0.375));
        assert_eq!(
            top.notes,
            ["5 of 8 count are of samples without a stack, and of no function"]
        );
        let empty = of_profile(&Profile::default(), &FunctionProfile::default(), 2);
        assert_eq!(empty, TopFunctions::default());
    }
}
