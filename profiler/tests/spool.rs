//! The files of a spool: their times, limits, and what a killed recorder leaves.
#![cfg(test)]

use backtrail_profile::{Frame, StackId, UnixNanos, format::recording};
use backtrail_profiler::segment::RecordingFile;
use backtrail_profiler::spool::{SpooledFile, complete_files};
use backtrail_profiler::{RecordingOutput, SpoolOptions};
use std::fs;
use std::path::Path;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn options(directory: &Path, max_bytes: u64) -> RecordingOutput {
    RecordingOutput::Spool(SpoolOptions {
        directory: directory.to_owned(),
        interval: Duration::from_secs(10),
        max_bytes,
    })
}

fn add_block(file: &mut RecordingFile, second: u64) {
    let (segment, _) = file.segment();
    let profile = &mut segment.profile;
    let event = profile.event("cpu", "nanoseconds", 10).unwrap();
    let frame = profile.frames.intern(Frame::Address(second)).unwrap();
    let stack = profile.stacks.push(StackId::EMPTY, frame).unwrap();
    profile.add(event, 10, stack).unwrap();
    file.write_block(UnixNanos(second * SECOND), 0).unwrap();
}

/// Returns the addresses of the complete files, in their order.
fn addresses(directory: &Path) -> Vec<Vec<u64>> {
    let files = complete_files(directory).unwrap();
    let read = |file: &SpooledFile| {
        let profile = recording::read(&fs::read(&file.path).unwrap()).unwrap();
        let frames = profile.frames.iter().map(|(_, frame)| match frame {
            Frame::Address(address) => *address,
            other => panic!("{other:?}"),
        });
        frames.collect()
    };
    files.iter().map(read).collect()
}

#[test]
fn each_file_covers_an_interval() {
    let folder = tempfile::tempdir().unwrap();
    let output = options(folder.path(), u64::MAX);
    let mut file = RecordingFile::open(&output, UnixNanos(0)).unwrap();
    for second in 1..=25 {
        add_block(&mut file, second);
    }
    assert_eq!(
        addresses(folder.path()),
        [(1..=10).collect::<Vec<_>>(), (11..=20).collect()]
    );
    file.complete().unwrap();
    assert_eq!(addresses(folder.path())[2], (21..=25).collect::<Vec<_>>());
}

#[test]
fn recording_of_a_killed_recorder_becomes_complete() {
    let folder = tempfile::tempdir().unwrap();
    let output = options(folder.path(), u64::MAX);
    let mut file = RecordingFile::open(&output, UnixNanos(0)).unwrap();
    for second in 1..=3 {
        add_block(&mut file, second);
    }
    drop(file);
    assert_eq!(addresses(folder.path()), Vec::<Vec<u64>>::new());
    let next = RecordingFile::open(&output, UnixNanos(4 * SECOND)).unwrap();
    assert_eq!(addresses(folder.path()), [[1, 2, 3]]);
    drop(next);
}

#[test]
fn oldest_files_are_removed_beyond_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let output = options(folder.path(), 4000);
    let mut file = RecordingFile::open(&output, UnixNanos(0)).unwrap();
    for second in 1..=200 {
        add_block(&mut file, second);
    }
    let files = complete_files(folder.path()).unwrap();
    let size: u64 = files.iter().map(|file| file.size).sum();
    assert!(size <= 4000, "{size}");
    assert_eq!(files.len() as u64 + file.removed(), 20);
    assert!(addresses(folder.path()).last().unwrap().contains(&200));
}

#[test]
fn clock_that_goes_back_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = options(folder.path(), u64::MAX);
    for _ in 0..3 {
        let mut file = RecordingFile::open(&output, UnixNanos(7)).unwrap();
        add_block(&mut file, 1);
        file.complete().unwrap();
    }
    assert_eq!(addresses(folder.path()), [[1], [1], [1]]);
}
