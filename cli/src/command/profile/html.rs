//! Pages for browsers: `--html` of `backtrail profile report` and `diff`.

use super::calls;
use super::selected::{Selected, different_units};
use crate::args::{ProfileDiff, ProfileReport};
use crate::exit::Failure;
use crate::output_file;
use backtrail_profile::format::html::{self, ComparedProfile, EventPair, ViewCalls, ViewData};
use backtrail_profile::{EventId, Profile};
use std::path::Path;

/// Writes the page of a profile.
pub fn report(args: &ProfileReport, page: &Path) -> Result<(), Failure> {
    output_file::refuse_existing(page, args.overwrite)?;
    let selected = Selected::open_all_events(&args.file, &args.selection)?;
    let name = args.file.display().to_string();
    write(&data(&name, &args.file, &selected)?, page, args.overwrite)
}

/// Returns the data of a profile's page.
pub fn data(name: &str, file: &Path, selected: &Selected) -> Result<ViewData, Failure> {
    let Selected {
        profile, functions, ..
    } = selected;
    let Some(calls) = &selected.calls else {
        return Ok(ViewData::of_profile(name, profile, functions, selected.event));
    };
    // The page may be read in another folder.
    let command = calls::command(&std::path::absolute(file)?);
    let calls = ViewCalls {
        command: &command,
        summaries: &calls.summaries(functions),
    };
    Ok(ViewData::with_calls(
        name,
        profile,
        functions,
        selected.event,
        Some(calls),
    ))
}

/// Writes the page of a comparison.
pub fn diff(args: &ProfileDiff, page: &Path) -> Result<(), Failure> {
    output_file::refuse_existing(page, args.overwrite)?;
    let before = Selected::open_all_events(&args.before, &args.selection)?;
    let after = Selected::open_all_events(&args.after, &args.selection)?;
    let events = pairs(&before, &after)?;
    let names = [&args.before, &args.after].map(|path| path.display().to_string());
    let data = ViewData::of_comparison(
        side(&names[0], &before),
        side(&names[1], &after),
        &events,
        args.normalize,
    )?;
    write(&data, page, args.overwrite)
}

fn side<'a>(name: &'a str, selected: &'a Selected) -> ComparedProfile<'a> {
    ComparedProfile {
        name,
        profile: &selected.profile,
        functions: &selected.functions,
    }
}

/// Returns the events that both profiles have, or the shown ones if these have the same unit. The
/// shown event of the first profile is the last pair, if both have it.
fn pairs(before: &Selected, after: &Selected) -> Result<Vec<EventPair>, Failure> {
    let texts = |profile: &Profile, id: EventId| {
        let event = profile.events.get(id)?;
        Some([event.name, event.unit].map(|text| profile.text(text).to_owned()))
    };
    let events = |selected: &Selected| {
        let mut events: Vec<_> = selected.functions.samples.iter().map(|one| one.event).collect();
        events.push(selected.event);
        events.sort_unstable();
        events.dedup();
        events
    };
    let others = events(after);
    let same = |event: EventId| {
        let wanted = texts(&before.profile, event);
        let mut others = others.iter().copied();
        others.find(|other| texts(&after.profile, *other) == wanted)
    };
    let mut pairs: Vec<EventPair> = events(before)
        .into_iter()
        .filter_map(|event| Some((event, same(event)?)))
        .collect();
    pairs.sort_by_key(|(event, _)| *event == before.event);
    if pairs.is_empty() {
        let ((event, unit), (other_event, other_unit)) = (before.event(), after.event());
        if unit != other_unit {
            return Err(different_units([event, unit], [other_event, other_unit]));
        }
        pairs.push((before.event, after.event));
    }
    Ok(pairs)
}

fn write(data: &ViewData, page: &Path, overwrite: bool) -> Result<(), Failure> {
    output_file::write_atomically(page, overwrite, |out| Ok(html::write(data, out)?))
}
