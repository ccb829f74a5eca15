//! Registers that the code gives away before the crash hold in GDB's record what we say.

use crate::{Program, judge, trial};
use backtrail_tests::programs::Variant;
use backtrail_tests::random::Random;

const PROGRAMS: &[&str] = &[
    "dispatch",
    "tailcall",
    "recursion",
    "verbs_optimized",
    "shapes_optimized",
];

/// Positions in each.
const PLACES: usize = 150;

#[test]
fn registers_known_before_the_crash_are_gdbs() {
    if !judge::is_there() {
        return;
    }
    let mut random = Random::new(11);
    for &name in PROGRAMS {
        let plan: Vec<_> = (0..PLACES)
            .map(|_| trial(Some(random.below(1 << 30)), &["info line"]))
            .collect();
        let (program, answers) = Program::in_both(name, Variant::Static, &plan);
        // Within a repeated instruction GDB has more places than a trace.
        let answers: Vec<_> = answers
            .iter()
            .filter(|answer| {
                // At the crash all are known, from the core.
                let at = program.index[answer.number];
                at + 1 < program.path.len() && !program.path[at].repeats
            })
            .collect();
        let places: Vec<i64> = answers.iter().map(|answer| program.place(answer)).collect();
        let mut known = 0;
        for ((ours, gdb), place) in program
            .recording
            .registers(&places)
            .iter()
            .zip(&answers)
            .zip(&places)
        {
            for (register, value) in ours {
                let theirs = gdb.registers.get(register);
                assert_eq!(Some(value), theirs, "{name}, {place} behind main: {register}");
            }
            // Where it stands is known everywhere.
            assert!(ours.contains_key("rip"), "{name}, {place}");
            known += ours.len() - 1;
        }
        assert!(
            known > answers.len() / 2,
            "{name}: {known} in {} places",
            answers.len()
        );
    }
}
