//! pprof's `profile.proto`, compressed by gzip: calls, instructions and time of each stack.

mod schema;

use crate::stacks::{Stack, Stacks};
use crate::{Error, Functions, Result, Timeline, Unit};
use backtrail_decoder::Watch;
use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use rustc_hash::FxHashMap;
use schema::{
    FunctionMessage, LabelMessage, LineMessage, LocationMessage, MappingMessage, ProfileMessage,
    SampleMessage, ValueTypeMessage,
};
use std::io::Write;

/// Writes the self cost of each stack.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let mut strings = Strings::new();
    let mut profile = ProfileMessage {
        sample_type: value_types(timeline.unit(), &mut strings),
        ..ProfileMessage::default()
    };
    let thread_key = strings.number("thread");
    for track in timeline.tracks() {
        let stacks = Stacks::of(timeline, track, &mut functions, watch)?;
        let label = LabelMessage {
            key: thread_key,
            text: strings.number(&track.label()),
        };
        let samples = stacks
            .iter()
            .map(|stack| sample(&stacks, stack, timeline.unit(), &label));
        profile.sample.extend(samples);
        profile.duration_nanos = profile.duration_nanos.max(match timeline.unit() {
            Unit::Nanoseconds => timeline.length(track) as i64,
            Unit::Ticks | Unit::Instructions => 0,
        });
    }
    add_functions(timeline, &functions, &mut strings, &mut profile);
    profile.comment = timeline.notes().iter().map(|note| strings.number(note)).collect();
    profile.string_table = strings.list;
    let mut bytes = Vec::new();
    profile
        .encode(&mut bytes)
        .map_err(|_| Error::Full("a pprof profile"))?;
    let mut compressor = GzEncoder::new(out, Compression::default());
    compressor.write_all(&bytes)?;
    compressor.finish()?;
    Ok(())
}

/// Returns the types of a sample's values. pprof shows the last one by default.
fn value_types(unit: Unit, strings: &mut Strings) -> Vec<ValueTypeMessage> {
    let counts = [("calls", "count"), ("instructions", "count")].into_iter();
    let time = match unit {
        Unit::Nanoseconds => Some(("time", "nanoseconds")),
        Unit::Ticks => Some(("ticks", "count")),
        Unit::Instructions => None,
    };
    counts
        .chain(time)
        .map(|(kind, unit)| ValueTypeMessage {
            kind: strings.number(kind),
            unit: strings.number(unit),
        })
        .collect()
}

fn sample(stacks: &Stacks, stack: &Stack, unit: Unit, thread: &LabelMessage) -> SampleMessage {
    let cost = stack.cost;
    let time = (unit != Unit::Instructions).then_some(cost.time);
    SampleMessage {
        location_id: stacks.functions(stack).map(|id| u64::from(id.0) + 1).collect(),
        value: [cost.calls, cost.instructions]
            .into_iter()
            .chain(time)
            .map(|value| value as i64)
            .collect(),
        label: vec![*thread],
    }
}

/// Adds the functions. Each has one location with the same number, at its entry.
fn add_functions(
    timeline: &Timeline<'_>,
    functions: &Functions,
    strings: &mut Strings,
    profile: &mut ProfileMessage,
) {
    let mut mappings = FxHashMap::default();
    let session = timeline.session();
    let module_of = |function: &crate::Function| {
        let mut processes = session.processes().iter();
        let process = processes.find(|process| process.pid == function.pid)?;
        process.symbols_at(function.version).module_at(function.entry)
    };
    let mut list: Vec<_> = functions
        .iter()
        .map(|(id, function)| (id, function, module_of(function)))
        .collect();
    // The format requires the program's own file as the first mapping.
    list.sort_by_key(|(_, _, module)| module.is_none_or(|module| Some(&*module.name) != session.program()));
    for (id, function, module) in list {
        let mapping_id = module.map_or(0, |module| {
            let next = profile.mapping.len() as u64 + 1;
            let file = module.file.as_ref().map(std::sync::Arc::as_ptr);
            let key = (function.pid, module.range.start, file);
            let id = *mappings.entry(key).or_insert(next);
            if id == next {
                let build_id = module.file.as_ref().and_then(|file| file.build_id());
                profile.mapping.push(MappingMessage {
                    id,
                    memory_start: module.range.start.0,
                    memory_limit: module.range.end.0,
                    filename: strings.number(&module.name),
                    build_id: build_id.map_or(0, |id| strings.number(&id.to_string())),
                    has_functions: true,
                    has_filenames: true,
                });
            }
            id
        });
        let number = u64::from(id.0) + 1;
        let line = function.declared.as_ref().map_or(0, |&(_, line)| i64::from(line));
        profile.function.push(FunctionMessage {
            id: number,
            name: strings.number(&function.name),
            system_name: strings.number(&function.linkage_name),
            filename: function
                .declared
                .as_ref()
                .map_or(0, |(file, _)| strings.number(file)),
            start_line: line,
        });
        profile.location.push(LocationMessage {
            id: number,
            mapping_id,
            address: function.entry.0,
            line: vec![LineMessage {
                function_id: number,
                line,
            }],
        });
    }
}

/// The string table; its first string is empty.
struct Strings {
    list: Vec<String>,
    known: FxHashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let known = std::iter::once((String::new(), 0)).collect();
        Self {
            list: vec![String::new()],
            known,
        }
    }

    fn number(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.known.get(text) {
            return known;
        }
        let number = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.known.insert(text.to_owned(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::Strings;

    #[test]
    fn strings_are_unique_and_the_first_is_empty() {
        let mut strings = Strings::new();
        assert_eq!(
            (strings.number("a"), strings.number(""), strings.number("a")),
            (1, 0, 1)
        );
        assert_eq!(strings.list, ["", "a"]);
    }
}
