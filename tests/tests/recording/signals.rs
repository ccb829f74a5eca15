//! Signals reach a program as they were sent, independent of the recorder's work in its threads.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Ending, Program, Variant};

#[test]
fn signals_during_recorder_work_arrive_unchanged() {
    const BUSY: Program = Program {
        name: "busy",
        source: "../signals/busy.c",
        flags: &["-O1"],
        variants: &[Variant::Static],
        ending: Ending::Exit(0),
        deterministic: false,
    };
    let options = ["--engine", "translate"];
    let (_, run) = Bundle::recorded(&BUSY, Variant::Static, &options);
    assert_eq!(run.stdout.trim(), "came 400 wrong 0");
}
