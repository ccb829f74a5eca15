//! The data of a page: texts, frames and stacks once, and samples added up.

use super::time_axis::TimeAxis;
use super::view_calls::{CallData, ViewCalls};
use crate::Result;
use crate::diff::Comparison;
use crate::frame::StringId;
use crate::function_profile::{FunctionProfile, Site, SiteSample, SymbolId};
use crate::profile::Profile;
use crate::sample::EventId;
use crate::stacks::StackId;
use crate::table::Id;
use indexmap::IndexSet;
use serde::Serialize;
use std::collections::BTreeMap;

/// The version of the data, which the page checks.
const FORMAT: &str = "backtrail-profile-view/1";

/// A profile of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct ComparedProfile<'a> {
    /// Its name.
    pub name: &'a str,
    /// The events and notes.
    pub profile: &'a Profile,
    /// The samples.
    pub functions: &'a FunctionProfile,
}

/// An event of the first profile, and the one of the second that it is compared with.
pub type EventPair = (EventId, EventId);

/// The data of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ViewData {
    format: &'static str,
    names: Vec<String>,
    events: Vec<EventName>,
    event: usize,
    normalize: bool,
    strings: Vec<String>,
    functions: FunctionColumns,
    frames: FrameColumns,
    stacks: StackColumns,
    samples: Vec<SampleColumns>,
    time: Option<TimeAxis>,
    calls: Option<CallData>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crashes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exact_calls: Option<String>,
    notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct EventName {
    name: String,
    unit: String,
}

/// Indexes of texts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct FunctionColumns {
    name: Vec<usize>,
    file: Vec<usize>,
    module: Vec<usize>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct FrameColumns {
    function: Vec<usize>,
    line: Vec<u32>,
}

/// Stacks from 1 on. The stack 0 is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct StackColumns {
    caller: Vec<usize>,
    frame: Vec<usize>,
}

/// Samples, added up by event, stack and interval of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct SampleColumns {
    event: Vec<usize>,
    stack: Vec<usize>,
    weight: Vec<i64>,
    /// -1: no time. Empty: no sample has a time.
    interval: Vec<i64>,
}

impl ViewData {
    /// Returns the data of a profile, with all events that have samples. `event` is shown first.
    #[must_use]
    pub fn of_profile(name: &str, profile: &Profile, functions: &FunctionProfile, event: EventId) -> Self {
        Self::with_calls(name, profile, functions, event, None)
    }

    /// Returns the same with examples of calls.
    #[must_use]
    pub fn with_calls(
        name: &str,
        profile: &Profile,
        functions: &FunctionProfile,
        event: EventId,
        calls: Option<ViewCalls<'_>>,
    ) -> Self {
        let mut events: Vec<EventId> = functions.samples.iter().map(|sample| sample.event).collect();
        events.push(event);
        events.sort_unstable();
        events.dedup();
        let times = functions.samples.iter().filter_map(|sample| sample.time);
        let time = TimeAxis::new(times.map(|time| time.0));
        let tables = Tables::new(functions, &[&functions.samples]);
        let samples = tables.samples(&functions.samples, &events, time.as_ref());
        let calls = calls.map(|calls| tables.calls(calls));
        let mut data = tables.finish(vec![samples]);
        data.calls = calls;
        data.names = vec![name.to_owned()];
        data.event = events.iter().position(|one| *one == event).unwrap_or(0);
        data.events = events.iter().map(|event| event_name(profile, *event)).collect();
        data.time = time;
        data.notes.clone_from(&profile.notes);
        data
    }

    /// Returns the data of a comparison, without times. The last pair of events is shown first.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::Error::Full) if a table would have 2^32 entries.
    pub fn of_comparison(
        before: ComparedProfile<'_>,
        after: ComparedProfile<'_>,
        events: &[EventPair],
        normalize: bool,
    ) -> Result<Self> {
        let comparison = Comparison::new(before.functions, after.functions)?;
        let [first, second] = comparison.samples();
        let tables = Tables::new(&comparison.profile, &[first, second]);
        let (left, right): (Vec<_>, Vec<_>) = events.iter().copied().unzip();
        let samples = vec![
            tables.samples(first, &left, None),
            tables.samples(second, &right, None),
        ];
        let mut data = tables.finish(samples);
        data.names = vec![before.name.to_owned(), after.name.to_owned()];
        data.events = left
            .iter()
            .map(|event| event_name(before.profile, *event))
            .collect();
        data.event = events.len().saturating_sub(1);
        data.normalize = normalize;
        for side in [before, after] {
            let notes = side.profile.notes.iter();
            data.notes
                .extend(notes.map(|note| format!("{}: {note}", side.name)));
        }
        Ok(data)
    }

