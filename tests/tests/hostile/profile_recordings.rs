//! Recordings of the profiler, and the unwind tables that it builds.

use crate::harness::fuzz;
use crate::mutate::{self, Random};
use backtrail_profile::format::recording::{GeneratedFunction, GeneratedLine, HEADER, SegmentEncoder, read};
use backtrail_profile::{Frame, FunctionProfile, Line, Module, Profile, Sample, StackId, Thread, UnixNanos};
use backtrail_profiler::unwind::{CodeAt, MAX_FRAMES, Registers, StackBytes, unwind};
use backtrail_profiler::unwind_table::UnwindTable;
use backtrail_profiler::{jitdump, perf_map};
use backtrail_pt::{BuildId, FileOffset, Pid, Tid};

/// Adds a stack of some depth.
fn add(profile: &mut Profile, depth: u64) {
    let path = profile.string("/bin/server").unwrap();
    let build_id = BuildId::new(&[7; 20]);
    let module = profile.modules.intern(Module { build_id, path }).unwrap();
    let event = profile.event("cpu", "nanoseconds", 1_000_000).unwrap();
    let mut stack = StackId::EMPTY;
    for level in 0..depth {
        let frame = match level {
            0 => Frame::Lost,
            1 => Frame::Address(0x7fff_0000_1234),
            level => Frame::Code {
                module,
                offset: FileOffset(level * level * 40),
            },
        };
        let frame = profile.frames.intern(frame).unwrap();
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let thread = Thread {
        pid: Pid(7),
        tid: Tid(8),
        process_name: path,
        name: path,
    };
    let sample = Sample {
        event,
        weight: 1_000_000,
        stack,
        time: Some(UnixNanos(depth * 1000)),
        thread: Some(profile.threads.intern(thread).unwrap()),
        cpu: None,
        labels: profile.label_set(Vec::new()).unwrap(),
    };
    profile.samples.push(sample);
}

/// Adds a name for the innermost frame, and functions for its bare address.
fn add_names(segment: &mut SegmentEncoder, time: u64) {
    let function = segment.profile.function("vfs_read").unwrap();
    let (frame, _) = segment.profile.frames.iter().last().unwrap();
    segment
        .profile
        .lines
        .insert(frame, [Line { function, line: 3 }].into());
    for order in 0..4 {
        let name = segment.profile.string(&format!("generated {order}")).unwrap();
        segment.generated.push(GeneratedFunction {
            pid: Pid(7),
            order,
            range: 0x7fff_0000_1000..0x7fff_0000_1200 + order * 0x100,
            earliest: UnixNanos(time),
            latest: UnixNanos(time + order * 5000),
            name: (order != 2).then_some(name),
            lines: vec![GeneratedLine {
                offset: 4,
                file: name,
                line: 9,
            }],
        });
    }
}

fn recording(segments: u32) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for number in 0..segments {
        let mut segment = SegmentEncoder::new(number, UnixNanos(number.into()));
        for block in 0..3 {
            (0..20).for_each(|depth| add(&mut segment.profile, depth + block));
            add_names(&mut segment, block * 1000);
            bytes.extend(segment.finish_block(UnixNanos(block), block).unwrap());
        }
    }
    bytes
}

/// Mutations rarely keep a checksum, so the blocks around a damaged one must still be read.
#[test]
fn profile_recordings() {
    let seeds = [recording(1), recording(4)];
    fuzz("profile_recordings", &seeds, mutate::bytes, |bytes| {
        let Ok(profile) = read(bytes) else { return false };
        let functions = FunctionProfile::new(&profile).unwrap();
        assert_eq!(functions.samples.len(), profile.samples.len());
        !profile.samples.is_empty()
    });
}

#[test]
fn perf_maps() {
    let seed = b"7f0010 40 JS:*work /srv/a.js:7:12\n0x7f0050 10 one\n10 20 two three\n".to_vec();
    fuzz("perf_maps", &[seed], mutate::bytes, |bytes| {
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let found: Vec<_> = lines.filter_map(perf_map::parse).collect();
        for line in &found {
            assert!(line.size > 0 && line.start.checked_add(line.size).is_some());
            assert!((1..=perf_map::MAX_NAME).contains(&line.name.len()));
        }
        !found.is_empty()
    });
}

