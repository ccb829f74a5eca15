//! Registers that we derive from the code before the crash have the same values in GDB.

use crate::gdb::{Program, judge};
use backtrail_tests::programs::Variant;
use backtrail_tests::random::Random;
use std::collections::BTreeSet;

const PROGRAMS: &[&str] = &[
    "dispatch",
    "tailcall",
    "recursion",
    "verbs_optimized",
    "shapes_optimized",
];

/// The number of positions per program.
const PLACES: usize = 150;

/// Returns whether the address is in the region of stacks without randomization.
fn on_stack(address: u64) -> bool {
    (0x7fff_ff00_0000..0x7fff_ffff_f000).contains(&address)
}

#[test]
fn registers_known_before_the_crash_are_gdbs() {
    compare(&[], |name, known, places| {
        assert!(known > 3 * places, "{name}: {known} in {places} places");
    });
}

#[test]
fn recorded_registers_are_gdbs() {
    // The flags are unknown where the manual leaves one undefined.
    compare(&["--values"], |name, known, places| {
        assert!(known >= 16 * places, "{name}: {known} in {places} places");
    });
}

/// Compares the known registers at random positions. `check` gets a program, the number of known
/// registers without `rip`, and that of the positions.
fn compare(options: &[&str], check: impl Fn(&str, usize, usize)) {
    if !judge::is_there() {
        return;
    }
    let mut random = Random::new(11);
    for &name in PROGRAMS {
        let (program, _) = Program::recorded_in_both(name, Variant::Static, &[], options);
        // Within a repeated instruction, GDB has more positions than a trace. At the crash, the
        // core has all registers.
        let is_one = |number: &usize| {
            let at = program.index[*number];
            at + 1 < program.path.len() && !program.path[at].repeats
        };
        let random_place = |_| random.below(program.index.len());
        let numbers: BTreeSet<usize> = (0..PLACES).map(random_place).filter(is_one).collect();
        let theirs = judge::registers(&program.executable, program.path[0].pc, &numbers);
        let places: Vec<i64> = theirs
            .keys()
            .map(|&number| program.index[number] as i64)
            .collect();
        let mut known = 0;
        for ((ours, theirs), place) in program
            .recording
            .registers(&places)
            .iter()
            .zip(theirs.values())
            .zip(&places)
        {
            for (register, value) in ours {
                // The script asks GDB for general registers alone.
                let Some(&their) = theirs.get(register) else {
                    continue;
                };
                known += usize::from(register != "rip");
                // Single-stepping over a system call leaves the trap flag in r11.
                let traps = if register == "r11" { 1 << 8 } else { 0 };
                // Stack addresses come from the core. They differ with the environment.
                if on_stack(*value) && on_stack(their) {
                    continue;
                }
                assert_eq!(
                    value & !traps,
                    their & !traps,
                    "{name}, {place} behind main: {register}"
                );
            }
            // The instruction pointer is always known.
            assert!(ours.contains_key("rip"), "{name}, {place}");
        }
        check(name, known, places.len());
    }
}
