//! The Firefox Profiler's processed profile format.
//!
//! The profiler shows samples, so the timeline is sampled, evenly and as often as the profiler
//! permits. A call shorter than the interval can be missing. Other events become markers.

use crate::{FunctionId, Functions, Kind, Result, Timeline, Track};
use backtrail_decoder::Watch;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags, MarkerFieldFormat,
    MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};
use rustc_hash::FxHashMap;
use std::io::Write;

/// Samples of a thread, and of all threads, at most.
const SAMPLES: u64 = 200_000;
const ALL_SAMPLES: u64 = 1_000_000;

/// Writes a timeline.
pub(crate) fn write(timeline: &Timeline<'_>, out: &mut dyn Write, watch: &Watch<'_>) -> Result<()> {
    let mut functions = Functions::default();
    let lengths = || timeline.tracks().iter().map(|track| timeline.length(track));
    let longest = lengths().max().unwrap_or(0);
    let all = lengths().fold(0, u64::saturating_add);
    let interval = longest.div_ceil(SAMPLES).max(all.div_ceil(ALL_SAMPLES)).max(1);
    let name = format!("{} ({})", timeline.session().name(), timeline.unit().name());
    let mut profile = Profile::new(
        &name,
        ReferenceTimestamp::from_millis_since_unix_epoch(0.0),
        SamplingInterval::from_nanos(interval),
    );
    profile.set_symbolicated(true);
    let mut processes = FxHashMap::default();
    for track in timeline.tracks() {
        let process = *processes.entry(track.process.pid).or_insert_with(|| {
            let name = timeline.program_of(track);
            profile.add_process(&name, track.process.pid.0, at(0))
        });
        let mut sampler = Sampler::new(&mut profile, process, track, interval);
        timeline.tell(track, &mut functions, watch, &mut |functions, event| {
            sampler.run_to(event.at, functions);
            match event.kind {
                Kind::Enter(function) => sampler.open.push((function, None)),
                Kind::Leave => {
                    sampler.open.pop();
                }
                Kind::Moment(what) => {
                    let position = track.thread.position(event.index).to_string();
                    sampler.moment(event.at, &what, &position);
                }
            }
            Ok(())
        })?;
        sampler.end();
    }
    Ok(serde_json::to_writer(out, &profile)?)
}

fn at(moment: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(moment)
}

/// Makes the samples of a thread.
struct Sampler<'p> {
    profile: &'p mut Profile,
    thread: ThreadHandle,
    interval: u64,
    next: u64,
    /// The calls that are open, and the stacks that end with them, of those that were in a sample.
    open: Vec<(FunctionId, Option<StackHandle>)>,
}

impl<'p> Sampler<'p> {
    fn new(profile: &'p mut Profile, process: ProcessHandle, track: &Track<'_>, interval: u64) -> Self {
        let tid = track.thread.tid.0;
        let thread = profile.add_thread(process, tid, at(0), track.process.pid.0 == tid);
        profile.set_thread_name(thread, &track.label());
        Self {
            profile,
            thread,
            interval,
            next: 0,
            open: Vec::new(),
        }
    }

    /// Takes the samples before a moment.
    fn run_to(&mut self, moment: u64, functions: &Functions) {
        if self.next >= moment {
            return;
        }
        let Some(stack) = self.stack(functions) else {
            // Nothing is running as far as is known: on to where something is.
            self.next = moment.next_multiple_of(self.interval);
            return;
        };
        while self.next < moment {
            let none = CpuDelta::ZERO;
            self.profile
                .add_sample(self.thread, at(self.next), Some(stack), none, 1);
            self.next += self.interval;
        }
    }

    /// The stack that is open.
    fn stack(&mut self, functions: &Functions) -> Option<StackHandle> {
        let known = self.open.iter().rposition(|(_, stack)| stack.is_some());
        let mut stack = known.and_then(|known| self.open.get(known)?.1);
        for (function, unknown) in self.open.iter_mut().skip(known.map_or(0, |known| known + 1)) {
            let name = functions.get(*function).map_or("", |function| &function.name);
            let name = self.profile.intern_string(name);
            let frame = FrameInfo {
                frame: Frame::Label(name),
                category_pair: CategoryHandle::OTHER.into(),
                flags: FrameFlags::empty(),
            };
            let frame = self.profile.intern_frame(self.thread, frame);
            stack = Some(self.profile.intern_stack(self.thread, stack, frame));
            *unknown = stack;
        }
        stack
    }

    fn moment(&mut self, moment: u64, what: &str, position: &str) {
        let marker = Moment {
            name: self.profile.intern_string(what),
            position: self.profile.intern_string(position),
        };
        let when = MarkerTiming::Instant(at(moment));
        self.profile.add_marker(self.thread, when, marker);
    }

    fn end(self) {
        self.profile.set_thread_end_time(self.thread, at(self.next));
    }
}

/// An event other than a call.
struct Moment {
    name: StringHandle,
    position: StringHandle,
}

impl StaticSchemaMarker for Moment {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Moment";
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "position",
        label: "Position",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _field_index: u32) -> StringHandle {
        self.position
    }

    fn number_field_value(&self, _field_index: u32) -> f64 {
        0.0
    }
}