    /// Returns the same with an address of crashes, to which a name of a function is added.
    #[must_use]
    pub fn with_crashes(mut self, address: &str) -> Self {
        self.crashes = Some(address.to_owned());
        self
    }

    /// Returns the same with an address of exact calls, to which a name of a function is added.
    #[must_use]
    pub fn with_exact_calls(mut self, address: &str) -> Self {
        self.exact_calls = Some(address.to_owned());
        self
    }

    /// Returns the title of the page.
    pub(super) fn title(&self) -> String {
        self.names.join(" → ")
    }
}

fn event_name(profile: &Profile, event: EventId) -> EventName {
    let event = profile.events.get(event);
    let text = |id: Option<StringId>| id.map_or("", |id| profile.text(id)).to_owned();
    EventName {
        name: text(event.map(|event| event.name)),
        unit: text(event.map(|event| event.unit)),
    }
}

/// The tables that samples refer to.
struct Tables<'a> {
    functions: &'a FunctionProfile,
    strings: IndexSet<&'a str>,
    symbols: IndexSet<SymbolId>,
    frames: IndexSet<(usize, u32)>,
    stacks: StackColumns,
    /// The number of each stack in the page. 0: the empty one, or one without samples.
    numbers: Vec<usize>,
}

impl<'a> Tables<'a> {
    /// Adds the stacks of samples, and all that these stacks refer to.
    fn new(functions: &'a FunctionProfile, samples: &[&[SiteSample]]) -> Self {
        let mut tables = Self {
            functions,
            strings: IndexSet::new(),
            symbols: IndexSet::new(),
            frames: IndexSet::new(),
            stacks: StackColumns::default(),
            numbers: vec![0],
        };
        let mut is_needed = vec![false; functions.stacks.len()];
        for sample in samples.iter().copied().flatten() {
            mark(functions, sample.stack, &mut is_needed);
        }
        for (stack, caller, site) in functions.stacks.iter() {
            let number = match is_needed.get(stack.index()) {
                Some(true) => {
                    let (function, _) = tables.symbols.insert_full(site.symbol);
                    let (frame, _) = tables.frames.insert_full((function, line_of(functions, site)));
                    tables.stacks.caller.push(tables.number(caller));
                    tables.stacks.frame.push(frame);
                    tables.stacks.frame.len()
                }
                _ => 0,
            };
            tables.numbers.push(number);
        }
        tables
    }

    fn number(&self, stack: StackId) -> usize {
        self.numbers.get(stack.index()).copied().unwrap_or(0)
    }

    /// Returns samples, added up. The event of a sample is its index in `events`.
    fn samples(&self, samples: &[SiteSample], events: &[EventId], time: Option<&TimeAxis>) -> SampleColumns {
        let events: BTreeMap<EventId, usize> = events.iter().copied().zip(0..).collect();
        let mut sums: BTreeMap<(usize, i64, usize), i64> = BTreeMap::new();
        for sample in samples {
            let Some(event) = events.get(&sample.event).copied() else {
                continue;
            };
            let interval = time
                .zip(sample.time)
                .map_or(-1, |(axis, time)| axis.interval(time.0));
            let sum = sums
                .entry((event, interval, self.number(sample.stack)))
                .or_default();
            *sum = sum.saturating_add(sample.weight);
        }
        let mut columns = SampleColumns::default();
        for ((event, interval, stack), weight) in sums {
            columns.event.push(event);
            columns.stack.push(stack);
            columns.weight.push(weight);
            if time.is_some() {
                columns.interval.push(interval);
            }
        }
        columns
    }

