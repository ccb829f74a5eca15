//! LLDB 22, where it is installed, loads the bundles that we write and lists the same instructions.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
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
fn lldb_lists_the_same_instructions_of_a_bundle() {
    if !installed() {
        return;
    }
    let (bundle, _) = Bundle::recorded(find("crash_null").unwrap(), Variant::Static, &["--full"]);
    let ours = bundle.addresses();
    assert!(ours.len() > 1000, "{} instructions", ours.len());

    let output = Command::new(LLDB)
        .args(["--batch", "--no-lldbinit", "-o"])
        .arg(format!("trace load {}", bundle.path.join("trace.json").display()))
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
    let parts = bundle
        .run(&["dump", "packets"], &[])
        .stdout
        .lines()
        .filter(|line| line.ends_with(" psb"))
        .count();
    assert_same(&ours, &theirs, parts - 1);
}

/// Compares the lists of both debuggers. LLDB decodes the bytes between two PSB packets separately,
/// and continues at the end of a part until the address where the next part begins. At such a
/// boundary it may list the last instruction of a part twice. If the part ends with a loop's branch
/// and the loop contains that address, LLDB omits an iteration. No other difference is allowed, and
/// at most one per boundary.
fn assert_same(ours: &[u64], theirs: &[u64], seams: usize) {
    /// The longest loop iteration, in instructions, that is recognized.
    const TURN: usize = 64;
    /// The number of equal instructions after which the lists are in step again.
    const ALIKE: usize = 8;
    let mut differences = Vec::new();
    let (mut at, mut their) = (0, 0);
    while at < ours.len() && their < theirs.len() {
        if ours[at] == theirs[their] {
            (at, their) = (at + 1, their + 1);
            continue;
        }
        differences.push(at);
        if at > 0 && ours[at - 1] == theirs[their] {
            their += 1;
            continue;
        }
        let turn = (1..=TURN).find(|turn| {
            let alike = ours.iter().skip(at + turn).zip(&theirs[their..]).take(ALIKE);
            alike.len() > 0 && alike.clone().all(|(our, their)| our == their)
        });
        at += turn.unwrap_or_else(|| panic!("instruction {at} is another: {:#x}", theirs[their]));
    }
    assert_eq!(
        (at, their),
        (ours.len(), theirs.len()),
        "one list goes on; differences at {differences:?}"
    );
    assert!(
        differences.len() <= seams,
        "{seams} seams, differences at {differences:?}"
    );
}
