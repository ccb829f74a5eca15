//! Tests of recordings: round trips, truncation, damage and replaced segments.

use super::*;
use crate::{
    BranchStack, EventId, Frame, Label, LabelValue, Line, Module, Profile, Sample, StackId, TakenBranch,
    Thread, UnixNanos,
};
use backtrail_pt::{BuildId, Cpu, FileOffset, Pid, Tid};
use proptest::prelude::*;

/// Adds a sample to a profile: a stack of `offsets`, outermost first.
fn add(profile: &mut Profile, event: EventId, tid: u32, time: u64, offsets: &[u64]) {
    let path = profile.string("/bin/server").unwrap();
    let build_id = BuildId::new(&[7; 20]);
    let module = profile.modules.intern(Module { build_id, path }).unwrap();
    let mut stack = StackId::EMPTY;
    for offset in offsets {
        let frame = match offset {
            0 => Frame::Lost,
            1 => Frame::Address(0x7fff_0000_1234),
            offset => Frame::Code {
                module,
                offset: FileOffset(*offset),
            },
        };
        let frame = profile.frames.intern(frame).unwrap();
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let name = profile.string(&format!("thread {tid}")).unwrap();
    let thread = Thread {
        pid: Pid(7),
        tid: Tid(tid),
        process_name: path,
        name,
    };
    let key = profile.string("waker").unwrap();
    let value = match tid % 3 {
        0 => LabelValue::Text(name),
        _ => LabelValue::Number(-i64::from(tid), key),
    };
    let labels = if tid % 4 == 1 {
        vec![]
    } else {
        vec![Label { key, value }]
    };
    let sample = Sample {
        event,
        weight: 1_000_000 + i64::from(tid),
        stack,
        time: Some(UnixNanos(time)),
        thread: Some(profile.threads.intern(thread).unwrap()),
        cpu: Some(Cpu(tid % 2)),
        labels: profile.label_set(labels).unwrap(),
    };
    profile.samples.push(sample);
}

/// Returns the blocks of some segments of two blocks each, in order.
fn blocks(segments: u32, samples: &[(u32, Vec<u64>)]) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    for number in 0..segments {
        let start = 1_000_000_000 * u64::from(number);
        let mut segment = SegmentEncoder::new(number, UnixNanos(start));
        for half in 1..3u64 {
            let event = segment.profile.event("cpu", "nanoseconds", 1_000_000).unwrap();
            for (tid, offsets) in samples {
                add(&mut segment.profile, event, *tid, start + half * 1000, offsets);
            }
            let end = UnixNanos(start + half * 500_000_000);
            blocks.push(segment.finish_block(end, half - 1).unwrap());
        }
    }
    blocks
}

fn recording<'a>(blocks: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    let blocks: Vec<_> = blocks.into_iter().flatten().copied().collect();
    [&HEADER[..], &blocks].concat()
}

/// A sample: the name of the thread, the weight, the processor, the time, the frames, the labels.
type SeenSample = (String, i64, u32, Option<UnixNanos>, Vec<Frame>, Vec<String>);

/// Returns what a reader sees of a profile's samples.
fn seen(profile: &Profile) -> Vec<SeenSample> {
    let label = |label: &Label| match label.value {
        LabelValue::Text(text) => format!("{}={}", profile.text(label.key), profile.text(text)),
        LabelValue::Number(number, unit) => format!("{number} {}", profile.text(unit)),
    };
    let sample = |sample: &Sample| {
        let thread = profile.threads.get(sample.thread.unwrap()).unwrap();
        let frames = profile.stacks.frames(sample.stack);
        let frames = frames.map(|frame| *profile.frames.get(frame).unwrap());
        (
            profile.text(thread.name).to_owned(),
            sample.weight,
            sample.cpu.unwrap().0,
            sample.time,
            frames.collect(),
            profile.labels(sample.labels).iter().map(label).collect(),
        )
    };
    profile.samples.iter().map(sample).collect()
}

fn some() -> Vec<(u32, Vec<u64>)> {
    vec![
        (3, vec![0x1000, 0x1010, 0x1500]),
        (4, vec![0, 0x1010]),
        (3, vec![0x1000, 1]),
        (9, vec![]),
    ]
}