    /// Returns the calls of the functions and stacks with samples.
    fn calls(&self, calls: ViewCalls<'_>) -> CallData {
        let mut data = CallData::new(calls);
        for (symbol, calls) in &calls.summaries.by_function {
            if let Some(number) = self.symbols.get_index_of(symbol) {
                data.functions.push(number, calls);
            }
        }
        for (stack, calls) in &calls.summaries.by_stack {
            let number = self.number(*stack);
            if number > 0 {
                data.stacks.push(number, calls);
            }
        }
        data
    }

    fn finish(mut self, samples: Vec<SampleColumns>) -> ViewData {
        let mut functions = FunctionColumns::default();
        for symbol in &self.symbols {
            let symbol = self.functions.symbol(*symbol);
            let mut text = |text: Option<&'a str>| self.strings.insert_full(text.unwrap_or("")).0;
            functions.name.push(text(symbol.map(|symbol| &*symbol.name)));
            functions.file.push(text(symbol.map(|symbol| &*symbol.file)));
            functions.module.push(text(symbol.map(|symbol| &*symbol.module)));
        }
        let (function, line) = self.frames.into_iter().unzip();
        ViewData {
            format: FORMAT,
            names: Vec::new(),
            events: Vec::new(),
            event: 0,
            normalize: false,
            strings: self.strings.into_iter().map(str::to_owned).collect(),
            functions,
            frames: FrameColumns { function, line },
            stacks: self.stacks,
            samples,
            time: None,
            calls: None,
            crashes: None,
            exact_calls: None,
            notes: Vec::new(),
        }
    }
}

/// Returns the line of a frame, if it is in the file of the function, which the page shows with it.
fn line_of(functions: &FunctionProfile, site: Site) -> u32 {
    let symbol = functions.symbol(site.symbol);
    match symbol.is_some_and(|symbol| *symbol.file == *functions.file(site)) {
        true => site.line,
        false => 0,
    }
}

