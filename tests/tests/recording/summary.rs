//! The summary of `backtrail record`, and the name of the bundle.

use backtrail_tests::backtrail::command;
use backtrail_tests::built;
use backtrail_tests::programs::Variant;
use std::ffi::OsStr;
use std::path::Path;

/// Runs `backtrail record` in a folder, and returns what it printed on stdout and stderr.
fn record(folder: &Path, arguments: &[&OsStr]) -> [String; 2] {
    let mut command = command().unwrap();
    command
        .args(["record", "--exit-zero"])
        .args(arguments)
        .current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn summary_names_signal_function_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let program = built("ledger", Variant::Pie).unwrap();
    let [_, said] = record(folder.path(), &[program.as_ref()]);
    let line = said.lines().find(|line| line.contains("killed the program"));
    let start = "SIGSEGV killed the program in post at ledger.c:64: ";
    assert!(line.is_some_and(|line| line.starts_with(start)), "{said}");
}

#[test]
fn words_after_the_program_are_its_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["-o", "true.bundle", "/bin/echo", "-n", "--full", "-o", "x"].map(OsStr::new);
    let [printed, _] = record(folder.path(), &words);
    assert_eq!(printed, "--full -o x");
    assert!(folder.path().join("true.bundle").is_dir());
}

#[test]
fn later_bundles_of_a_program_have_numbers() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        record(folder.path(), &["/bin/true".as_ref()]);
    }
    for name in ["true.bundle", "true.2.bundle", "true.3.bundle"] {
        assert!(folder.path().join(name).is_dir(), "{name}");
    }
    record(folder.path(), &["--overwrite".as_ref(), "/bin/true".as_ref()]);
    assert!(!folder.path().join("true.4.bundle").exists());
}

#[test]
fn status_is_that_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let status = |arguments: &[&str]| {
        let mut command = command().unwrap();
        command.arg("record").args(arguments).current_dir(folder.path());
        command.output().unwrap().status.code()
    };
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("kill -SEGV $$", 139),
        ("kill $$", 143),
    ] {
        assert_eq!(status(&["sh", "-c", script]), Some(expected), "{script}");
        assert_eq!(status(&["--exit-zero", "sh", "-c", script]), Some(0), "{script}");
    }
    // Failures of the recorder itself keep their status.
    assert_eq!(status(&["no/such/program"]), Some(1));
}
