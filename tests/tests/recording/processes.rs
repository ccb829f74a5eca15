//! One bundle for each process of a command: `record --only` and `--keep`.

use backtrail_tests::backtrail::{backtrail, command, repository};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Compiles the worker as a program with this name.
fn compile(folder: &Path, name: &str) {
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-g", "-pthread", "-o"]).args([
        folder.join(name),
        repository().join("tests/fixtures/processes/worker.c"),
    ]);
    assert!(compiler.status().unwrap().success());
}

/// Runs `backtrail record` in a folder.
fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut record = command().unwrap();
    record.arg("record").args(arguments).current_dir(folder);
    record.output().unwrap()
}

/// Runs `backtrail record --json`, and returns the report.
fn report(folder: &Path, arguments: &[&str]) -> Value {
    let output = run(folder, &[&["--json"], arguments].concat());
    let printed = String::from_utf8_lossy(&output.stdout);
    let last = printed.lines().last().unwrap_or_default();
    let report: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(report["schema"], "backtrail-record-processes/1");
    assert_eq!(report["failures"], Value::Array(Vec::new()), "{report}");
    report
}

/// Returns name, ending, status and bundle of each kept process, in the order of names.
fn kept(report: &Value) -> BTreeSet<(String, String, Option<i64>, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = report["kept"].as_array().unwrap().iter();
    rows.map(|row| {
        (
            text(&row["name"]),
            text(&row["ending"]),
            row["status"].as_i64(),
            text(&row["bundle"]),
        )
    })
    .collect()
}

fn row(name: &str, ending: &str, status: i64, bundle: &str) -> (String, String, Option<i64>, String) {
    (
        name.to_owned(),
        ending.to_owned(),
        Some(status),
        bundle.to_owned(),
    )
}

/// Twenty processes, one after another.
const TWENTY: &str =
    "for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do ./worker $number; done; :";

#[test]
fn failed_processes_of_a_script_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "worker");
    let failed = BTreeSet::from([
        row("worker", "killed", 11, "kept/worker.bundle"),
        row("worker", "exited", 3, "kept/worker.2.bundle"),
    ]);
    let all = report(folder, &["--keep", "failed", "-o", "kept", "sh", "-c", TWENTY]);
    assert_eq!(kept(&all), failed, "{all}");
    assert_eq!((&all["ending"], &all["status"]), (&"exited".into(), &0.into()));
    assert_eq!(
        (&all["processes"], &all["unrecorded"], &all["dropped"]),
        (&21.into(), &0.into(), &19.into()),
        "{all}"
    );
    let crash = folder.join("kept/worker.bundle");
    let crash = crash.to_str().unwrap();
    let screen = backtrail(["debug", "--batch", "-e", "crash", crash])
        .unwrap()
        .exited(0)
        .stdout;
    assert!(screen.contains("SIGSEGV") && screen.contains("fall"), "{screen}");
    let exited = folder.join("kept/worker.2.bundle");
    let exited = exited.to_str().unwrap();
    let info = backtrail(["info", exited]).unwrap().exited(0).stdout;
    assert!(info.contains("status 3"), "{info}");
    let counted = backtrail(["debug", "--batch", "-e", "count main", exited])
        .unwrap()
        .exited(0)
        .stdout;
    assert!(counted.contains("main: 1 call"), "{counted}");
    for bundle in [crash, exited] {
        let checked = backtrail(["check", bundle]).unwrap().exited(0);
        assert!(checked.stdout.contains("no faults, 0 gap(s)"), "{checked:?}");
    }
}

#[test]
fn other_programs_run_without_being_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "worker");
    let output = run(
        folder,
        &["--only", "work*", "--keep", "failed", "sh", "-c", TWENTY],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let numbers: String = (1..=20)
        .filter(|number| *number != 5)
        .map(|number| format!("{number}\n"))
        .collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout), numbers);
    for part in [
        "the program exited with status 0: 21 process(es) ran, 1 not recorded (--only), 2 kept, 18 dropped\n",
        "SIGSEGV in fall at worker.c:12  worker.bundle\n",
        "  worker.2.bundle\n",
        "next: backtrail debug worker.bundle\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let names = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    assert_eq!(names(folder), 3, "the worker and two bundles");
    let all = report(folder, &["--only", "worker", "-o", "all", "sh", "-c", TWENTY]);
    assert_eq!(kept(&all).len(), 20, "{all}");
    assert_eq!(names(&folder.join("all")), 20);
}

