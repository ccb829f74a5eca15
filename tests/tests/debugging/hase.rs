//! Crashes that perf recorded in production, imported with their cores. The executed branches equal
//! another tool's list for the same trace. The crash and the steps back are checked by a
//! transcript.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::captures::folder;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A branch: source and target; 0 means outside the traced code.
type Branch = (u64, u64);

struct Crash {
    bundle: Bundle,
    branch_list: PathBuf,
}

/// Imports the perf.data of a crash with its core. Returns `None` without the captures.
fn import(program: &str, recording: &str) -> Option<Crash> {
    let folder = folder()?.join("pt/hase/20180404").join(program);
    Some(Crash {
        bundle: Bundle::of_hase(program, recording)?,
        branch_list: folder.join(recording).with_extension("trace"),
    })
}

impl Crash {
    /// Returns the taken branches of the decoded instructions.
    fn branches(&self) -> Vec<Branch> {
        let dump = self.bundle.run(&["dump", "instructions"], &["--json"]);
        let mut branches = Vec::new();
        let mut previous: Option<(u64, u64)> = None;
        for line in dump.stdout.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            if let Some(mark) = row["mark"].as_str() {
                let from = match mark.strip_prefix("interrupted before ") {
                    Some(at) => Some(address(at)),
                    None => previous
                        .map(|(last, _)| last)
                        .filter(|_| mark.starts_with("left user code")),
                };
                branches.extend(from.map(|from| (from, 0)));
                previous = None;
                continue;
            }
            let pc = address(row["pc"].as_str().unwrap());
            match previous {
                None => branches.push((0, pc)),
                Some((last, next)) if pc != next => branches.push((last, pc)),
                Some(_) => {}
            }
            previous = Some((pc, pc + row["length"].as_u64().unwrap()));
        }
        branches
    }
}

fn address(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// Reads the other tool's list: one branch a line, source and target in hexadecimal.
///
/// The first two rows say that tracing started and stopped before the first instruction (a page
/// fault). The last says that it stopped after the last instruction. These rows are no flow between
/// two instructions.
fn listed(path: &Path) -> Vec<Branch> {
    let text = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Branch> = text
        .lines()
        .map(|line| {
            let (from, to) = line.split_once('\t').unwrap();
            (address(from), address(to))
        })
        .collect();
    let [first, second, between @ .., last] = rows.as_slice() else {
        unreachable!("{rows:?}")
    };
    assert!(first.0 == 0 && *second == (first.1, 0) && last.1 == 0, "{rows:?}");
    between.to_vec()
}

#[test]
fn branches_match_the_list_of_the_capture() {
    for (program, recording) in [
        ("control_flow", "control_flow-20180404T163033"),
        ("loopy", "loopy-20180404T162955"),
    ] {
        let Some(crash) = import(program, recording) else {
            return;
        };
        let (found, listed) = (crash.branches(), listed(&crash.branch_list));
        assert!(!listed.is_empty());
        assert_eq!(found, listed, "{program}");
    }
}

#[test]
fn digests_are_those_of_the_raw_packets() {
    let Some(crash) = import("control_flow", "control_flow-20180404T163033") else {
        return;
    };
    let expected = "thread 19731 instructions 1092 errors 0 digest 59be03529a08eded\n";
    assert_eq!(crash.bundle.run(&["info"], &["--digest"]).stdout, expected);
    let Some(crash) = import("loopy", "loopy-20180404T162955") else {
        return;
    };
    let expected = "thread 19233 instructions 57 errors 0 digest 574bf011aedda8f4\n";
    assert_eq!(crash.bundle.run(&["info"], &["--digest"]).stdout, expected);
}

/// A transcript to read: the crash, steps back by lines, the registers of the core.
#[test]
fn steps_back_from_the_crash_match_the_transcript() {
    let Some(crash) = import("control_flow", "control_flow-20180404T163033") else {
        return;
    };
    let commands = [
        "crash",
        "info registers rip rsp",
        "reverse-step",
        "reverse-step",
        "reverse-next",
        "reverse-finish",
        "backtrace",
        "reverse-step",
        "step",
        "info registers rip rsp",
        "break control_flow.c:32",
        "reverse-continue",
        "calls",
    ];
    let transcript = crash.bundle.debug(&commands);
    // The transcript hides the folders of the recording machine.
    let shown = |line: &str| line.split(" from /").next().unwrap_or_default().to_owned();
    insta::assert_snapshot!(transcript.lines().map(shown).collect::<Vec<_>>().join("\n"));
}
