//! Reading a profile, and selecting the samples and frames of a view.

use super::bundle;
use super::symbolize::symbolize;
use crate::args::ProfileSelection;
use crate::exit::Failure;
use backtrail_export::{CallProfile, CallTimes, FunctionCalls};
use backtrail_profile::{
    CallSummaries, Collapse, EventId, Filter, FunctionProfile, Profile, Rules, StackId, SymbolId, ThreadId,
    format,
};
use backtrail_symbolizer::DebugSearch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The selected samples of a profile, by functions.
pub struct Selected {
    /// The whole profile.
    pub profile: Profile,
    /// The samples that were selected.
    pub functions: FunctionProfile,
    /// The event that is shown, or shown first.
    pub event: EventId,
    /// The single calls, if the profile is a bundle.
    pub calls: Option<SelectedCalls>,
}

/// The calls of the selected threads. Rules on stacks do not apply to them.
pub struct SelectedCalls {
    /// Their lengths.
    pub times: CallTimes,
    /// The functions before rules.
    functions: FunctionProfile,
    /// The stack of these functions for each stack of the profile.
    stacks: Vec<StackId>,
    has_rules: bool,
}

impl SelectedCalls {
    /// Returns the calls of a function of `shown`.
    pub fn of_function(&self, shown: &FunctionProfile, symbol: SymbolId) -> FunctionCalls {
        let original = shown
            .symbol(symbol)
            .and_then(|symbol| self.functions.symbols.find(symbol));
        let of = |symbol| self.times.of_function(&self.functions, &self.stacks, symbol);
        original.map(of).unwrap_or_default()
    }

    /// Returns examples for the functions and stacks of `shown`. Stacks that rules changed have
    /// none.
    pub fn summaries(&self, shown: &FunctionProfile) -> CallSummaries {
        let mut summaries = self.times.summaries(&self.functions, &self.stacks);
        if self.has_rules {
            summaries.by_stack.clear();
            let found = |(symbol, calls)| {
                let symbol = self.functions.symbol(symbol)?;
                Some((shown.symbols.find(symbol)?, calls))
            };
            let by_function = std::mem::take(&mut summaries.by_function);
            summaries.by_function = by_function.into_iter().filter_map(found).collect();
        }
        summaries
    }
}

impl Selected {
    /// Reads a profile, and applies the selection. The samples are those of one event.
    pub fn open(path: &Path, selection: &ProfileSelection) -> Result<Self, Failure> {
        Self::read(path, selection, true)
    }

    /// Reads a profile, and applies the selection. The samples are those of all events, unless the
    /// selection names one.
    pub fn open_all_events(path: &Path, selection: &ProfileSelection) -> Result<Self, Failure> {
        Self::read(path, selection, selection.event.is_some())
    }

    /// Reads two profiles, and applies the selection to both. The samples of each are those of one
    /// event, which both have if there is such an event.
    pub fn open_pair(paths: [&Path; 2], selection: &ProfileSelection) -> Result<[Self; 2], Failure> {
        let [before, after] = [read(paths[0])?, read(paths[1])?];
        let common = match selection.event {
            Some(_) => None,
            None => common_event(&before.0, &after.0),
        };
        let events = match common {
            Some(events) => events,
            None => {
                let name = selection.event.as_deref();
                [
                    event(&before.0, name, paths[0])?,
                    event(&after.0, name, paths[1])?,
                ]
            }
        };
        Ok([
            Self::select(before, events[0], selection, true)?,
            Self::select(after, events[1], selection, true)?,
        ])
    }

    fn read(path: &Path, selection: &ProfileSelection, is_one_event: bool) -> Result<Self, Failure> {
        let read = read(path)?;
        let event = event(&read.0, selection.event.as_deref(), path)?;
        Self::select(read, event, selection, is_one_event)
    }

