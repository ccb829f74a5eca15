//! Many crashes: each leaves a complete bundle, and no other file.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::programs::{self, Ending, Variant};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How the program ends.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// By its own crash: a program of the table.
    Crash(&'static str),
    /// By SIGKILL from outside, during its work.
    Killed,
}

const KINDS: &[Kind] = &[
    Kind::Crash("crash_null"),
    Kind::Crash("crash_stack"),
    Kind::Crash("crash_abort"),
    Kind::Crash("crash_free"),
    Kind::Crash("crash_ud2"),
    Kind::Crash("crash_div"),
    Kind::Crash("crash_bus"),
    Kind::Crash("crash_jump"),
    Kind::Crash("thread_crash"),
    Kind::Killed,
];

const SIGKILL: i32 = 9;

/// The option that records values.
const VALUES: &[&str] = &["--values"];

#[test]
fn crashes_of_every_kind_leave_complete_bundles() {
    crash(2, &[]);
}

#[test]
fn crashes_of_every_kind_leave_complete_values() {
    crash(1, VALUES);
}

#[test]
#[ignore = "minutes"]
fn a_thousand_crashes_leave_a_thousand_complete_bundles() {
    crash(100, &[]);
}

#[test]
#[ignore = "minutes"]
fn a_thousand_crashes_leave_a_thousand_complete_value_logs() {
    crash(100, VALUES);
}

/// Crashes each kind `rounds` times, two at a time. `options` are those of `record`.
fn crash(rounds: usize, options: &'static [&str]) {
    let folder = tempfile::tempdir().unwrap();
    let before = ours(folder.path());
    assert!(before.is_empty(), "{before:?}");
    std::thread::scope(|scope| {
        for half in 0..2 {
            let folder = folder.path().join(half.to_string());
            fs::create_dir(&folder).unwrap();
            let kinds = KINDS.iter().skip(half).step_by(2);
            scope.spawn(move || {
                for round in 0..rounds {
                    kinds
                        .clone()
                        .for_each(|kind| once(*kind, options, &folder, round));
                }
            });
        }
    });
    let after = ours(folder.path());
    assert!(after.is_empty(), "orphans: {after:?}");
}

fn once(kind: Kind, options: &[&str], folder: &Path, round: usize) {
    let what = format!("{kind:?}, round {round}");
    let bundle = folder.join("bundle");
    let program = folder.join("program");
    let (command, signal): (Vec<OsString>, i32) = match kind {
        Kind::Crash(name) => {
            let row = programs::find(name).unwrap();
            let Ending::Signal(signal) = row.ending else {
                panic!("{name} does not crash")
            };
            fs::copy(backtrail_tests::build(row, Variant::Pie).unwrap(), &program).unwrap();
            (vec![program.clone().into()], signal)
        }
        Kind::Killed => {
            fs::copy("/bin/sh", &program).unwrap();
            let script = "echo $$ > begun; i=0; while :; do i=$((i+1)); done";
            let sh = vec![program.clone().into(), "-c".into(), script.into()];
            (sh, SIGKILL)
        }
    };
    let mut arguments: Vec<OsString> = ["record", "--json", "--exit-zero", "-o"].map(Into::into).into();
    arguments.push(bundle.clone().into());
    arguments.extend(options.iter().map(Into::into));
    arguments.push("--".into());
    arguments.extend(command);
    let killer = matches!(kind, Kind::Killed).then(|| {
        let folder = folder.to_path_buf();
        std::thread::spawn(move || kill_once_begun(&folder))
    });
    let run = in_folder(folder, &arguments);
    if let Some(killer) = killer {
        killer.join().unwrap();
        fs::remove_file(folder.join("begun")).unwrap();
    }
    let recorded: Value = serde_json::from_str(&run).unwrap_or_else(|error| panic!("{what}: {error}: {run}"));
    assert_eq!(
        (&recorded["ending"], &recorded["status"]),
        (&Value::from("killed"), &Value::from(signal)),
        "{what}"
    );
    let path = bundle.as_os_str();
    let checked = backtrail(["check".as_ref(), path]).unwrap().exited(0);
    if options == VALUES {
        let clean = "no faults, 0 gap(s), 0 gap(s) of values, 0 unseen change(s) of memory";
        assert!(checked.stdout.contains(clean), "{what}: {}", checked.stdout);
    }
    let meta: Value = serde_json::from_str(&fs::read_to_string(bundle.join("meta.json")).unwrap()).unwrap();
    if signal == SIGKILL {
        assert!(!bundle.join("core").exists(), "{what}");
    } else {
        assert_eq!(meta["crash"]["signal"], signal, "{what}");
        assert!(bundle.join("core").exists(), "{what}: no core");
    }
    fs::remove_dir_all(&bundle).unwrap();
    fs::remove_file(&program).unwrap();
    let left: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(left.is_empty(), "{what} left {left:?}");
}

/// Returns the output of `backtrail` in this working directory.
fn in_folder(folder: &Path, arguments: &[OsString]) -> String {
    let output = Command::new(backtrail_tests::backtrail::binary().unwrap())
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn kill_once_begun(folder: &Path) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let text = fs::read_to_string(folder.join("begun")).unwrap_or_default();
        if text.ends_with('\n') {
            let killed = Command::new("kill").args(["-KILL", text.trim()]).status();
            assert!(killed.unwrap().success());
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the program did not begin");
}

/// Returns the processes that run a program of the folder.
fn ours(folder: &Path) -> BTreeSet<PathBuf> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| fs::read_link(process.path().join("exe")).ok())
        .filter(|program| program.starts_with(folder))
        .collect()
}
