//! Stacks by the call frame information of corrupted files, and of corrupted stacks.

use crate::harness::fuzz;
use crate::mutate;
use backtrail_debugger::{OpenOptions, Session, stack};
use backtrail_decoder::Watch;
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::programs::Variant;
use std::fs;
use std::path::{Path, PathBuf};

/// More frames than the unwinder returns.
const LIMIT: usize = 10_000;

/// Runs a program that crashes in a callback of the C library, and returns it with its core, in
/// `folder`.
fn crashed(folder: &Path) -> (PathBuf, PathBuf) {
    let program = folder.join("program");
    fs::copy(
        backtrail_tests::built("crash_compare", Variant::NoPie).unwrap(),
        &program,
    )
    .unwrap();
    let bundle = folder.join("bundle");
    let arguments = [
        "record".as_ref(),
        "--exit-zero".as_ref(),
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
    ];
    let run = backtrail(arguments.into_iter().chain([program.as_os_str()])).unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    (program, bundle.join("core"))
}

/// Returns whether the stack in the core is complete.
fn is_whole(core: &Path) -> bool {
    let Ok(session) = Session::open(core, &OpenOptions::default(), &Watch::none()) else {
        return false;
    };
    let stacks = session.threads().iter().map(|thread| {
        let stack = stack::stack(&session, thread, 0, LIMIT, &Watch::none()).unwrap();
        stack.unknown_beyond.is_none() && stack.frames.len() > 3
    });
    stacks.fold(true, |whole, here| whole & here)
}

#[test]
fn call_frame_information() {
    let folder = tempfile::tempdir().unwrap();
    let (program, core) = crashed(folder.path());
    let whole = fs::read(&program).unwrap();
    // The tables are a small part of the file, so corruption starts at their header.
    let header = whole
        .windows(4)
        .position(|bytes| bytes == [1, 0x1b, 3, 0x3b])
        .unwrap();
    let tables = &whole[header..(header + 1024).min(whole.len())];
    fuzz(
        "call_frame_information",
        &[tables.to_vec()],
        mutate::bytes,
        |case| {
            let mut spoilt = whole.clone();
            let length = case.len().min(spoilt.len() - header);
            spoilt[header..header + length].copy_from_slice(&case[..length]);
            fs::write(&program, spoilt).unwrap();
            is_whole(&core)
        },
    );
}

#[test]
fn core_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let (_, core) = crashed(folder.path());
    let seed = fs::read(&core).unwrap();
    fuzz("core_stacks", &[seed], mutate::bytes, |case| {
        fs::write(&core, case).unwrap();
        is_whole(&core)
    });
}
