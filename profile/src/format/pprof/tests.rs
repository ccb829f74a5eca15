//! Profiles that are written and read back, and damaged ones.

use super::*;
use crate::frame::{Frame, Function, Line, Module};
use crate::profile::Profile;
use crate::sample::{Label, LabelValue, Sample, Thread, UnixNanos};
use crate::stacks::StackId;
use crate::{Error, Result};
use backtrail_pt::{BuildId, FileOffset, Pid, Tid};
use prost::Message;

/// Returns a profile with everything that the format has a place for.
fn rich() -> Profile {
    let mut profile = Profile::default();
    let cpu = profile.event("cpu", "nanoseconds", 10_000_000).unwrap();
    let count = profile.event("samples", "count", 0).unwrap();
    let [
        path,
        name,
        linkage_name,
        file,
        comm,
        key,
        value,
        unit,
        thread_name,
    ] = [
        "/usr/bin/server",
        "serve(int)",
        "_Z5servei",
        "server.cc",
        "server",
        "route",
        "/pay",
        "bytes",
        "worker",
    ]
    .map(|text| profile.string(text).unwrap());
    let module = Module {
        build_id: BuildId::new(&[0xab; 20]),
        path,
    };
    let module = profile.modules.intern(module).unwrap();
    let function = Function {
        name,
        linkage_name,
        file: Some(file),
        start_line: 12,
    };
    let function = profile.functions.intern(function).unwrap();
    let inlined = profile.function("inlined").unwrap();
    let code = Frame::Code {
        module,
        offset: FileOffset(0x1234),
    };
    let mut stack = StackId::EMPTY;
    for frame in [
        Frame::Address(0x7fff_1234),
        code,
        Frame::Function {
            function: inlined,
            line: 3,
        },
    ] {
        let frame = profile.frames.intern(frame).unwrap();
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let frame = profile.frames.find(&code).unwrap();
    let lines = [(inlined, 7), (function, 15)].map(|(function, line)| Line { function, line });
    profile.lines.insert(frame, lines.into());
    let thread = Thread {
        pid: Pid(7),
        tid: Tid(8),
        process_name: comm,
        name: thread_name,
    };
    let thread = profile.threads.intern(thread).unwrap();
    let labels = [
        (key, LabelValue::Text(value)),
        (comm, LabelValue::Number(-5, unit)),
    ];
    let labels = labels.map(|(key, value)| Label { key, value });
    let labels = profile.label_set(labels.into()).unwrap();
    for (event, weight) in [(cpu, 20_000_000), (count, 2)] {
        profile.samples.push(Sample {
            event,
            weight,
            stack,
            time: None,
            thread: Some(thread),
            cpu: None,
            labels,
        });
    }
    profile.start = Some(UnixNanos(1_700_000_000_000_000_000));
    profile.duration = Some(5);
    profile.notes = vec!["3 samples were lost".to_owned()];
    profile
}

fn written(profile: &Profile) -> Vec<u8> {
    let mut out = Vec::new();
    write(profile, &mut out).unwrap();
    out
}

/// Returns everything of a profile as texts that do not depend on ids.
fn described(profile: &Profile) -> Vec<String> {
    let text = |id| profile.text(id).to_owned();
    let function = |id| {
        let function = profile.functions.get(id).unwrap();
        let file = function.file.map(text);
        let names = (text(function.name), text(function.linkage_name));
        format!("{names:?} {file:?} {}", function.start_line)
    };
    let frame = |id| {
        let frame = match *profile.frames.get(id).unwrap() {
            Frame::Code { module, offset } => {
                let module = profile.modules.get(module).unwrap();
                format!("{} {:?} {offset}", text(module.path), module.build_id)
            }
            Frame::Function { function: id, line } => format!("{} {line}", function(id)),
            other => format!("{other:?}"),
        };
        let lines = profile.lines_of(id).iter();
        let lines: Vec<_> = lines.map(|line| (function(line.function), line.line)).collect();
        format!("{frame} {lines:?}")
    };
    let samples = profile.samples.iter().map(|sample| {
        let event = profile.events.get(sample.event).unwrap();
        let event = (text(event.name), text(event.unit), event.period);
        let frames: Vec<_> = profile.stacks.frames(sample.stack).map(frame).collect();
        let thread = sample.thread.map(|thread| {
            let thread = profile.threads.get(thread).unwrap();
            (
                thread.pid,
                thread.tid,
                text(thread.process_name),
                text(thread.name),
            )
        });
        let labels = profile.labels(sample.labels).iter();
        let mut labels: Vec<_> = labels
            .map(|label| match label.value {
                LabelValue::Text(value) => format!("{}={}", text(label.key), text(value)),
                LabelValue::Number(value, unit) => {
                    format!("{}={value} {}", text(label.key), text(unit))
                }
            })
            .collect();
        labels.sort();
        format!("{event:?} {} {frames:?} {thread:?} {labels:?}", sample.weight)
    });
    let span = format!("{:?} {:?} {:?}", profile.start, profile.duration, profile.notes);
    samples.chain([span]).collect()
}

#[test]
fn written_profile_reads_back() {
    let profile = rich();
    let read = read(&written(&profile)).unwrap();
    assert_eq!(described(&read), described(&profile));
    assert_eq!(written(&read), written(&profile));
}

#[test]
fn samples_of_one_stack_are_added_up() {
    let mut profile = rich();
    let again = profile.samples.clone();
    profile.samples.extend(again);
    let read = read(&written(&profile)).unwrap();
    let weights: Vec<_> = read.samples.iter().map(|sample| sample.weight).collect();
    assert_eq!(weights, [40_000_000, 4]);
}

fn message(change: impl FnOnce(&mut schema::ProfileMessage)) -> Vec<u8> {
    let mut message = schema::ProfileMessage {
        sample_type: vec![schema::ValueTypeMessage { kind: 1, unit: 2 }],
        string_table: ["", "cpu", "count", "main"].map(str::to_owned).into(),
        function: vec![schema::FunctionMessage {
            id: 1,
            name: 3,
            ..schema::FunctionMessage::default()
        }],
        location: vec![schema::LocationMessage {
            id: 1,
            line: vec![schema::LineMessage {
                function_id: 1,
                line: 4,
            }],
            ..schema::LocationMessage::default()
        }],
        sample: vec![schema::SampleMessage {
            location_id: vec![1],
            value: vec![9],
            label: Vec::new(),
        }],
        ..schema::ProfileMessage::default()
    };
    change(&mut message);
    message.encode_to_vec()
}

fn problem(change: impl FnOnce(&mut schema::ProfileMessage)) -> String {
    read(&message(change)).unwrap_err().to_string()
}

#[test]
fn profile_without_gzip_and_without_addresses_is_read() -> Result<()> {
    let profile = read(&message(|_| ()))?;
    let (event, _) = profile.events.iter().next().unwrap();
    assert_eq!(profile.total(event), 9);
    let stack = profile.samples[0].stack;
    let frames: Vec<_> = profile.stacks.frames(stack).collect();
    let frame = profile.frames.get(frames[0]);
    assert!(
        matches!(frame, Some(Frame::Function { line: 4, .. })),
        "{frame:?}"
    );
    Ok(())
}

#[test]
fn references_to_nothing_are_reported() {
    assert_eq!(
        problem(|message| message.sample[0].location_id = vec![2]),
        "pprof: there is no location 2"
    );
    assert_eq!(
        problem(|message| message.sample[0].value.clear()),
        "pprof: a sample has 0 values, but there are 1 sample types"
    );
    assert_eq!(
        problem(|message| message.function[0].name = 4),
        "pprof: there is no string 4"
    );
    assert_eq!(
        problem(|message| message.location[0].line[0].function_id = 8),
        "pprof: there is no function 8"
    );
    assert_eq!(
        problem(|message| message.location[0].mapping_id = 8),
        "pprof: there is no mapping 8"
    );
    let many = |message: &mut schema::ProfileMessage| {
        message.location[0].line = vec![schema::LineMessage::default(); 201]
    };
    assert_eq!(
        problem(many),
        "pprof: location 1 has more than 200 inlined functions"
    );
}

#[test]
fn truncated_profiles_are_errors_or_shorter() {
    let bytes = message(|_| ());
    for length in 0..bytes.len() {
        // Any answer is fine but a panic.
        let _ = read(&bytes[..length]);
    }
    let packed = written(&rich());
    for length in 2..packed.len() {
        let error = read(&packed[..length]).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Malformed { .. }), "{error}");
    }
}

