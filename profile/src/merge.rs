//! Merging of profiles.

use crate::branch_stack::{BranchStack, TakenBranch};
use crate::frame::{Frame, FrameId, Function, FunctionId, Line, Module, StringId};
use crate::profile::Profile;
use crate::sample::{Event, EventId, Label, LabelSetId, LabelValue, Sample, Thread, ThreadId};
use crate::stacks::StackId;
use crate::table::{Id, Table};
use crate::{Error, Result};

/// The ids in the target of the ids of a profile.
struct Ids {
    functions: Vec<FunctionId>,
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    events: Vec<EventId>,
    threads: Vec<ThreadId>,
    label_sets: Vec<LabelSetId>,
}

/// Adds the samples of a profile to another one. Equal texts, modules, functions, frames, stacks
/// and events become one. Samples are added beside each other, not added up. An event has the
/// period of both profiles if they agree, or else 0.
///
/// The lines of a frame that both have are those of the target.
///
/// # Errors
///
/// [`Error::Full`] if a table of the target is full. The target then has a part of the samples'
/// tables, and none of the samples.
pub fn merge(target: &mut Profile, source: &Profile) -> Result<()> {
    let ids = tables(target, source)?;
    for (frame, lines) in &source.lines {
        let lines = lines.iter().map(|line| {
            Ok(Line {
                function: mapped(&ids.functions, line.function)?,
                line: line.line,
            })
        });
        let lines = lines.collect::<Result<Box<[Line]>>>()?;
        target.lines.entry(mapped(&ids.frames, *frame)?).or_insert(lines);
    }
    let samples = source.samples.iter().map(|sample| {
        Ok(Sample {
            event: mapped(&ids.events, sample.event)?,
            stack: mapped(&ids.stacks, sample.stack)?,
            thread: sample
                .thread
                .map(|thread| mapped(&ids.threads, thread))
                .transpose()?,
            labels: mapped(&ids.label_sets, sample.labels)?,
            ..*sample
        })
    });
    let samples = samples.collect::<Result<Vec<_>>>()?;
    let branch_stacks = source
        .branch_stacks
        .iter()
        .map(|stack| branch_stack(stack, &ids))
        .collect::<Result<Vec<_>>>()?;
    target.samples.extend(samples);
    target.branch_stacks.extend(branch_stacks);
    add_span(target, source);
    let new = |note: &&String| !target.notes.contains(note);
    let notes: Vec<_> = source.notes.iter().filter(new).cloned().collect();
    target.notes.extend(notes);
    Ok(())
}

fn branch_stack(source: &BranchStack, ids: &Ids) -> Result<BranchStack> {
    let branches = source.branches.iter().map(|branch| {
        Ok(TakenBranch {
            from: mapped(&ids.frames, branch.from)?,
            to: mapped(&ids.frames, branch.to)?,
            is_mispredicted: branch.is_mispredicted,
        })
    });
    Ok(BranchStack {
        stack: mapped(&ids.stacks, source.stack)?,
        branches: branches.collect::<Result<_>>()?,
    })
}

/// Extends the time of the target by the time of the source.
fn add_span(target: &mut Profile, source: &Profile) {
    let end = |profile: &Profile| Some(profile.start?.0.saturating_add(profile.duration?));
    let (ours, theirs) = (end(target), end(source));
    let starts = [target.start, source.start];
    target.start = starts.into_iter().flatten().min();
    target.duration = match (ours.max(theirs), target.start) {
        (Some(end), Some(start)) => Some(end - start.0),
        _ => target.duration.max(source.duration),
    };
}

fn tables(target: &mut Profile, source: &Profile) -> Result<Ids> {
    let strings = each(&source.strings, |text| target.string(text))?;
    let text = |id: StringId| mapped(&strings, id);
    let modules = each(&source.modules, |module| {
        target.modules.intern(Module {
            build_id: module.build_id.clone(),
            path: text(module.path)?,
        })
    })?;
    let functions = each(&source.functions, |function| {
        target.functions.intern(Function {
            name: text(function.name)?,
            linkage_name: text(function.linkage_name)?,
            file: function.file.map(text).transpose()?,
            start_line: function.start_line,
        })
    })?;
    let frames = each(&source.frames, |frame| {
        target.frames.intern(match *frame {
            Frame::Code { module, offset } => Frame::Code {
                module: mapped(&modules, module)?,
                offset,
            },
            Frame::Function { function, line } => Frame::Function {
                function: mapped(&functions, function)?,
                line,
            },
            other @ (Frame::Address(_) | Frame::Lost) => other,
        })
    })?;
    // Callers come before their callees.
    let mut stacks = vec![StackId::EMPTY];
    for (_, caller, frame) in source.stacks.iter() {
        let stack = target
            .stacks
            .push(mapped(&stacks, caller)?, mapped(&frames, frame)?)?;
        stacks.push(stack);
    }
    let events = each(&source.events, |event| {
        target.intern_event(Event {
            name: text(event.name)?,
            unit: text(event.unit)?,
            period: event.period,
        })
    })?;
    let threads = each(&source.threads, |thread| {
        target.threads.intern(Thread {
            process_name: text(thread.process_name)?,
            name: text(thread.name)?,
            ..*thread
        })
    })?;
    let label_sets = each(&source.label_sets, |labels| {
        let labels = labels.iter().map(|label| {
            let value = match label.value {
                LabelValue::Text(value) => LabelValue::Text(text(value)?),
                LabelValue::Number(value, unit) => LabelValue::Number(value, text(unit)?),
            };
            let key = text(label.key)?;
            Ok(Label { key, value })
        });
        let labels = labels.collect::<Result<Vec<_>>>()?;
        target.label_set(labels)
    })?;
    Ok(Ids {
        functions,
        frames,
        stacks,
        events,
        threads,
        label_sets,
    })
}

fn each<I: Id, T: std::hash::Hash + Eq>(
    table: &Table<I, T>,
    add: impl FnMut(&T) -> Result<I>,
) -> Result<Vec<I>> {
    table.iter().map(|(_, value)| value).map(add).collect()
}

fn mapped<I: Id>(ids: &[I], id: I) -> Result<I> {
    // An id beyond its table belongs to another profile, which `Profile`'s methods do not build.
    ids.get(id.index()).copied().ok_or(Error::Full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(period: u64, weight: i64) -> Profile {
        let mut profile = Profile::default();
        let event = profile.event("cpu", "nanoseconds", period).unwrap();
        profile.add(event, weight, StackId::EMPTY).unwrap();
        profile
    }

    #[test]
    fn event_with_several_periods_is_one() {
        for (periods, expected) in [
            ([10, 10, 10], 10),
            ([10, 20, 20], 0),
            ([10, 20, 0], 0),
            ([0, 0, 20], 0),
        ] {
            let mut merged = Profile::default();
            for (period, weight) in periods.into_iter().zip([3, 5, 7]) {
                merge(&mut merged, &profile(period, weight)).unwrap();
            }
            let events: Vec<_> = merged.events.iter().collect();
            let [(id, event)] = events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((merged.total(id), event.period), (15, expected));
        }
    }

    #[test]
    fn events_with_other_units_stay_apart() {
        let mut merged = profile(10, 3);
        let other = merged.event("cpu", "microseconds", 10).unwrap();
        merged.add(other, 1, StackId::EMPTY).unwrap();
        merge(&mut merged, &profile(20, 5)).unwrap();
        let totals: Vec<_> = merged.events.iter().map(|(id, _)| merged.total(id)).collect();
        assert_eq!(totals, [8, 1]);
    }
}
