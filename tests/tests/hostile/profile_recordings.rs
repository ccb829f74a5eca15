//! Recordings of the profiler, and the unwind tables that it builds.

use crate::harness::fuzz;
use crate::mutate;
use backtrail_profile::format::recording::{HEADER, SegmentEncoder, read};
use backtrail_profile::{Frame, FunctionProfile, Module, Profile, StackId, UnixNanos};
use backtrail_profiler::unwind::{CodeAt, MAX_FRAMES, Registers, StackBytes, unwind};
use backtrail_profiler::unwind_table::UnwindTable;
use backtrail_pt::{BuildId, FileOffset};

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
    profile.add(event, 1_000_000, stack).unwrap();
}

fn recording(segments: u32) -> Vec<u8> {
    let mut bytes = HEADER.to_vec();
    for number in 0..segments {
        let mut segment = SegmentEncoder::new(number, UnixNanos(number.into()));
        for block in 0..3 {
            (0..20).for_each(|depth| add(&mut segment.profile, depth + block));
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

/// Walks made-up stacks by the table of a damaged file.
#[test]
fn profiler_tables() {
    let program = std::fs::read("/usr/bin/env").unwrap();
    fuzz("profiler_tables", &[program], mutate::bytes, |bytes| {
        let Some(table) = UnwindTable::of_elf(bytes) else {
            return false;
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
        !table.is_empty()
    });
}