#[test]
fn processes_that_run_together_have_complete_bundles() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "worker");
    let script = "for number in 5 9 1 5 9 1 5 9; do ./worker $number & done; wait";
    let report = report(
        folder,
        &["--only", "worker", "--keep", "failed", "bash", "-c", script],
    );
    assert_eq!(kept(&report).len(), 6, "{report}");
    for (_, _, _, bundle) in kept(&report) {
        let bundle = folder.join(bundle);
        let checked = backtrail(["check", bundle.to_str().unwrap()]).unwrap().exited(0);
        assert!(checked.stdout.contains("no faults, 0 gap(s)"), "{checked:?}");
    }
}

#[test]
fn failing_test_of_make_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["test_good", "test_bad"] {
        compile(folder, name);
    }
    let rules =
        "test: good bad\ngood:\n\t./test_good 1\nbad:\n\t./test_bad 9 || exit 4\n.PHONY: test good bad\n";
    std::fs::write(folder.join("Makefile"), rules).unwrap();
    let arguments = [
        "--only", "test_*", "--keep", "failed", "--", "make", "-j2", "test",
    ];
    let output = run(folder, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("status 3  test_bad.bundle\n"), "{said}");
    assert!(folder.join("test_bad.bundle").is_dir());
    assert!(!folder.join("test_good.bundle").exists());
}

#[test]
fn script_is_selected_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = folder.join("check_all");
    std::fs::write(&script, "#!/bin/sh\nexit 6\n").unwrap();
    let mut mode = std::fs::metadata(&script).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let report = report(folder, &["--only", "check_*", "sh", "-c", "./check_all; exit 2"]);
    let expected = BTreeSet::from([row("check_all", "exited", 6, "check_all.bundle")]);
    assert_eq!(kept(&report), expected, "{report}");
    assert_eq!(report["status"], 2);
}

#[test]
fn unrecorded_processes_run_as_they_do_alone() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, "worker");
    std::fs::copy(folder.join("worker"), folder.join("starter")).unwrap();
    // The second thread of a program that is not recorded executes one that is.
    let executed = report(
        folder,
        &["--only", "worker", "./starter", "exec", "./worker", "9"],
    );
    let expected = BTreeSet::from([row("worker", "exited", 3, "worker.bundle")]);
    assert_eq!(kept(&executed), expected, "{executed}");
    // A recorded program executes one that is not.
    let executed = report(
        folder,
        &["--only", "worker", "./worker", "exec", "./starter", "9"],
    );
    assert_eq!(kept(&executed), BTreeSet::new(), "{executed}");
    assert_eq!(
        (&executed["unrecorded"], &executed["status"]),
        (&1.into(), &3.into())
    );
    // Signals, stops and their ends reach processes that are not recorded.
    let script =
        "trap 'echo caught' USR1; kill -USR1 $$; sleep 0.1 & kill -STOP $!; kill -CONT $!; wait; kill $$";
    let output = run(folder, &["--only", "worker", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "caught\n");
    assert_eq!(output.status.code(), Some(143), "{output:?}");
}

#[test]
fn hanging_process_is_kept_at_the_end_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--only", "sleep", "--keep", "failed", "--for", "500ms"];
    let arguments = [&arguments[..], &["sh", "-c", "sleep 67; :"]].concat();
    let report = report(folder.path(), &arguments);
    assert_eq!(
        (&report["kept"][0]["name"], &report["kept"][0]["ending"]),
        (&"sleep".into(), &"running".into()),
        "{report}"
    );
    assert!(folder.path().join("sleep.bundle").is_dir());
}

#[test]
fn end_of_the_recording_ends_unrecorded_processes() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Instant::now();
    let script = "sleep 67 & echo $!; wait";
    let output = run(
        folder.path(),
        &["--only", "worker", "--for", "500ms", "sh", "-c", script],
    );
    assert!(begun.elapsed() < Duration::from_secs(20), "{output:?}");
    let sleep = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    // Its parent is gone, too. Until the system waits for it, it is a zombie.
    let has_ended = || {
        let stat = std::fs::read_to_string(format!("/proc/{sleep}/stat"));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
    };
    while !has_ended() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{sleep} still runs");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!sleep.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("2 process(es) ran, 2 not recorded"), "{said}");
    assert!(
        said.contains("\nno process ran a program that --only names;"),
        "{said}"
    );
}
