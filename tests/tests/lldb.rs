//! LLDB 22, where it is installed, loads the bundles that we write and lists what we list.
#![cfg(test)]

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::built;
use backtrail_tests::programs::Variant;
use std::process::Command;

const LLDB: &str = "lldb-22";

fn installed() -> bool {
    let found = Command::new(LLDB)
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {LLDB} is not installed");
    }
    found
}

#[test]
fn lldb_loads_a_recorded_bundle_and_sees_the_same_instructions() {
    if !installed() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let program = built("crash_null", Variant::Static).unwrap();
    let record = [
        "record".as_ref(),
        "--full".as_ref(),
        "-o".as_ref(),
        bundle.as_os_str(),
        "--".as_ref(),
        program.as_os_str(),
    ];
    let _ = backtrail(record).unwrap().exited(0);
    let dump = [
        "dump".as_ref(),
        "instructions".as_ref(),
        bundle.as_os_str(),
        "--json".as_ref(),
    ];
    let dump = backtrail(dump).unwrap().exited(0);
    let ours: Vec<u64> = dump
        .stdout
        .lines()
        .filter_map(|line| {
            let value: serde_json::Value = serde_json::from_str(line).ok()?;
            u64::from_str_radix(value["pc"].as_str()?.trim_start_matches("0x"), 16).ok()
        })
        .collect();
    assert!(ours.len() > 1000, "{} instructions", ours.len());

    let output = Command::new(LLDB)
        .args(["--batch", "--no-lldbinit", "-o"])
        .arg(format!("trace load {}", bundle.join("trace.json").display()))
        .args([
            "-o",
            "thread trace dump instructions --forwards --raw --count 10000000",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // `    0: 0x00000000004016c0`
    let theirs: Vec<u64> = text
        .lines()
        .filter_map(|line| line.trim().split_once(": 0x"))
        .filter(|(number, _)| number.parse::<u64>().is_ok())
        .filter_map(|(_, address)| u64::from_str_radix(address.split_whitespace().next()?, 16).ok())
        .collect();
    assert!(
        !theirs.is_empty(),
        "{text}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_same(&ours, &theirs);
}

/// LLDB decodes what lies between two PSB packets on its own. So it may give the instruction that a PSB tells of twice:
/// last of the part before, where no packet is needed to come to it, and first of the part after.
fn assert_same(ours: &[u64], theirs: &[u64]) {
    let mut repeated = Vec::new();
    let mut at = 0;
    for &address in theirs {
        if ours.get(at) == Some(&address) {
            at += 1;
        } else {
            let before = at.checked_sub(1).and_then(|before| ours.get(before));
            assert_eq!(before, Some(&address), "instruction {at} is another");
            repeated.push(at);
        }
    }
    assert_eq!(at, ours.len(), "LLDB decodes fewer instructions");
    // A PSB comes every some thousand bytes, at two to three bits an instruction.
    assert!(
        repeated.len() <= 1 + ours.len() / 1000,
        "repeated at {repeated:?}"
    );
}
