//! `backtrail fdo` reads the branches of the profiler's recordings as those of LBR elsewhere.

use crate::fdo_contexts::{CLANG, Recording, fdo, is_installed};
use backtrail_profile::format::recording::{HEADER, SegmentEncoder};
use backtrail_profile::{BranchStack, Frame, FrameId, Module, Profile, StackId, TakenBranch, UnixNanos};
use backtrail_pt::FileOffset;
use std::path::Path;
use std::process::Command;

/// The loaded code of a program: its address, and its offset in the file.
fn code_segment(program: &Path) -> (u64, u64) {
    let mut readelf = Command::new("readelf");
    let output = readelf.arg("-lW").arg(program).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let segments = text.lines().filter(|line| line.trim_start().starts_with("LOAD"));
    let code: Vec<_> = segments.filter(|line| line.contains(" R E ")).collect();
    let words: Vec<&str> = code[0].split_whitespace().collect();
    (number(words[2]), number(words[1]))
}

/// Adds a sample: the addresses of the stack and branches as `perf script` prints them.
fn add(profile: &mut Profile, text: &str, frame: impl Fn(&mut Profile, u64) -> FrameId) {
    let address = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap();
    let mut chain = Vec::new();
    let mut branches = Vec::new();
    for word in text.split_whitespace() {
        let mut parts = word.split('/');
        let first = address(parts.next().unwrap());
        match parts.next() {
            None => chain.push(first),
            Some(to) => branches.push(TakenBranch {
                from: frame(profile, first),
                to: frame(profile, address(to)),
                is_mispredicted: Some(parts.next() == Some("M")),
            }),
        }
    }
    let mut stack = StackId::EMPTY;
    for (depth, address) in chain.iter().enumerate().rev() {
        // The profiler's frames of callers are inside of the call.
        let frame = frame(profile, address - u64::from(depth > 0));
        stack = profile.stacks.push(stack, frame).unwrap();
    }
    let branches = branches.into();
    profile.branch_stacks.push(BranchStack { stack, branches });
}

#[test]
fn branches_of_recordings_are_those_of_perf() {
    if !is_installed(CLANG) {
        return;
    }
    let recorded = Recording::new(&["-O1", "-fno-omit-frame-pointer"]);
    let (program, script) = (recorded.path("contexts"), recorded.samples());
    let (start, offset) = code_segment(&program);
    let mut segment = SegmentEncoder::new(0, UnixNanos(0));
    let profile = &mut segment.profile;
    let path = profile.string(program.to_str().unwrap()).unwrap();
    let module = Module { build_id: None, path };
    let module = profile.modules.intern(module).unwrap();
    let frame = |profile: &mut Profile, address: u64| {
        let frame = match recorded.is_loaded(address) {
            true => Frame::Code {
                module,
                offset: FileOffset(address - start + offset),
            },
            false => Frame::Address(address),
        };
        profile.frames.intern(frame).unwrap()
    };
    let text = std::fs::read_to_string(&script).unwrap();
    let samples = text.split("\n\n").filter(|sample| !sample.trim().is_empty());
    samples.for_each(|sample| add(profile, sample, frame));
    assert!(profile.branch_stacks.len() > 20);
    let block = segment.finish_block(UnixNanos(1), 0).unwrap();
    let recording = recorded.path("recording");
    std::fs::write(&recording, [&HEADER[..], &block].concat()).unwrap();
    for format in ["preagg", "autofdo", "csspgo", "fdata"] {
        let [of_perf, ours] = [&script, &recording].map(|input| fdo(format, &[], &program, input));
        assert_eq!(
            (of_perf.status, ours.status),
            (Some(0), Some(0)),
            "{}",
            ours.stderr
        );
        assert!(ours.stdout.lines().count() > 3, "{format}: {}", ours.stdout);
        assert_eq!(ours.stdout, of_perf.stdout, "{format}");
    }
}
