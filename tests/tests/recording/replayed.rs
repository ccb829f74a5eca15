//! Values that `record --values` keeps of every example program replay to its end.

use crate::matrix;
use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Program, Variant};

/// Segments of this size each begin with the registers of the processor, which `check` compares.
const SEGMENT: &str = "64K";

fn replays_to_its_end(program: &Program, variant: Variant) {
    let options = ["--values", "--full", "--values-segment", SEGMENT];
    let (bundle, _) = Bundle::recorded(program, variant, &options);
    let checked = backtrail(["check".as_ref(), bundle.path.as_os_str()])
        .unwrap()
        .exited(0);
    let clean = "no faults, 0 gap(s), 0 gap(s) of values, 0 unseen change(s) of memory";
    assert!(
        checked.stdout.contains(clean),
        "{} {}: {}",
        program.name,
        variant.name(),
        checked.stdout
    );
}

#[test]
#[ignore = "the whole matrix takes minutes: cargo xtask test-all"]
fn values_of_every_variant_replay_to_their_end() {
    matrix::check(matrix::every_variant(), replays_to_its_end);
}
