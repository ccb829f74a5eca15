//! Programs that start processes continuously are recorded in bounded memory.

use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Ending, Program, Variant};

/// A process that shares its parent's memory has a region of eleven mappings there. The kernel
/// allows a process 65530 mappings.
#[test]
fn regions_of_ended_processes_are_removed() {
    const SPAWNS: Program = Program {
        name: "spawns",
        source: "../spawned/spawns.c",
        flags: &["-O1"],
        variants: &[Variant::Static],
        ending: Ending::Exit(0),
        deterministic: false,
    };
    const WAYS: usize = 5;
    /// Fewer than one mapping for each process.
    const BOUND: i64 = 20;
    let options = ["--engine", "translate"];
    let (_, run) = Bundle::recorded(&SPAWNS, Variant::Static, &options);
    assert_eq!(run.stdout.lines().count(), WAYS, "{}", run.stdout);
    for line in run.stdout.lines() {
        let growth = line
            .split(' ')
            .skip(1)
            .map(|number| number.parse::<i64>().unwrap());
        assert!(
            growth.clone().count() == 2 && growth.max() < Some(BOUND),
            "{line}"
        );
    }
}
