//! Compares models with the processor: random instructions on random operands, which this process
//! also executes itself.

mod compare;
mod generate;
mod native;
mod region;

use compare::{Comparison, Counts};

/// Cases in the usual test.
const CASES: u64 = 400_000;
/// Cases in the long test.
const MANY: u64 = 50_000_000;

#[test]
fn models_do_what_the_processor_does() {
    let counts = compare(1, CASES);
    let done = counts.equal + counts.unsupported;
    assert!(done > CASES / 4 * 3, "{counts:?}");
    assert!(counts.restored > CASES / 20, "{counts:?}");
    let rare: Vec<_> = counts.rare(5).collect();
    assert!(rare.is_empty(), "few cases of {rare:?}");
}

#[test]
#[ignore = "takes minutes"]
fn models_do_what_the_processor_does_in_many_cases() {
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let counts = compare(seed, MANY);
    println!("seed {seed}: {counts:?}");
    assert!(counts.equal + counts.unsupported > MANY / 4 * 3);
}

fn compare(seed: u64, cases: u64) -> Counts {
    let mut comparison = Comparison::new(seed);
    for _ in 0..cases {
        assert_eq!(comparison.one(), Ok(()));
    }
    comparison.counts()
}