#[test]
fn samples_of_all_blocks_are_read() {
    let profile = read(&recording(&blocks(2, &some()))).unwrap();
    let mut expected = Profile::default();
    let event = expected.event("cpu", "nanoseconds", 1_000_000).unwrap();
    for time in [1000, 2000, 1_000_001_000, 1_000_002_000] {
        for (tid, offsets) in some() {
            add(&mut expected, event, tid, time, &offsets);
        }
    }
    assert_eq!(seen(&profile), seen(&expected));
    assert_eq!(profile.modules.len(), 1);
    assert_eq!(profile.total(event), 4 * (4_000_000 + 3 + 4 + 3 + 9));
    assert_eq!(profile.start, Some(UnixNanos(0)));
    assert_eq!(profile.duration, Some(2_000_000_000));
    assert_eq!(profile.notes.len(), 1, "{:?}", profile.notes);
    assert!(profile.notes[0].contains("dropped 2 records"));
}

#[test]
fn truncated_recording_has_the_whole_blocks() {
    let blocks = blocks(2, &some());
    let whole = recording(&blocks);
    let ends: Vec<usize> = blocks
        .iter()
        .scan(HEADER.len(), |end, block| {
            *end += block.len();
            Some(*end)
        })
        .collect();
    for length in 0..whole.len() {
        let read = read(&whole[..length]);
        let complete = ends.iter().filter(|end| **end <= length).count();
        match (length, complete) {
            (0..16, _) => assert!(read.is_err()),
            (16, _) => assert!(read.unwrap().samples.is_empty()),
            (_, 0) => assert!(read.unwrap_err().to_string().contains("no block is whole")),
            _ => assert_eq!(read.unwrap().samples.len(), complete * some().len(), "{length}"),
        }
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let blocks = blocks(2, &some());
    let whole = recording(&blocks);
    let all = 4 * some().len();
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match read(&damaged) {
            Err(error) => assert!(bit / 8 < 16, "{bit}: {error}"),
            Ok(profile) => {
                assert!(profile.samples.len() < all, "{bit}");
                assert!(profile.notes.iter().any(|note| note.contains("damaged")), "{bit}");
            }
        }
    }
}

#[test]
fn replaced_segment_start_leaves_others() {
    let blocks = blocks(3, &some());
    // The start of the file is that of the newest segment, which replaced the first block.
    let ring = recording([&blocks[4], &blocks[1], &blocks[2], &blocks[3]]);
    let profile = read(&ring).unwrap();
    assert_eq!(profile.samples.len(), 3 * some().len());
    assert!(
        profile
            .notes
            .iter()
            .any(|note| note.starts_with("1 blocks are left out")),
        "{:?}",
        profile.notes
    );
    let first = profile.samples[0].time;
    assert_eq!(first, Some(UnixNanos(1_000_001_000)));
}

#[test]
fn overlapping_headers_take_bounded_time() {
    let mut bytes = HEADER.to_vec();
    for _ in 0..100_000 {
        bytes.extend(b"BtPb");
        bytes.extend([0; 8]);
        bytes.extend(500_000u32.to_le_bytes());
        bytes.extend([0; 4]);
    }
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("too many damaged blocks"), "{error}");
}

#[test]
fn unpacked_size_is_bounded() {
    let mut bytes = HEADER.to_vec();
    for index in 0..8 {
        bytes.extend(super::block::Block::pack(0, index, &vec![0; 1 << 24]).unwrap());
    }
    assert!(matches!(read(&bytes), Err(crate::Error::TooLarge { .. })));
}

/// Names that the recorder knows are in the block of their frame, and other frames have none.
#[test]
fn lines_of_frames_are_read() {
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    let mut bytes = HEADER.to_vec();
    for (name, offsets) in [("schedule", [0x10, 0x20]), ("vfs_read", [0x30, 0x40])] {
        let event = segment.profile.event("cpu", "count", 1).unwrap();
        add(&mut segment.profile, event, 1, 0, &offsets);
        let function = segment.profile.function(name).unwrap();
        let (frame, _) = segment.profile.frames.iter().last().unwrap();
        let line = Line { function, line: 7 };
        segment.profile.lines.insert(frame, [line].into());
        bytes.extend(segment.finish_block(UnixNanos(1), 0).unwrap());
    }
    let profile = read(&bytes).unwrap();
    let frames = profile.frames.iter();
    let names: Vec<_> = frames
        .map(|(frame, _)| match profile.lines_of(frame) {
            [line] => profile.text(profile.functions.get(line.function).unwrap().name),
            _ => "",
        })
        .collect();
    assert_eq!(names, ["", "schedule", "", "vfs_read"]);
}

/// Earlier versions wrote no lines: their blocks end with the samples.
#[test]
fn block_without_lines_is_read() {
    let block = &blocks(1, &some())[0];
    let mut payload = super::block::Block::parse(block).unwrap().unpack().unwrap();
    // The numbers of lines and of generated functions.
    assert_eq!((payload.pop(), payload.pop()), (Some(0), Some(0)));
    let earlier = super::block::Block::pack(0, 0, &payload).unwrap();
    let profile = read(&recording([&earlier])).unwrap();
    assert_eq!(profile.samples.len(), some().len());
    payload.extend([1, 200]);
    let malformed = super::block::Block::pack(0, 0, &payload).unwrap();
    assert!(read(&recording([&malformed])).unwrap().samples.is_empty());
}