    fn select(
        (mut profile, mut times): (Profile, Option<CallTimes>),
        event: EventId,
        selection: &ProfileSelection,
        is_one_event: bool,
    ) -> Result<Self, Failure> {
        let mut filter = Filter {
            event: None,
            time: None,
            thread: selection.thread.clone(),
            labels: selection.label.clone(),
        };
        let mut samples = std::mem::take(&mut profile.samples);
        if let Some(times) = &mut times {
            let chosen = samples.iter().filter(|sample| filter.matches(&profile, sample));
            let threads: BTreeSet<ThreadId> = chosen.filter_map(|sample| sample.thread).collect();
            times.retain(|thread| threads.contains(&thread));
        }
        filter.event = is_one_event.then_some(event);
        samples.retain(|sample| filter.matches(&profile, sample));
        profile.samples = samples;
        check_sums(&profile)?;
        let rules = rules(selection);
        let (original, stacks) = FunctionProfile::with_stacks(&profile)?;
        let calls = times.map(|times| SelectedCalls {
            times,
            functions: original.clone(),
            stacks,
            has_rules: !rules.is_empty(),
        });
        let functions = match rules.is_empty() {
            true => original,
            false => {
                let applied = rules.apply(&original)?;
                profile
                    .notes
                    .extend(emptied(&profile, event, &original, &applied));
                applied
            }
        };
        Ok(Self {
            profile,
            functions,
            event,
            calls,
        })
    }

    /// Returns the name and unit of the event.
    pub fn event(&self) -> (&str, &str) {
        let event = self.profile.events.get(self.event);
        event.map_or(("", ""), |event| {
            (self.profile.text(event.name), self.profile.text(event.unit))
        })
    }

    /// Returns the sum of the selected weights.
    pub fn total(&self) -> i64 {
        let weights = self.functions.samples.iter().map(|sample| sample.weight);
        weights.fold(0, i64::saturating_add)
    }

    /// Returns the function of this name, or the only one that contains it.
    pub fn function(&self, name: &str) -> Result<SymbolId, Failure> {
        let symbols = || self.functions.symbols.iter();
        if let Some((id, _)) = symbols().find(|(_, symbol)| &*symbol.name == name) {
            return Ok(id);
        }
        let mut found = symbols().filter(|(_, symbol)| symbol.name.contains(name));
        match (found.next(), found.next()) {
            (Some((id, _)), None) => Ok(id),
            (None, _) => Err(Failure::failed(format_args!(
                "the profile has no function {name}; `--view top` lists them"
            ))),
            (Some((_, one)), Some((_, other))) => Err(Failure::failed(format_args!(
                "{name} is part of several functions, as {} and {}; write the whole name",
                one.name, other.name
            ))),
        }
    }
}

/// Checks that sums of weights do not exceed 2^63 - 1.
fn check_sums(profile: &Profile) -> Result<(), Failure> {
    let mut sums: BTreeMap<EventId, i128> = BTreeMap::new();
    for sample in &profile.samples {
        let sum = sums.entry(sample.event).or_default();
        *sum = sum.saturating_add(i128::from(sample.weight).abs());
    }
    match sums.values().all(|sum| i64::try_from(*sum).is_ok()) {
        true => Ok(()),
        false => Err(Failure::of(
            "the weights of the samples add up to more than 2^63 - 1; select fewer with --thread or --label",
            true,
        )),
    }
}

fn rules(selection: &ProfileSelection) -> Rules {
    let collapse = |(name, pattern): &(String, regex::Regex)| Collapse {
        pattern: pattern.clone(),
        name: name.clone(),
    };
    Rules {
        focus: selection.focus.clone(),
        ignore: selection.ignore.clone(),
        show_from: selection.show_from.clone(),
        hide: selection.hide.clone(),
        collapse: selection.collapse.iter().map(collapse).collect(),
    }
}

/// Returns a sentence about samples of an event whose frames the rules leave out.
fn emptied(
    profile: &Profile,
    event: EventId,
    original: &FunctionProfile,
    applied: &FunctionProfile,
) -> Option<String> {
    let weight = |functions: &FunctionProfile, is_empty: bool| {
        let samples = functions.samples.iter().filter(|sample| sample.event == event);
        let samples = samples.filter(|sample| !is_empty || sample.stack == StackId::EMPTY);
        samples.fold(0_i64, |sum, sample| sum.saturating_add(sample.weight))
    };
    let emptied = weight(applied, true).saturating_sub(weight(original, true));
    let unit = profile.text(profile.events.get(event)?.unit);
    (emptied > 0).then(|| {
        format!(
            "{} of {} are of samples whose frames the options leave out, and of no function",
            super::weight::text(emptied, unit),
            super::weight::text(weight(applied, false), unit)
        )
    })
}

/// Returns the last event that samples of both profiles have, with its number in each.
fn common_event(before: &Profile, after: &Profile) -> Option<[EventId; 2]> {
    let events = |profile: &Profile| -> BTreeSet<EventId> {
        profile.samples.iter().map(|sample| sample.event).collect()
    };
    let texts = |profile: &Profile, id: EventId| {
        let event = profile.events.get(id)?;
        Some([event.name, event.unit].map(|text| profile.text(text).to_owned()))
    };
    let others = events(after);
    events(before).into_iter().rev().find_map(|event| {
        let wanted = texts(before, event)?;
        let mut others = others.iter().copied();
        let other = others.find(|other| texts(after, *other).as_ref() == Some(&wanted))?;
        Some([event, other])
    })
}