fn dump_record(kind: u32, words: &[u64], rest: &[u8]) -> Vec<u8> {
    let body = words.iter().flat_map(|word| word.to_ne_bytes());
    let body: Vec<u8> = body.chain(rest.iter().copied()).collect();
    let prefix = [kind, body.len() as u32 + 16]
        .into_iter()
        .flat_map(u32::to_ne_bytes);
    prefix.chain(5u64.to_ne_bytes()).chain(body).collect()
}

#[test]
fn jitdumps() {
    let fields = [0x4A69_5444u32, 1, 40, 62, 0, 7]
        .into_iter()
        .flat_map(u32::to_ne_bytes);
    let header: Vec<u8> = fields.chain([0; 16]).collect();
    let line = [&0x1004u64.to_ne_bytes()[..], &7u64.to_ne_bytes(), b"a.js\0"].concat();
    let seed = [
        header,
        dump_record(2, &[0x1000, 1], &line),
        dump_record(0, &[7, 0x1000, 0x1000, 16, 1], b"work\0\x90\x90"),
        dump_record(1, &[7, 0x1000, 0x1000, 0x2000, 16, 1], b""),
        dump_record(3, &[], b""),
    ]
    .concat();
    fuzz("jitdumps", &[seed], mutate::bytes, |bytes| {
        let Some(header) = jitdump::header(bytes) else {
            return false;
        };
        let mut rest = bytes.get(header.size as usize..).unwrap_or_default();
        let mut found = 0;
        while let Some(prefix) = jitdump::prefix(rest) {
            let body = rest
                .get(jitdump::PREFIX..prefix.size as usize)
                .unwrap_or_default();
            if let Some(load) = jitdump::load(body) {
                assert!(load.size > 0 && load.start.checked_add(load.size).is_some());
                assert!(load.name.len() <= perf_map::MAX_NAME);
                found += 1;
            }
            if let Some(moved) = jitdump::moved(body) {
                assert!(moved.to.checked_add(moved.size).is_some());
            }
            let lines = jitdump::debug_lines(body).count();
            assert!(lines <= body.len() / 17);
            rest = rest.get(prefix.size as usize..).unwrap_or_default();
        }
        found > 0
    });
}

/// Walks made-up stacks by the table of a damaged file. Returns the number of its rows.
fn walks(bytes: &[u8]) -> usize {
    let Some(table) = UnwindTable::of_elf(bytes) else {
        return 0;
    };
    let stack: Vec<u8> = (0..512u64)
        .flat_map(|word| (word * 331 % 0x8000).to_le_bytes())
        .collect();
    for start in (0..0x8000).step_by(0x123) {
        let registers = Registers {
            pc: start,
            sp: 0x1000,
            bp: 0x1000 + start % 4096,
        };
        let stack = StackBytes {
            start: 0x1000,
            bytes: &stack,
        };
        let mut addresses = Vec::new();
        unwind(
            registers,
            stack,
            |pc| CodeAt::Rule(table.rule(pc)),
            &mut addresses,
        );
        assert!(addresses.len() <= MAX_FRAMES);
    }
    table.len()
}

#[test]
fn profiler_tables() {
    let program = std::fs::read("/usr/bin/env").unwrap();
    fuzz("profiler_tables", &[program], mutate::bytes, |bytes| {
        walks(bytes) > 0
    });
}

/// Corrupts the frames of a file alone, so that most of them stay. A table of the same size is
/// accepted.
#[test]
fn profiler_frames() {
    let program = std::fs::read("/usr/bin/env").unwrap();
    let frames = |random: &mut Random, file: &mut Vec<u8>, others: &[Vec<u8>]| {
        mutate::section(random, file, others, |name| name == ".eh_frame");
    };
    let rows = walks(&program);
    assert!(rows > 100);
    fuzz("profiler_frames", &[program], frames, |bytes| {
        walks(bytes) == rows
    });
}
