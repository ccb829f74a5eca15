//! The Firefox Profiler's processed profile format: samples of one event, or a sampled timeline.

mod timeline;

pub use timeline::{SampledTimeline, ThreadSampler, TimelineThread};

use crate::function_profile::{FunctionProfile, Site, SiteSample};
use crate::profile::Profile;
use crate::sample::{EventId, ThreadId};
use crate::stacks::StackId;
use crate::{Error, Result};
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle,
    Profile as FirefoxProfile, ReferenceTimestamp, SamplingInterval, StackHandle, StringHandle, ThreadHandle,
    Timestamp, WeightType,
};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

/// The interval between samples without times, and of events that are not times.
const MILLISECOND: u64 = 1_000_000;

/// Writes the samples of one event. Negative weights are left out.
///
/// The format counts samples. A sample of a time weighs as many as its nanoseconds have intervals,
/// and the interval is the greatest that divides all weights. Samples without times follow each
/// other.
///
/// # Errors
///
/// Those of `out`, and [`Error::TooHeavy`] if a weight exceeds the limit of the format.
pub fn write(
    profile: &Profile,
    functions: &FunctionProfile,
    event: EventId,
    name: &str,
    out: &mut dyn Write,
) -> Result<()> {
    let of_event = |sample: &&SiteSample| sample.event == event && sample.weight > 0;
    let mut samples: Vec<&SiteSample> = functions.samples.iter().filter(of_event).collect();
    samples.sort_by_key(|sample| sample.time);
    let unit = profile
        .events
        .get(event)
        .map_or("", |event| profile.text(event.unit));
    let (kind, scale) = match unit {
        "nanoseconds" => (WeightType::Samples, divisor(&samples)),
        "bytes" => (WeightType::Bytes, 1),
        _ => (WeightType::Samples, 1),
    };
    let interval = match unit {
        "nanoseconds" => scale,
        _ => MILLISECOND,
    };
    let first = samples.iter().find_map(|sample| sample.time);
    let start = profile.start.or(first).map_or(0, |start| start.0);
    let mut writer = Writer {
        functions,
        profile: FirefoxProfile::new(
            name,
            ReferenceTimestamp::from_millis_since_unix_epoch((start / MILLISECOND) as f64),
            SamplingInterval::from_nanos(interval),
        ),
        processes: BTreeMap::new(),
        threads: BTreeMap::new(),
        frames: HashMap::new(),
        stacks: HashMap::new(),
        kind,
    };
    writer.profile.set_symbolicated(true);
    let mut next = 0;
    for sample in samples {
        let weight = i32::try_from(sample.weight.unsigned_abs() / scale).map_err(|_| Error::TooHeavy {
            format: "the Firefox Profiler",
            weight: sample.weight,
        })?;
        let at = sample.time.map_or(next, |time| time.0.saturating_sub(start));
        next = at.saturating_add(interval.saturating_mul(u64::from(weight.unsigned_abs())));
        let thread = writer.thread(profile, sample.thread);
        let stack = writer.stack(thread, sample.stack);
        let at = Timestamp::from_nanos_since_reference(at);
        writer
            .profile
            .add_sample(thread, at, stack, CpuDelta::ZERO, weight);
    }
    serde_json::to_writer(&mut *out, &writer.profile)?;
    writeln!(out)?;
    Ok(())
}

/// Returns the greatest number that divides all weights; at least 1.
fn divisor(samples: &[&SiteSample]) -> u64 {
    let greatest = |one: u64, other: u64| {
        let (mut one, mut other) = (one, other);
        while other != 0 {
            (one, other) = (other, one % other);
        }
        one
    };
    let weights = samples.iter().map(|sample| sample.weight.unsigned_abs());
    weights.fold(0, greatest).max(1)
}

