//! Permissions and trust in the spool: who may open its bundles.

use crate::collect::example;
use crate::collector::{Collector, cannot};
use backtrail_tests::backtrail::command;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;

/// A user and a group that do not exist.
const MEMBER: u32 = 54_321;
const GROUP: u32 = 54_322;

/// Runs the binary as a user of this group, and returns its status and output.
fn as_member(collector: &Collector, group: u32, arguments: &[&str]) -> (Option<i32>, String) {
    // The build folder may be readable by root only.
    let copy = collector.folder().join("backtrail");
    if !copy.exists() {
        fs::copy(command().unwrap().get_program(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = std::process::Command::new(copy)
        .args(arguments)
        .arg("--config")
        .arg(collector.config())
        .current_dir("/")
        .uid(MEMBER)
        .gid(group)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// A collector whose spool belongs to the group.
fn with_group(settings: &str) -> Collector {
    let collector = Collector::new(settings);
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(collector.spool()).unwrap();
    chown(collector.spool(), None, Some(GROUP)).unwrap();
    fs::set_permissions(collector.spool(), fs::Permissions::from_mode(0o2750)).unwrap();
    collector
}

#[test]
fn group_member_opens_crashes_of_the_spool() {
    if cannot() {
        return;
    }
    let mut collector = with_group("");
    collector.start();
    let crash = collector.crash(&mut example("crash_null"));
    assert_eq!(crash["user"], 0);
    let id = crash["id"].as_str().unwrap();
    for arguments in [&["list", "--json"][..], &["show", id, "--json"]] {
        let (status, text) = as_member(&collector, GROUP, &[&["crashes"], arguments].concat());
        assert!(status == Some(0) && text.contains("\"complete\":true"), "{text}");
    }
    let debug = ["crashes", "debug", id, "--batch", "-e", "backtrace"];
    let (status, text) = as_member(&collector, GROUP, &debug);
    assert!(status == Some(0) && text.contains("main"), "{text}");
    // Other users see nothing.
    let (status, text) = as_member(&collector, MEMBER, &["crashes", "list"]);
    assert!(status == Some(1) && text.contains("Permission denied"), "{text}");
    let bundle = fs::metadata(crash["bundle"].as_str().unwrap()).unwrap();
    assert_eq!((bundle.gid(), bundle.mode() & 0o7777), (GROUP, 0o750));
}

#[test]
fn without_a_group_only_the_owner_reads_a_bundle() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let crash = collector.crash(&mut example("crash_null"));
    let bundle = std::path::PathBuf::from(crash["bundle"].as_str().unwrap());
    assert_eq!(fs::metadata(&bundle).unwrap().mode() & 0o7777, 0o700);
    assert_eq!(fs::metadata(bundle.join("core")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn data_from_a_recorder_is_marked_as_its_claim() {
    if cannot() {
        return;
    }
    let mut collector = Collector::started("");
    let crash = collector.crash(&mut example("crash_null"));
    collector.stop();
    let meta = std::path::Path::new(crash["bundle"].as_str().unwrap()).join("meta.json");
    let mut text: Value = serde_json::from_slice(&fs::read(&meta).unwrap()).unwrap();
    text["program"] = "/usr/sbin/sshd".into();
    text["collected"]["depositedBy"] = 1000.into();
    fs::write(&meta, text.to_string()).unwrap();
    let listed = collector.crashes(&["list"]).exited(0).stdout;
    assert!(
        listed.contains("SIGSEGV  by user 1000's recorder: /usr/sbin/sshd\n"),
        "{listed}"
    );
    let shown = collector.crashes(&["show"]).exited(0).stdout;
    assert!(
        shown.contains("program    by user 1000's recorder: /usr/sbin/sshd\n"),
        "{shown}"
    );
    assert!(shown.contains("from       user 1000's recorder"), "{shown}");
    assert_eq!(collector.list()[0]["deposited_by"], 1000);
}
