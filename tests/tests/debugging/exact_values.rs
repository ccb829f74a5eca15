//! Recorded values at random positions, against the same program in single steps.
//!
//! A program is recorded with values, without address randomization. The debugger shows registers,
//! arguments and locals at random positions of the recording. Then the test runs the program again
//! in single steps, and reads the same registers and variables from the stopped process. Both runs
//! count how often a thread executed an instruction, so that their positions agree.

mod comparison;
mod programs;
mod recorded;
mod stepped;
mod stopped_source;

use backtrail_tests::random::Random;
use backtrail_values::tree::{self, Format, VariableKind};
use backtrail_values::{EvalContext, Frame};
use comparison::Comparison;
use programs::{Extent, PROGRAMS, Program, SHORT};
use recorded::{Position, Recording, Shown};
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use stepped::{Stopped, Visit};
use stopped_source::{StoppedSource, by_name};

/// The number of positions of each program.
const POSITIONS: usize = 10_000;
const SHORT_POSITIONS: usize = 300;
/// The seed of the positions.
const SEED: u64 = 40;
/// The most further runs of single steps, to find values that differ between runs.
const REPEATS: usize = 4;

/// Compares random positions of a program; `None` if its compiler is not installed.
fn compared(program: &Program, positions: usize) -> Option<Comparison> {
    let folder = tempfile::tempdir().unwrap();
    let executable = program.built(folder.path())?;
    let arguments: Vec<String> = match program.rounds {
        0 => Vec::new(),
        rounds => vec![rounds.to_string()],
    };
    let mut recording = Recording::of(program, &executable, &arguments);
    let counted = recording.counted(&executable);
    let chosen = recording.positions(&counted, positions, &mut Random::new(SEED));
    let shown: Vec<Shown> = chosen.iter().map(|position| recording.shown(position)).collect();
    let by_visit: HashMap<Visit, usize> = (chosen.iter().map(|position| position.visit)).zip(0..).collect();
    let compare_once = || {
        let mut truths: HashMap<usize, Shown> = HashMap::new();
        let mut at_visit = |visit: Visit, stopped: &Stopped<'_>| {
            if let Some(&number) = by_visit.get(&visit) {
                let symbols = recording.symbols_at(&chosen[number]);
                truths.insert(number, truth(&StoppedSource { stopped, symbols }));
            }
        };
        let random = |at, out: &mut [u8]| recording.read_last(at, out);
        let steps = stepped::run((&executable, &arguments), &counted, &random, &mut at_visit);
        let mut comparison = Comparison::new(program.name(), recording.instructions, steps);
        if program.extent == Extent::PackageMain {
            truths.values_mut().for_each(|truth| truth.registers.clear());
        }
        for (number, (position, shown)) in chosen.iter().zip(&shown).enumerate() {
            comparison.add(&place_of(&recording, position), shown, truths.get(&number));
        }
        comparison
    };
    let mut comparison = compare_once();
    for _ in 0..REPEATS {
        if comparison.is_right() {
            break;
        }
        comparison.repeat(&compare_once());
    }
    // In Go, a variable has what the runtime left there until it is assigned. That depends on the
    // time of a run, which is always much longer in single steps.
    for _ in 0..REPEATS {
        if comparison.is_right() || program.extent != Extent::PackageMain {
            break;
        }
        let mut again = Recording::of(program, &executable, &arguments);
        let same = again.positions(&counted, positions, &mut Random::new(SEED));
        let by_visit: HashMap<Visit, Shown> = same
            .iter()
            .map(|position| (position.visit, again.shown(position)))
            .collect();
        let mut other = Comparison::new(program.name(), again.instructions, 0);
        for (position, shown) in chosen.iter().zip(&shown) {
            if let Some(shown_again) = by_visit.get(&position.visit) {
                other.add(&place_of(&recording, position), shown, Some(shown_again));
            }
        }
        comparison.record_again(&other);
    }
    Some(comparison)
}

fn place_of(recording: &Recording, position: &Position) -> String {
    format!("{} at {:#x}", recording.name_of(position), position.visit.address)
}

/// Reads the registers and variables of a stopped thread.
fn truth(source: &StoppedSource<'_>) -> Shown {
    let stopped = source.stopped;
    let mut truth = Shown {
        tid: stopped.tid.as_raw().cast_unsigned(),
        ..Shown::default()
    };
    let pc = stopped.registers.rip;
    let look_up = Some(backtrail_pt::Avma(pc));
    let symbols = source.symbols;
    let frame = Frame {
        look_up,
        pc: Some(pc),
        level: 0,
        source: Box::new(StoppedSource { stopped, symbols }),
    };
    for name in comparison::GENERAL {
        if let Some(value) = by_name(&stopped.registers, name) {
            truth.registers.insert(name.to_owned(), Ok(format!("{value:#x}")));
        }
    }
    for number in 0..16 {
        let bytes = frame.source.vector(number).unwrap();
        let text = format!("{:#034x}", u128::from_le_bytes(bytes));
        truth.registers.insert(format!("xmm{number}"), Ok(text));
    }
    let context = EvalContext::new(symbols, &frame, &[]);
    for kind in [VariableKind::Arguments, VariableKind::Locals] {
        let nodes = tree::variables(&context, kind, Format::default());
        truth.variables.extend(recorded::texts(nodes.unwrap_or_default()));
    }
    truth
}

/// Compares programs, in as many threads as the machine has.
#[track_caller]
fn compare(programs: &[Program], positions: usize) {
    let (next, comparisons) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(comparison) = compared(program, positions) {
                        eprintln!("{}", comparison.row());
                        comparisons.lock().unwrap().push(comparison);
                    }
                }
            });
        }
    });
    let comparisons = comparisons.into_inner().unwrap();
    let wrong: Vec<String> = comparisons.iter().flat_map(Comparison::wrong).collect();
    let listed: Vec<&str> = wrong.iter().take(60).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} wrong values\n{}",
        wrong.len(),
        listed.join("\n")
    );
    for comparison in &comparisons {
        comparison.check_unknown();
    }
}

#[test]
fn recorded_values_are_those_of_single_steps() {
    compare(&SHORT.map(|number| PROGRAMS[number]), SHORT_POSITIONS);
}

/// `BACKTRAIL_EXACT_PROGRAMS` selects programs whose names contain a text, and
/// `BACKTRAIL_EXACT_POSITIONS` the number of positions.
#[test]
#[ignore = "minutes of single steps: cargo xtask test-all"]
fn recorded_values_of_all_programs_are_those_of_single_steps() {
    let selected = std::env::var("BACKTRAIL_EXACT_PROGRAMS").unwrap_or_default();
    let positions = std::env::var("BACKTRAIL_EXACT_POSITIONS");
    let positions = positions.map_or(POSITIONS, |text| text.parse().unwrap());
    let is_selected = |program: &Program| program.name().contains(&selected);
    let programs = PROGRAMS.into_iter().filter(is_selected);
    compare(&programs.collect::<Vec<_>>(), positions);
}
