//! The event that views of a selection show first, and the units that its sum leaves out.

use super::selection::FIRST_EVENT;
use backtrail_profile::{EventId, Profile};
use std::collections::BTreeMap;

/// The unit that is shown first if an event has several.
const FIRST_UNIT: &str = "nanoseconds";

/// Returns the name and unit of an event.
fn texts(profile: &Profile, id: EventId) -> (&str, &str) {
    let event = profile.events.get(id);
    event.map_or(("", ""), |event| {
        (profile.text(event.name), profile.text(event.unit))
    })
}

/// Returns the events with samples, and the number of their samples. Without samples, all events.
fn events(profile: &Profile) -> BTreeMap<EventId, usize> {
    let mut counts = BTreeMap::new();
    for sample in &profile.samples {
        *counts.entry(sample.event).or_default() += 1;
    }
    match counts.is_empty() {
        true => profile.events.iter().map(|(id, _)| (id, 0)).collect(),
        false => counts,
    }
}

/// Returns the event that is shown first: processor time if there are samples of it, or else the
/// first event with samples. Of several units it is nanoseconds, or else the one with the most
/// samples.
#[must_use]
pub fn default_event(profile: &Profile) -> Option<EventId> {
    let events = events(profile);
    let name = |id: EventId| texts(profile, id).0;
    let mut ids = events.keys().copied();
    let processor_time = ids.clone().find(|id| name(*id) == FIRST_EVENT);
    let chosen = name(processor_time.or_else(|| ids.next())?);
    let units = events.into_iter().filter(|(id, _)| name(*id) == chosen);
    let first = units.max_by_key(|(id, count)| rank(texts(profile, *id), *count));
    first.map(|(id, _)| id)
}

/// Returns the rank of an event among those that may be shown first.
pub(super) fn rank((event, unit): (&str, &str), count: usize) -> (bool, bool, usize) {
    (event == FIRST_EVENT, unit == FIRST_UNIT, count)
}

/// Returns a sentence about other units of an event. `None`: there are none.
#[must_use]
pub fn note_of_other_units(profile: &Profile, event: EventId) -> Option<String> {
    let (name, unit) = texts(profile, event);
    let all = events(profile);
    let others = all.keys().map(|id| texts(profile, *id));
    let others = others.filter(|(other, _)| *other == name);
    note_of_units(name, unit, others.map(|(_, other)| other))
}

/// Returns a sentence about the units of an event that are not the shown one. `None`: there are
/// none.
pub(super) fn note_of_units<'a>(
    event: &str,
    shown: &str,
    units: impl Iterator<Item = &'a str>,
) -> Option<String> {
    let others: Vec<&str> = units.filter(|unit| *unit != shown).collect();
    let verb = match others.len() {
        0 => return None,
        1 => "is",
        _ => "are",
    };
    Some(format!(
        "the selection also has {event} in {}, which {verb} not part of this sum",
        others.join(" and ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_profile::StackId;

    fn shown(events: &[(&str, &str, usize)]) -> (String, Option<String>) {
        let mut profile = Profile::default();
        for (name, unit, count) in events {
            let event = profile.event(name, unit, 0).unwrap();
            for _ in 0..*count {
                profile.add(event, 1, StackId::EMPTY).unwrap();
            }
        }
        let event = default_event(&profile).unwrap();
        let (name, unit) = texts(&profile, event);
        (format!("{name} {unit}"), note_of_other_units(&profile, event))
    }

    #[test]
    fn default_event_is_processor_time_in_nanoseconds() {
        let note = |units: &str| {
            Some(format!(
                "the selection also has cpu in {units} not part of this sum"
            ))
        };
        for (events, expected, left_out) in [
            (
                &[("alloc", "bytes", 9), ("cpu", "count", 1)][..],
                "cpu count",
                None,
            ),
            (
                &[("cpu", "count", 9), ("cpu", "nanoseconds", 1)],
                "cpu nanoseconds",
                note("count, which is"),
            ),
            (
                &[("cpu", "count", 1), ("cpu", "ticks", 2), ("cpu", "cycles", 1)],
                "cpu ticks",
                note("count and cycles, which are"),
            ),
            // Events without samples are not shown first.
            (
                &[("cpu", "nanoseconds", 0), ("cpu", "count", 1)],
                "cpu count",
                None,
            ),
            (
                &[("cpu", "nanoseconds", 0), ("wall", "count", 1)],
                "wall count",
                None,
            ),
            (
                &[("wall", "count", 1), ("off-cpu", "nanoseconds", 5)],
                "wall count",
                None,
            ),
            (&[("cpu", "nanoseconds", 0)], "cpu nanoseconds", None),
        ] {
            assert_eq!(shown(events), (expected.to_owned(), left_out), "{events:?}");
        }
        assert_eq!(default_event(&Profile::default()), None);
    }
}