/// Marks a stack and its callers, up to the first that is marked already.
fn mark(functions: &FunctionProfile, stack: StackId, is_needed: &mut [bool]) {
    let mut next = Some(stack);
    while let Some(stack) = next {
        match is_needed.get_mut(stack.index()) {
            Some(marked @ false) => *marked = true,
            _ => break,
        }
        next = functions.stacks.split(stack).map(|(caller, _)| caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{CallExample, CallSummaries, CallSummary};
    use crate::format::folded;
    use crate::sample::UnixNanos;
    use serde_json::json;

    fn read(text: &str) -> (Profile, FunctionProfile) {
        let profile = folded::read(text.as_bytes()).unwrap();
        let functions = FunctionProfile::new(&profile).unwrap();
        (profile, functions)
    }

    fn event(profile: &Profile) -> EventId {
        profile.events.iter().next().unwrap().0
    }

    #[test]
    fn shared_parts_are_stored_once() {
        let (profile, functions) = read("main;f 30\nmain;f 12\nmain;g;f 8\nmain 10\n");
        let data = ViewData::of_profile("test", &profile, &functions, event(&profile));
        let data = serde_json::to_value(data).unwrap();
        assert_eq!(data["format"], FORMAT);
        assert_eq!(data["events"], json!([{"name": "samples", "unit": "count"}]));
        assert_eq!(data["strings"], json!(["main", "", "f", "g"]));
        assert_eq!(data["functions"]["name"], json!([0, 2, 3]));
        assert_eq!(data["frames"]["function"], json!([0, 1, 2]));
        assert_eq!(data["stacks"]["caller"], json!([0, 1, 1, 3]));
        assert_eq!(data["stacks"]["frame"], json!([0, 1, 2, 1]));
        assert_eq!(
            data["samples"],
            json!([{"event": [0, 0, 0], "stack": [1, 2, 4], "weight": [10, 42, 8], "interval": []}])
        );
        assert_eq!(data["time"], json!(null));
        assert_eq!(data.get("crashes"), None);
        let linked = ViewData::of_profile("test", &profile, &functions, event(&profile)).with_crashes("/?f=");
        assert_eq!(serde_json::to_value(linked).unwrap()["crashes"], "/?f=");
    }

    #[test]
    fn samples_have_events_and_intervals() {
        let (mut profile, _) = read("main;f 30\nmain;f 5\nmain;f 7\nmain 10\n");
        let other = profile.event("off-cpu", "nanoseconds", 1).unwrap();
        profile.samples[3].event = other;
        for (sample, time) in profile.samples.iter_mut().zip([100, 107, 107]) {
            sample.time = Some(UnixNanos(time));
        }
        let functions = FunctionProfile::new(&profile).unwrap();
        let data = ViewData::of_profile("test", &profile, &functions, other);
        let data = serde_json::to_value(data).unwrap();
        assert_eq!(data["event"], 1);
        assert_eq!(data["time"]["count"], 8);
        assert_eq!(
            data["samples"],
            json!([{"event": [0, 0, 1], "stack": [2, 2, 1], "weight": [30, 12, 10], "interval": [0, 7, -1]}])
        );
    }

    #[test]
    fn unused_events_and_stacks_are_left_out() {
        let (mut profile, _) = read("main;f 30\nmain;g 5\n");
        let unused = profile.event("unused", "count", 1).unwrap();
        profile.samples.truncate(1);
        let functions = FunctionProfile::new(&profile).unwrap();
        let data = ViewData::of_profile("test", &profile, &functions, event(&profile));
        assert_eq!((data.events.len(), data.stacks.frame.len()), (1, 2));
        assert_eq!(data.strings, ["main", "", "f"]);
        // The event that is asked for is there, also without samples.
        let data = ViewData::of_profile("test", &profile, &functions, unused);
        assert_eq!((data.events.len(), data.event), (2, 1));
    }

    #[test]
    fn functions_and_stacks_have_their_calls() {
        let (profile, functions) = read("main;f 30\nmain;g;f 8\n");
        let call = |position: &str, most| CallExample {
            position: position.to_owned(),
            least: 1,
            most,
            instructions: 7,
        };
        let summary = CallSummary {
            measured: 2,
            left_out: 1,
            slowest: Some(call("t1#20", 9)),
            typical: Some(call("t1#10", 5)),
        };
        let stack = functions.samples[1].stack;
        let symbol = functions.stacks.split(stack).unwrap().1.symbol;
        let summaries = CallSummaries {
            unit: "nanoseconds".to_owned(),
            by_function: [(symbol, summary)].into(),
            by_stack: [(stack, CallSummary::default())].into(),
        };
        let calls = ViewCalls {
            command: "open --at ",
            summaries: &summaries,
        };
        let data = ViewData::with_calls("test", &profile, &functions, event(&profile), Some(calls));
        let data = serde_json::to_value(data).unwrap();
        let slowest = json!(["t1#20", 1, 9, 7]);
        let typical = json!(["t1#10", 1, 5, 7]);
        assert_eq!(
            data["calls"],
            json!({
                "command": "open --at ",
                "unit": "nanoseconds",
                "functions": {
                    "index": [1], "measured": [2], "leftOut": [1], "slowest": [slowest], "typical": [typical],
                },
                "stacks": {
                    "index": [4], "measured": [0], "leftOut": [0], "slowest": [null], "typical": [null],
                },
            })
        );
    }

    #[test]
    fn comparison_has_the_samples_of_both() {
        let (first, first_functions) = read("main;old 3\nmain;same 5\n");
        let (second, second_functions) = read("main;new 4\nmain;same 6\n");
        let pairs = [(event(&first), event(&second))];
        let side = |name, profile, functions| ComparedProfile {
            name,
            profile,
            functions,
        };
        let data = ViewData::of_comparison(
            side("a", &first, &first_functions),
            side("b", &second, &second_functions),
            &pairs,
            true,
        )
        .unwrap();
        let weights: Vec<_> = data.samples.iter().map(|side| side.weight.clone()).collect();
        assert_eq!(weights, [[3, 5], [6, 4]]);
        let stacks: Vec<_> = data.samples.iter().map(|side| side.stack.clone()).collect();
        assert_eq!(stacks, [[2, 3], [3, 4]]);
        assert_eq!(data.title(), "a → b");
        assert!(data.normalize);
    }
}
