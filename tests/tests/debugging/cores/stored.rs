//! `backtrail debug` without an argument names the newest core that systemd-coredump stored.

use super::{CRASH, Place};
use crate::gdb_answers::have_gdb;
use backtrail_tests::backtrail::command;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const BOOT: &str = "0123456789abcdef0123456789abcdef";

/// Runs `backtrail debug` with only this directory in the PATH.
fn debug_newest(programs: &Path, stored: &Path) -> (Option<i32>, String) {
    let output = command()
        .unwrap()
        .args(["debug", "--core-dir"])
        .arg(stored)
        .env("PATH", programs)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    (output.status.code(), said)
}

#[test]
fn newest_stored_core_is_named() {
    let place = Place::new();
    let (stored, programs) = (place.at("stored"), place.at("programs"));
    fs::create_dir_all(&stored).unwrap();
    fs::create_dir_all(&programs).unwrap();
    let (status, said) = debug_newest(&programs, &stored);
    assert_eq!(status, Some(2));
    assert!(said.contains("has no core"), "{said}");
    let name = |program: &str, pid: u32, time: u64| format!("core.{program}.0.{BOOT}.{pid}.{time}.zst");
    for (program, pid, time) in [("old", 7, 1000), ("new.er", 8, 3000), ("middle", 9, 2000)] {
        fs::write(stored.join(name(program, pid, time)), "").unwrap();
    }
    fs::write(stored.join("unrelated"), "").unwrap();
    let (status, said) = debug_newest(&programs, &stored);
    assert_eq!(status, Some(2));
    assert!(
        said.contains("new.er (process 8)") && said.contains(&name("new.er", 8, 3000)),
        "{said}"
    );
    // With the tool, its list counts: the newest core was removed.
    let tool = programs.join("coredumpctl");
    let list = r#"[{"time":2000,"pid":9,"uid":0,"gid":0,"sig":11,"corefile":"present","exe":"/opt/middle","size":1},
        {"time":3000,"pid":8,"uid":0,"gid":0,"sig":6,"corefile":"missing","exe":"/opt/newer","size":null}]"#;
    fs::write(&tool, format!("#!/bin/sh\necho '{}'\n", list.replace('\n', " "))).unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, said) = debug_newest(&programs, &stored);
    assert_eq!(status, Some(2));
    assert!(said.contains("/opt/middle (process 9, signal 11)"), "{said}");
    assert!(said.contains(&name("middle", 9, 2000)), "{said}");
    // A core in the journal alone has no file, and an older process had its id.
    fs::remove_file(stored.join(name("middle", 9, 2000))).unwrap();
    fs::write(stored.join(name("other", 9, 2001)), "").unwrap();
    let (status, said) = debug_newest(&programs, &stored);
    assert_eq!(status, Some(1));
    assert!(said.contains("coredumpctl dump 9"), "{said}");
}

#[test]
fn named_core_opens() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("program", CRASH, &[]);
    let core = place.crash(&program, &[]);
    let stored = place.copy(&core, &format!("stored/core.program.0.{BOOT}.7.1000"));
    let (_, said) = debug_newest(&place.at("none"), &place.at("stored"));
    let named = said.split("backtrail debug ").nth(1).unwrap().trim();
    assert_eq!(named, stored.display().to_string());
    let run = super::debug(Path::new(named), &[], &["bt 1"]).exited(0);
    assert!(run.stdout.contains("fail_here"), "{}", run.stdout);
}