#[test]
fn address_below_its_mapping_is_kept_without_it() {
    let text = ["", "cpu", "count", "/bin/app"];
    let message = schema::ProfileMessage {
        string_table: text.map(str::to_owned).into(),
        sample_type: vec![schema::ValueTypeMessage { kind: 1, unit: 2 }],
        mapping: vec![schema::MappingMessage {
            id: 1,
            memory_start: 0x40_0000,
            memory_limit: 0x50_0000,
            filename: 3,
            ..schema::MappingMessage::default()
        }],
        location: vec![schema::LocationMessage {
            id: 1,
            mapping_id: 1,
            address: 0x30_0123,
            ..schema::LocationMessage::default()
        }],
        sample: vec![schema::SampleMessage {
            location_id: vec![1],
            value: vec![1],
            label: Vec::new(),
        }],
        ..schema::ProfileMessage::default()
    };
    let profile = read(&message.encode_to_vec()).unwrap();
    let frames: Vec<_> = profile.frames.iter().map(|(_, frame)| *frame).collect();
    assert_eq!(frames, [Frame::Address(0x30_0123)]);
}

#[test]
fn wrong_offsets_of_several_modules_are_written() {
    let mut profile = rich();
    for path in ["/bin/one", "/bin/two"] {
        let path = profile.string(path).unwrap();
        let module = profile.modules.intern(Module { build_id: None, path }).unwrap();
        let offset = FileOffset(0_u64.wrapping_sub(0x10_0000));
        let frame = profile.frames.intern(Frame::Code { module, offset }).unwrap();
        let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
        let event = profile.events.iter().next().unwrap().0;
        profile.add(event, 1, stack).unwrap();
    }
    let again = read(&written(&profile)).unwrap();
    let address = Frame::Address(0_u64.wrapping_sub(0x10_0000));
    assert!(again.frames.find(&address).is_some());
    assert_eq!(again.samples.len(), profile.samples.len());
}
