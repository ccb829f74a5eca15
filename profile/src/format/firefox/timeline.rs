//! Timelines in the format of the Firefox Profiler.
//!
//! The profiler shows samples, so that a timeline is sampled at equal intervals. A call shorter
//! than the interval may be in no sample. Instants become markers.

use super::label_frame;
use crate::Result;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, MarkerFieldFlags, MarkerFieldFormat, MarkerTiming, ProcessHandle, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, StaticSchemaMarker, StaticSchemaMarkerField,
    StringHandle, ThreadHandle, Timestamp,
};
use std::collections::BTreeMap;
use std::io::Write;

/// A thread of a timeline.
#[derive(Clone, Copy, Debug)]
pub struct TimelineThread<'a> {
    /// The process.
    pub pid: u32,
    /// The name of the process's program.
    pub process_name: &'a str,
    /// The thread.
    pub tid: u32,
    /// The name of the thread.
    pub name: &'a str,
}

/// Samples the calls of threads, one thread after the other.
pub struct SampledTimeline {
    profile: Profile,
    /// The distance of samples in nanoseconds.
    interval: u64,
    processes: BTreeMap<u32, ProcessHandle>,
}

impl SampledTimeline {
    /// Returns a timeline without threads. `interval` is in nanoseconds, and at least 1.
    #[must_use]
    pub fn new(name: &str, interval: u64) -> Self {
        let interval = interval.max(1);
        let mut profile = Profile::new(
            name,
            ReferenceTimestamp::from_millis_since_unix_epoch(0.0),
            SamplingInterval::from_nanos(interval),
        );
        profile.set_symbolicated(true);
        Self {
            profile,
            interval,
            processes: BTreeMap::new(),
        }
    }

    /// Begins a thread.
    pub fn begin_thread(&mut self, thread: TimelineThread<'_>) -> ThreadSampler<'_> {
        let process = *self
            .processes
            .entry(thread.pid)
            .or_insert_with(|| self.profile.add_process(thread.process_name, thread.pid, at(0)));
        let is_main = thread.pid == thread.tid;
        let handle = self.profile.add_thread(process, thread.tid, at(0), is_main);
        self.profile.set_thread_name(handle, thread.name);
        ThreadSampler {
            profile: &mut self.profile,
            thread: handle,
            interval: self.interval,
            next: 0,
            open: Vec::new(),
        }
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        Ok(serde_json::to_writer(out, &self.profile)?)
    }
}

fn at(time: u64) -> Timestamp {
    Timestamp::from_nanos_since_reference(time)
}

/// Takes the samples of a thread. Times do not decrease.
pub struct ThreadSampler<'p> {
    profile: &'p mut Profile,
    thread: ThreadHandle,
    interval: u64,
    next: u64,
    /// The names of the open calls. Those that were in a sample also have the stack that ends with
    /// them.
    open: Vec<(StringHandle, Option<StackHandle>)>,
}

impl ThreadSampler<'_> {
    /// Begins a call.
    pub fn enter(&mut self, time: u64, name: &str) {
        self.run_to(time);
        let name = self.profile.intern_string(name);
        self.open.push((name, None));
    }

    /// Ends the innermost call.
    pub fn leave(&mut self, time: u64) {
        self.run_to(time);
        self.open.pop();
    }

    /// Adds an instant as a marker.
    pub fn add_instant(&mut self, time: u64, name: &str, position: &str) {
        self.run_to(time);
        let marker = InstantMarker {
            name: self.profile.intern_string(name),
            position: self.profile.intern_string(position),
        };
        let timing = MarkerTiming::Instant(at(time));
        self.profile.add_marker(self.thread, timing, marker);
    }

    /// Ends the thread.
    pub fn end(self) {
        self.profile.set_thread_end_time(self.thread, at(self.next));
    }

    /// Takes the samples before `time`.
    fn run_to(&mut self, time: u64) {
        if self.next >= time {
            return;
        }
        let Some(stack) = self.stack() else {
            // No call is known to be active, so skip to the next event.
            self.next = time.next_multiple_of(self.interval);
            return;
        };
        while self.next < time {
            let none = CpuDelta::ZERO;
            self.profile
                .add_sample(self.thread, at(self.next), Some(stack), none, 1);
            self.next += self.interval;
        }
    }

    /// Returns the stack of open calls.
    fn stack(&mut self) -> Option<StackHandle> {
        let known = self.open.iter().rposition(|(_, stack)| stack.is_some());
        let mut stack = known.and_then(|known| self.open.get(known)?.1);
        for (name, unknown) in self.open.iter_mut().skip(known.map_or(0, |known| known + 1)) {
            let frame = label_frame(self.profile, self.thread, *name);
            stack = Some(self.profile.intern_stack(self.thread, stack, frame));
            *unknown = stack;
        }
        stack
    }
}

/// The schema of markers for instants.
struct InstantMarker {
    name: StringHandle,
    position: StringHandle,
}

impl StaticSchemaMarker for InstantMarker {
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