/// Returns the refusal to compare events, given as names and units.
pub fn different_units([event, unit]: [&str; 2], [other_event, other_unit]: [&str; 2]) -> Failure {
    Failure::failed(format_args!(
        "{event} is in {unit} and {other_event} in {other_unit}; name events of one unit with --event"
    ))
}

/// Reads a profile of any known format, or a bundle with the lengths of its calls.
fn read(path: &Path) -> Result<(Profile, Option<CallTimes>), Failure> {
    if bundle::is_bundle(path) {
        // All names come from the files of the bundle.
        let CallProfile { profile, times } = bundle::read(path)?;
        return Ok((profile, Some(times)));
    }
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", path.display())))?;
    let mut profile = format::read(&bytes)
        .map_err(|error| Failure::of(format_args!("{}: {error}", path.display()), error.is_refused()))?;
    let notes = symbolize(&mut profile, &DebugSearch::default())?;
    profile.notes.extend(notes);
    Ok((profile, None))
}

/// Returns the event of this name, or the last one that has samples. perf adds events without any.
fn event(profile: &Profile, name: Option<&str>, path: &Path) -> Result<EventId, Failure> {
    let name_of = |event: &backtrail_profile::Event| profile.text(event.name).to_owned();
    let last = profile.samples.iter().map(|sample| sample.event).max();
    let found = match name {
        None => profile
            .events
            .iter()
            .filter(|(id, _)| last.is_none_or(|last| *id == last))
            .last(),
        Some(name) => profile.events.iter().find(|(_, event)| name_of(event) == name),
    };
    found.map(|(id, _)| id).ok_or_else(|| {
        let events: Vec<_> = profile.events.iter().map(|(_, event)| name_of(event)).collect();
        let path = path.display();
        match (name, events.is_empty()) {
            (Some(name), false) => Failure::failed(format_args!(
                "{path} has no event {name}; it has {}",
                events.join(", ")
            )),
            _ => Failure::failed(format_args!("{path} has no events and no samples")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_event_with_samples_is_shown() {
        let mut profile = Profile::default();
        let [cpu, other, _] =
            ["cpu-clock", "faults", "dummy:HG"].map(|name| profile.event(name, "count", 1).unwrap());
        let path = Path::new("perf.data");
        assert_eq!(
            profile.events.get(event(&profile, None, path).ok().unwrap()),
            profile.events.iter().last().map(|(_, event)| event)
        );
        profile.add(other, 1, StackId::EMPTY).unwrap();
        profile.add(cpu, 1, StackId::EMPTY).unwrap();
        assert_eq!(event(&profile, None, path).ok(), Some(other));
        assert_eq!(event(&profile, Some("cpu-clock"), path).ok(), Some(cpu));
    }

    #[test]
    fn compared_event_is_in_both_profiles() {
        let of_events = |names: &[&str]| {
            let mut profile = Profile::default();
            for name in names {
                let event = profile.event(name, "nanoseconds", 1).unwrap();
                profile.add(event, 1, StackId::EMPTY).unwrap();
            }
            profile
        };
        let (one, two) = (of_events(&["cpu"]), of_events(&["cpu", "off-cpu"]));
        let name =
            |profile: &Profile, id: EventId| profile.text(profile.events.get(id).unwrap().name).to_owned();
        for (before, after) in [(&one, &two), (&two, &one)] {
            let [first, second] = common_event(before, after).unwrap();
            assert_eq!(
                (name(before, first), name(after, second)),
                ("cpu".into(), "cpu".into())
            );
        }
        assert!(common_event(&one, &of_events(&["wakeups"])).is_none());
    }

    #[test]
    fn sums_that_do_not_fit_are_refused() {
        let mut profile = Profile::default();
        let events = ["cpu", "faults"].map(|name| profile.event(name, "count", 1).unwrap());
        for event in events {
            profile.add(event, i64::MAX, StackId::EMPTY).unwrap();
        }
        assert!(check_sums(&profile).is_ok());
        profile.add(events[0], 1, StackId::EMPTY).unwrap();
        assert!(check_sums(&profile).is_err());
    }
}
