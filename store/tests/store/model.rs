//! Samples as plain values: profiles are built from them, and queries are compared with them.

use backtrail_profile::{
    Event, Frame, Function, Label, LabelValue, Line, Module, Profile, Sample, StackId, Thread, UnixNanos,
};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use backtrail_store::{Hour, Origin};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The first hour of the samples.
pub const HOUR: Hour = Hour(498_873);

/// A sample as a plain value.
#[derive(Clone, Debug)]
pub struct Plain {
    pub service: u8,
    pub host: u8,
    pub event: u8,
    pub thread: Option<u8>,
    pub label: Option<u8>,
    /// Seconds after the start of [`HOUR`].
    pub second: u32,
    pub weight: i64,
    /// The innermost frame first.
    pub frames: Vec<u8>,
}

impl Plain {
    /// Returns the time.
    pub fn time(&self) -> u64 {
        HOUR.start().0 + u64::from(self.second) * 1_000_000_000
    }

    /// Returns the origin.
    pub fn origin(&self) -> Origin {
        Origin {
            service: format!("service-{}", self.service).into(),
            host: format!("host-{}", self.host).into(),
            build: "v1".into(),
            ..Origin::default()
        }
    }

    /// Returns the name of the event.
    pub fn event_name(&self) -> &'static str {
        ["cpu", "off-cpu", "alloc"][usize::from(self.event % 3)]
    }

    /// Returns the value of the label `route`. It is empty if there is none.
    pub fn route(&self) -> String {
        self.label.map_or_else(String::new, |label| format!("/{label}"))
    }

    /// Returns the frames as texts, as [`text_of`] does.
    pub fn texts(&self) -> Vec<String> {
        self.frames.iter().map(|frame| frame_text(*frame)).collect()
    }
}

/// Returns the build id of a module.
pub fn build_id(module: u8) -> BuildId {
    BuildId::new(&[module, 7, 7, 7]).unwrap()
}

fn frame_text(frame: u8) -> String {
    match frame % 8 {
        6 => format!("address {frame}"),
        7 => format!("function f{frame} in Some(\"f.py\"):{frame}"),
        module => format!("code {:?}+{frame}", Some(build_id(module))),
    }
}

/// Returns a frame of a profile as a text.
pub fn text_of(profile: &Profile, frame: &Frame) -> String {
    match *frame {
        Frame::Code { module, offset } => {
            let module = profile.modules.get(module).unwrap();
            format!("code {:?}+{}", module.build_id, offset.0)
        }
        Frame::Address(address) => format!("address {address}"),
        Frame::Function { function, line } => {
            let function = profile.functions.get(function).unwrap();
            let file = function.file.map(|file| profile.text(file));
            format!("function {} in {file:?}:{line}", profile.text(function.name))
        }
        _ => "lost".into(),
    }
}

/// Returns the profile of samples.
pub fn profile_of(samples: &[Plain]) -> Profile {
    let mut profile = Profile::default();
    for plain in samples {
        let name = profile.string(plain.event_name()).unwrap();
        let unit = profile.string("nanoseconds").unwrap();
        let period = u64::from(plain.event);
        let event = profile.intern_event(Event { name, unit, period }).unwrap();
        let mut stack = StackId::EMPTY;
        for frame in plain.frames.iter().rev() {
            let frame = intern(&mut profile, *frame);
            let frame = profile.frames.intern(frame).unwrap();
            stack = profile.stacks.push(stack, frame).unwrap();
        }
        let thread = plain.thread.map(|thread| {
            let process_name = profile.string("server").unwrap();
            let name = profile.string(&format!("worker-{thread}")).unwrap();
            let thread = Thread {
                pid: Pid(40),
                tid: Tid(100 + u32::from(thread)),
                process_name,
                name,
            };
            profile.threads.intern(thread).unwrap()
        });
        let labels = plain.label.map(|_| {
            let key = profile.string("route").unwrap();
            let value = LabelValue::Text(profile.string(&plain.route()).unwrap());
            Label { key, value }
        });
        let labels = profile.label_set(labels.into_iter().collect()).unwrap();
        profile.samples.push(Sample {
            event,
            weight: plain.weight,
            stack,
            time: Some(UnixNanos(plain.time())),
            thread,
            cpu: plain.thread.map(|thread| Cpu(u32::from(thread % 2))),
            labels,
        });
    }
    profile
}

fn intern(profile: &mut Profile, frame: u8) -> Frame {
    match frame % 8 {
        6 => Frame::Address(u64::from(frame)),
        7 => {
            let name = profile.string(&format!("f{frame}")).unwrap();
            let file = Some(profile.string("f.py").unwrap());
            let function = Function {
                name,
                linkage_name: name,
                file,
                start_line: 1,
            };
            let function = profile.functions.intern(function).unwrap();
            let line = u32::from(frame);
            Frame::Function { function, line }
        }
        number => {
            let path = profile.string(&format!("/usr/lib/lib{number}.so")).unwrap();
            let build_id = Some(build_id(number));
            let module = profile.modules.intern(Module { build_id, path }).unwrap();
            let offset = FileOffset(u64::from(frame));
            Frame::Code { module, offset }
        }
    }
}

/// Adds lines to a frame of each module: an inlined function and its caller.
pub fn symbolize(profile: &mut Profile) {
    let frames: Vec<_> = profile.frames.iter().map(|(id, frame)| (id, *frame)).collect();
    for (id, frame) in frames {
        if let Frame::Code { offset, .. } = frame {
            let lines = ["inlined", "caller"].map(|name| Line {
                function: profile.function(&format!("{name}-{}", offset.0)).unwrap(),
                line: 12,
            });
            profile.lines.insert(id, lines.into());
        }
    }
}

/// Sums of weights by event and stack. Sums of zero are left out.
pub type Sums = BTreeMap<(String, Vec<String>), i64>;

/// Returns the sums of plain samples.
pub fn sums_of<'a>(samples: impl IntoIterator<Item = &'a Plain>) -> Sums {
    let mut sums = Sums::new();
    for plain in samples {
        let key = (plain.event_name().into(), plain.texts());
        *sums.entry(key).or_default() += plain.weight;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Returns the sums of a profile's samples.
pub fn sums_of_profile(profile: &Profile) -> Sums {
    let mut sums = Sums::new();
    for sample in &profile.samples {
        let event = profile.events.get(sample.event).unwrap();
        let frames = profile.stacks.frames(sample.stack);
        let frames = frames.map(|frame| text_of(profile, profile.frames.get(frame).unwrap()));
        let key = (profile.text(event.name).into(), frames.collect());
        *sums.entry(key).or_default() += sample.weight;
    }
    sums.retain(|_, sum| *sum != 0);
    sums
}

/// Returns samples of two hours.
pub fn samples(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<Plain>> {
    let sample = (
        0u8..3,
        0u8..3,
        0u8..4,
        prop::option::of(0u8..4),
        prop::option::of(0u8..3),
        0u32..7200,
        -2i64..1000,
        prop::collection::vec(0u8..24, 0..6),
    );
    let plain = sample.prop_map(
        |(service, host, event, thread, label, second, weight, frames)| Plain {
            service,
            host,
            event,
            thread,
            label,
            second,
            weight,
            frames,
        },
    );
    prop::collection::vec(plain, count)
}
