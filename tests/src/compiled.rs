//! Recordings of sources that a test compiles itself, with flags of its own.
#![expect(clippy::unwrap_used, reason = "a helper that cannot go on fails its test")]

use crate::backtrail::{backtrail, repository};
use crate::bundle::Bundle;
use std::ffi::OsStr;
use std::process::Command;

/// Compiles a source below `tests/fixtures/`, records one run, and returns the bundle. The exit
/// status of the program does not matter.
#[track_caller]
pub fn compiled_and_recorded(compiler: &str, flags: &[&str], source: &str) -> Bundle {
    compiled_and_recorded_with(&[], compiler, flags, source)
}

/// Compiles and records as [`compiled_and_recorded`] does, with more options of `record`.
#[track_caller]
pub fn compiled_and_recorded_with(options: &[&str], compiler: &str, flags: &[&str], source: &str) -> Bundle {
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("program");
    let path = repository().join("tests/fixtures").join(source);
    let output = Command::new(compiler)
        .args(flags)
        .arg(&path)
        .arg("-o")
        .arg(&executable)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {flags:?}:\n{errors}");
    let bundle = folder.path().join("bundle");
    let mut command: Vec<&OsStr> = vec!["record".as_ref(), "--exit-zero".as_ref(), "--full".as_ref()];
    command.extend(options.iter().map(OsStr::new));
    command.extend([
        "-o".as_ref(),
        bundle.as_ref(),
        "--".as_ref(),
        executable.as_os_str(),
    ]);
    let _ = backtrail(command).unwrap().exited(0);
    Bundle::in_folder(folder, bundle)
}
