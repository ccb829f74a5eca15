//! Tests of names by process, address and time, over whole recordings.

use super::super::{GeneratedLine, HEADER, SegmentEncoder, read};
use super::*;
use crate::{Line, Sample, Thread};
use backtrail_pt::Tid;
use std::ops::Range;

/// Time in the tests is in microseconds.
const UNIT: u64 = 1000;

fn add_sample(segment: &mut SegmentEncoder, pid: u32, time: u64, addresses: &[u64]) {
    let profile = &mut segment.profile;
    let event = profile.event("cpu", "count", 1).unwrap();
    let mut stack = StackId::EMPTY;
    for address in addresses {
        let frame = profile.frames.intern(Frame::Address(*address)).unwrap();
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let name = profile.string("jit").unwrap();
    let thread = Thread {
        pid: Pid(pid),
        tid: Tid(pid),
        process_name: name,
        name,
    };
    let sample = Sample {
        event,
        weight: 1,
        stack,
        time: Some(UnixNanos(time * UNIT)),
        thread: Some(profile.threads.intern(thread).unwrap()),
        cpu: None,
        labels: profile.label_set(Vec::new()).unwrap(),
    };
    profile.samples.push(sample);
}

fn function(
    segment: &mut SegmentEncoder,
    name: &str,
    range: Range<u64>,
    times: [u64; 2],
) -> GeneratedFunction {
    let order = segment.generated.len() as u64;
    GeneratedFunction {
        pid: Pid(7),
        order,
        range,
        earliest: UnixNanos(times[0] * UNIT),
        latest: UnixNanos(times[1] * UNIT),
        name: (!name.is_empty()).then(|| segment.profile.string(name).unwrap()),
        lines: Vec::new(),
    }
}

fn add_function(segment: &mut SegmentEncoder, name: &str, range: Range<u64>, times: [u64; 2]) {
    let function = function(segment, name, range, times);
    segment.generated.push(function);
}

fn recorded(segments: impl IntoIterator<Item = SegmentEncoder>) -> Profile {
    let mut bytes = HEADER.to_vec();
    for mut segment in segments {
        bytes.extend(segment.finish_block(UnixNanos(1 << 40), 0).unwrap());
    }
    read(&bytes).unwrap()
}

/// Returns the frames of each sample, the outermost first.
fn stacks(profile: &Profile) -> Vec<String> {
    let frame = |frame: FrameId| match *profile.frames.get(frame).unwrap() {
        Frame::Function { function, line } => {
            let found = profile.functions.get(function).unwrap();
            let place = found.file.map(|file| format!("@{}:{line}", profile.text(file)));
            format!("{}{}", profile.text(found.name), place.unwrap_or_default())
        }
        Frame::Address(address) => format!("{address:#x}"),
        _ => String::new(),
    };
    let stack = |sample: &Sample| {
        let mut frames: Vec<_> = profile.stacks.frames(sample.stack).map(frame).collect();
        frames.reverse();
        frames.join(" ")
    };
    profile.samples.iter().map(stack).collect()
}

#[test]
fn time_decides_between_functions_at_one_address() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    for time in [5, 10, 15, 20, 25, 30, 35] {
        add_sample(&mut segment, 7, time, &[0x1010]);
    }
    add_function(&mut segment, "one", 0x1000..0x1020, [10, 10]);
    add_function(&mut segment, "two", 0x1000..0x1020, [20, 20]);
    add_function(&mut segment, "", 0x1000..0x1020, [30, 30]);
    let expected = ["0x1010", "one", "one", "two", "two", "0x1010", "0x1010"];
    assert_eq!(stacks(&recorded([segment])), expected);
}

#[test]
fn only_code_of_the_process_is_named() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    add_sample(&mut segment, 7, 5, &[0x1000, 0x101f, 0x1020, 0xfff]);
    add_sample(&mut segment, 8, 5, &[0x1000]);
    add_function(&mut segment, "one", 0x1000..0x1020, [0, 1]);
    assert_eq!(stacks(&recorded([segment])), ["one one 0x1020 0xfff", "0x1000"]);
}