fn samples() -> impl Strategy<Value = Vec<(u32, Vec<u64>)>> {
    let offsets = prop::collection::vec(prop_oneof![0u64..3, 0u64..1 << 20, any::<u64>()], 0..12);
    prop::collection::vec((0u32..5, offsets), 0..30)
}

proptest! {
    #[test]
    fn any_samples_round_trip(samples in samples()) {
        let profile = read(&recording(&blocks(1, &samples))).unwrap();
        let mut expected = Profile::default();
        let event = expected.event("cpu", "nanoseconds", 1_000_000).unwrap();
        for time in [1000, 2000] {
            for (tid, offsets) in &samples {
                add(&mut expected, event, *tid, time, offsets);
            }
        }
        prop_assert_eq!(seen(&profile), seen(&expected));
    }

    /// A payload with a right checksum may still be anything.
    #[test]
    fn any_payload_is_read_without_harm(payload in prop::collection::vec(any::<u8>(), 0..200), small in any::<bool>()) {
        let payload: Vec<u8> = payload.into_iter().map(|byte| if small { byte % 8 } else { byte }).collect();
        let block = super::block::Block::pack(0, 0, &payload).unwrap();
        let _ = read(&recording([&block])).unwrap();
    }

    #[test]
    fn changed_recordings_are_read_without_harm(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut whole = recording(&blocks(2, &some()));
        let at = at.index(whole.len());
        whole.splice(at..(at + bytes.len() / 2).min(whole.len()), bytes);
        let _ = read(&whole);
    }
}

proptest! {
    #[test]
    fn branches_before_samples_are_kept(
        stacks in prop::collection::vec(
            prop::collection::vec((0..9_u64, 0..9_u64, prop::option::of(any::<bool>())), 0..32),
            0..4,
        ),
    ) {
        let mut segment = SegmentEncoder::new(0, UnixNanos(0));
        let mut blocks = Vec::new();
        for _ in 0..2 {
            let profile = &mut segment.profile;
            for branches in &stacks {
                let mut frame = |at: u64| profile.frames.intern(Frame::Address(at)).unwrap();
                let branches: Box<[TakenBranch]> = branches
                    .iter()
                    .map(|(from, to, is_mispredicted)| TakenBranch {
                        from: frame(*from),
                        to: frame(*to),
                        is_mispredicted: *is_mispredicted,
                    })
                    .collect();
                let inner = branches.first().map_or_else(|| frame(1), |branch| branch.to);
                let stack = profile.stacks.push(StackId::EMPTY, inner).unwrap();
                profile.branch_stacks.push(BranchStack { stack, branches });
            }
            blocks.push(segment.finish_block(UnixNanos(1), 0).unwrap());
        }
        let read = read(&recording(&blocks)).unwrap();
        let mut merged = Profile::default();
        merged.frames.intern(Frame::Lost).unwrap();
        crate::merge(&mut merged, &read).unwrap();
        for profile in [read, merged] {
            let address = |frame| match profile.frames.get(frame) {
                Some(Frame::Address(address)) => *address,
                other => panic!("{other:?}"),
            };
            let seen: Vec<Vec<_>> = profile
                .branch_stacks
                .iter()
                .map(|stack| {
                    let branch = |branch: &TakenBranch| {
                        (address(branch.from), address(branch.to), branch.is_mispredicted)
                    };
                    stack.branches.iter().map(branch).collect()
                })
                .collect();
            prop_assert_eq!(seen, [&stacks[..], &stacks[..]].concat());
        }
    }
}

#[test]
fn changed_period_keeps_weights() {
    let mut blocks = Vec::new();
    for number in 0..2 {
        let mut segment = SegmentEncoder::new(number, UnixNanos(0));
        for (at, period) in [(1, 10), (2, 25), (3, 10)] {
            // The first segment begins with another period than the second one.
            let period = period * (u64::from(number) + 1);
            let event = segment.profile.event("cpu", "nanoseconds", period).unwrap();
            segment.profile.add(event, 7, StackId::EMPTY).unwrap();
            blocks.push(segment.finish_block(UnixNanos(at), 0).unwrap());
        }
    }
    let profile = read(&recording(&blocks)).unwrap();
    let weights: Vec<_> = profile.samples.iter().map(|sample| sample.weight).collect();
    assert_eq!((weights, profile.events.len()), (vec![7; 6], 1));
}