/// The profile that is built, and the handles of what it has.
struct Writer<'p> {
    functions: &'p FunctionProfile,
    profile: FirefoxProfile,
    processes: BTreeMap<u32, ProcessHandle>,
    threads: BTreeMap<Option<ThreadId>, ThreadHandle>,
    frames: HashMap<(ThreadHandle, Site), FrameHandle>,
    stacks: HashMap<(ThreadHandle, StackId), Option<StackHandle>>,
    kind: WeightType,
}

impl Writer<'_> {
    fn thread(&mut self, profile: &Profile, id: Option<ThreadId>) -> ThreadHandle {
        if let Some(known) = self.threads.get(&id) {
            return *known;
        }
        let start = Timestamp::from_nanos_since_reference(0);
        let found = id.and_then(|id| profile.threads.get(id));
        let (pid, tid) = found.map_or((0, 0), |thread| (thread.pid.0, thread.tid.0));
        let process_name = found.map_or("all processes", |thread| profile.text(thread.process_name));
        let process = match self.processes.get(&pid) {
            Some(known) => *known,
            None => {
                let process = self.profile.add_process(process_name, pid, start);
                self.processes.insert(pid, process);
                process
            }
        };
        let thread = self.profile.add_thread(process, tid, start, pid == tid);
        self.profile
            .set_thread_samples_weight_type(thread, self.kind.clone());
        let name = found.map_or("all threads", |thread| profile.text(thread.name));
        self.profile.set_thread_name(thread, name);
        self.threads.insert(id, thread);
        thread
    }

    /// Returns the handle of a stack. Stacks are walked up to the first known one, so that the work
    /// is that of the new frames.
    fn stack(&mut self, thread: ThreadHandle, stack: StackId) -> Option<StackHandle> {
        let mut new = Vec::new();
        let mut at = stack;
        let mut handle = loop {
            if let Some(known) = self.stacks.get(&(thread, at)) {
                break *known;
            }
            let Some((caller, site)) = self.functions.stacks.split(at) else {
                break None;
            };
            new.push((at, site));
            at = caller;
        };
        for (stack, site) in new.into_iter().rev() {
            let frame = self.frame(thread, site);
            handle = Some(self.profile.intern_stack(thread, handle, frame));
            self.stacks.insert((thread, stack), handle);
        }
        handle
    }

    fn frame(&mut self, thread: ThreadHandle, site: Site) -> FrameHandle {
        if let Some(known) = self.frames.get(&(thread, site)) {
            return *known;
        }
        let symbol = self.functions.symbols.get(site.symbol);
        let name = self
            .profile
            .intern_string(symbol.map_or("", |symbol| &symbol.name));
        let frame = label_frame(&mut self.profile, thread, name);
        self.frames.insert((thread, site), frame);
        frame
    }
}

/// Returns the frame of a function that only has a name.
fn label_frame(profile: &mut FirefoxProfile, thread: ThreadHandle, name: StringHandle) -> FrameHandle {
    let info = FrameInfo {
        frame: Frame::Label(name),
        category_pair: CategoryHandle::OTHER.into(),
        flags: FrameFlags::empty(),
    };
    profile.intern_frame(thread, info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::folded;

    #[test]
    fn weights_are_numbers_of_intervals() {
        let mut profile = folded::read("main;f 30\nmain 10\nmain;f 20\n".as_bytes()).unwrap();
        let time = profile.event("cpu", "nanoseconds", 0).unwrap();
        for sample in &mut profile.samples {
            sample.event = time;
        }
        let functions = FunctionProfile::new(&profile).unwrap();
        let mut out = Vec::new();
        write(&profile, &functions, time, "test", &mut out).unwrap();
        let file: serde_json::Value = serde_json::from_slice(&out).unwrap();
        // 10 ns are 0.00001 ms.
        assert_eq!(file["meta"]["interval"], 0.000_01);
        let samples = &file["threads"][0]["samples"];
        let weights: Vec<_> = samples["weight"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_i64())
            .collect();
        assert_eq!(weights.iter().flatten().sum::<i64>(), 6, "{samples}");
    }
}
