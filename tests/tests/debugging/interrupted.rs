//! Ctrl-C and SIGTERM end commands that write a bundle or file. The exit status is the one that
//! shells expect, and no incomplete file remains.

use backtrail_tests::backtrail::{backtrail, command};
use backtrail_tests::bundle::Bundle;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
/// A size that takes long to copy, and occupies no disk space.
const LARGE: u64 = 1 << 30;

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).unwrap().next().is_none()
}

/// Creates a sparse file of zeros.
fn zeros(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

/// Runs `backtrail ARGUMENTS... -o PLACE`, signals it after it has begun to write, and checks what
/// remains.
#[track_caller]
fn ends_cleanly(arguments: &[&OsStr], signal: Signal) {
    let folder = tempfile::tempdir().unwrap();
    let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    arguments.extend(["-o".into(), folder.path().join("out").into()]);
    let child = command()
        .unwrap()
        .args(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while is_empty(folder.path()) {
        assert!(begun.elapsed() < LIMIT, "{arguments:?} writes nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + signal as i32), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "backtrail: canceled\n");
    assert!(is_empty(folder.path()), "{arguments:?} leaves something behind");
}

#[test]
fn interrupted_commands_leave_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let (bundle, _) = Bundle::made(&["record"], &["--".as_ref(), "true".as_ref()]);
    zeros(&bundle.path.join("large"), LARGE);
    let packed = folder.path().join("large.btz");
    let pack: [&OsStr; 2] = ["pack".as_ref(), bundle.path.as_ref()];
    let made: Vec<&OsStr> = [pack.as_slice(), &["-o".as_ref(), packed.as_ref()]].concat();
    let _ = backtrail(made).unwrap().exited(0);
    let export: [&OsStr; 4] = [
        "export".as_ref(),
        bundle.path.as_ref(),
        "--format".as_ref(),
        "lldb".as_ref(),
    ];
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        ends_cleanly(&pack, signal);
        ends_cleanly(&["unpack".as_ref(), packed.as_ref()], signal);
        ends_cleanly(&export, signal);
    }
}

#[test]
fn interrupted_import_leaves_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let packets = folder.path().join("packets");
    zeros(&packets, 64 * LARGE);
    let image = std::env::current_exe().unwrap();
    let import: [&OsStr; 6] = [
        "import".as_ref(),
        "raw".as_ref(),
        "--pt".as_ref(),
        packets.as_ref(),
        "--image".as_ref(),
        image.as_ref(),
    ];
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        ends_cleanly(&import, signal);
    }
}
