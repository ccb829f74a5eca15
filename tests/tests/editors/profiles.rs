//! Profiles with times, files and lines, which the tests of views share.

use backtrail_profile::format::otlp;
use backtrail_profile::{Frame, Function, Id, Line, Module, Profile, Sample, StackId, UnixNanos};
use backtrail_pt::FileOffset;
use std::fs;
use std::path::Path;

/// The length of a sample, which is its weight.
const SECOND: u64 = 1_000_000_000;
/// The time of the first sample.
const START: u64 = 1_700_000_000 * SECOND;

/// Writes an export request of OpenTelemetry. Each sample has an event, the second of its time, and
/// functions with lines from the outermost on, as `main:7;work:9`. All are in one source file.
pub fn write(path: &Path, source: &Path, samples: &[(&str, u64, &str)]) {
    let mut profile = Profile::default();
    let file = profile.string(source.to_str().unwrap()).unwrap();
    let module = Module {
        build_id: None,
        path: profile.string("/usr/bin/server").unwrap(),
    };
    let module = profile.modules.intern(module).unwrap();
    let labels = profile.label_set(Vec::new()).unwrap();
    for (event, second, frames) in samples {
        let event = profile.event(event, "nanoseconds", SECOND).unwrap();
        let mut stack = StackId::EMPTY;
        for frame in frames.split(';') {
            let (name, line) = frame.split_once(':').unwrap();
            let name = profile.string(name).unwrap();
            let function = Function {
                name,
                linkage_name: name,
                file: Some(file),
                start_line: 0,
            };
            let function = profile.functions.intern(function).unwrap();
            let line = line.parse().unwrap();
            // Code of its own for each line of a function.
            let offset = FileOffset(0x1_0000 * (1 + function.index() as u64) + u64::from(line));
            let frame = profile.frames.intern(Frame::Code { module, offset }).unwrap();
            profile.lines.insert(frame, [Line { function, line }].into());
            stack = profile.stacks.push(stack, frame).unwrap();
        }
        profile.samples.push(Sample {
            event,
            weight: SECOND as i64,
            stack,
            time: Some(UnixNanos(START + SECOND * second)),
            thread: None,
            cpu: None,
            labels,
        });
    }
    let mut bytes = Vec::new();
    otlp::write(&profile, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}