/// A list without times gives an interval in which a function came.
#[test]
fn functions_that_may_both_be_there_give_no_name() {
    for (names, times, expected) in [
        (["one", "two"], [[0, 10], [0, 10]], ["0x1010", "two"]),
        (["one", "one"], [[0, 10], [0, 10]], ["one", "one"]),
        (["one", "two"], [[0, 2], [4, 10]], ["0x1010", "two"]),
        (["one", "two"], [[0, 2], [6, 10]], ["one", "two"]),
        (["one", "two"], [[0, 2], [2, 4]], ["two", "two"]),
    ] {
        let mut segment = SegmentEncoder::new(0, UnixNanos(0));
        add_sample(&mut segment, 7, 5, &[0x1010]);
        add_sample(&mut segment, 7, 15, &[0x1010]);
        for (name, times) in names.into_iter().zip(times) {
            add_function(&mut segment, name, 0x1000..0x1020, times);
        }
        assert_eq!(stacks(&recorded([segment])), expected, "{names:?} {times:?}");
    }
}

/// The function of a late list is in another segment than its samples. The order of the list holds,
/// not that of the blocks.
#[test]
fn names_are_found_in_any_segment() {
    let mut first = SegmentEncoder::new(0, UnixNanos(0));
    add_sample(&mut first, 7, 5, &[0x1010]);
    let mut second = SegmentEncoder::new(1, UnixNanos(1));
    add_sample(&mut second, 7, 1 << 20, &[0x1010]);
    let newer = function(&mut second, "new", 0x1000..0x1020, [0, 1]);
    let older = function(&mut second, "old", 0x1000..0x1020, [0, 1]);
    let newer = GeneratedFunction { order: 1, ..newer };
    second.generated.extend([newer, older]);
    assert_eq!(stacks(&recorded([first, second])), ["new", "new"]);
}

#[test]
fn lines_are_those_of_the_address() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    add_sample(&mut segment, 7, 5, &[0x1000, 0x1004, 0x1009, 0x101f]);
    let mut one = function(&mut segment, "one", 0x1000..0x1020, [0, 1]);
    let [own, other] = ["a.js", "b.js"].map(|file| segment.profile.string(file).unwrap());
    one.lines = [(4, own, 7), (8, other, 99), (0x10, own, 9)]
        .map(|(offset, file, line)| GeneratedLine { offset, file, line })
        .into();
    segment.generated.push(one);
    // Before the first line, and in another file, the line is not known.
    let expected = "one@a.js:0 one@a.js:7 one@a.js:0 one@a.js:9";
    assert_eq!(stacks(&recorded([segment])), [expected]);
}

#[test]
fn other_frames_keep_their_lines() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    add_sample(&mut segment, 7, 5, &[0x8000_0000_0000_0001, 0x1000]);
    let function = segment.profile.function("schedule").unwrap();
    let (kernel, _) = segment.profile.frames.iter().next().unwrap();
    segment
        .profile
        .lines
        .insert(kernel, [Line { function, line: 0 }].into());
    add_function(&mut segment, "one", 0x1000..0x1020, [0, 1]);
    let profile = recorded([segment]);
    assert_eq!(stacks(&profile), ["0x8000000000000001 one"]);
    let (kernel, _) = profile.frames.iter().next().unwrap();
    assert_eq!(profile.lines_of(kernel).len(), 1);
}

#[test]
fn many_functions_at_many_addresses_take_bounded_time() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    for time in 0..3000 {
        add_sample(&mut segment, 7, time, &[0x1000 + time]);
    }
    for order in 0..3000 {
        let name = format!("f{order}");
        add_function(&mut segment, &name, 0..1 << 30, [order, order]);
    }
    let profile = recorded([segment]);
    assert!(
        profile
            .notes
            .iter()
            .any(|note| note.contains("changed too often"))
    );
    assert!(stacks(&profile).iter().all(|stack| stack.starts_with("0x")));
}
