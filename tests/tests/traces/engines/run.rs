//! The executed instructions of a random program, recorded by the recorder's engine `step`.

use crate::engines::assembler::Segment;
use crate::engines::elf;
use crate::engines::program::{self, Program};
use backtrail_pt::Avma;
use backtrail_pt::cofi::CodeInstruction;
use backtrail_tests::backtrail::backtrail;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// A run of a program.
#[derive(Debug)]
pub struct Run {
    /// The code for decoding.
    pub code: Vec<Segment>,
    /// The executed instructions, in order.
    pub steps: Vec<Step>,
}

/// An executed instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Avma,
    pub instruction: CodeInstruction,
    /// Whether the code for decoding has a PTWRITE here.
    pub ptwrite: bool,
}

/// Returns the run of the program of a seed, which runs once per process.
pub fn of(seed: u64) -> Arc<Run> {
    static RUNS: Mutex<Option<HashMap<u64, Arc<Run>>>> = Mutex::new(None);
    let known = |runs: &Option<HashMap<u64, Arc<Run>>>| runs.as_ref()?.get(&seed).cloned();
    if let Some(run) = known(&RUNS.lock().unwrap_or_else(PoisonError::into_inner)) {
        return run;
    }
    let run = Arc::new(run(seed));
    let mut runs = RUNS.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(runs.get_or_insert_default().entry(seed).or_insert(run))
}

fn run(seed: u64) -> Run {
    let program = program::random(seed);
    let folder = tempfile::tempdir().unwrap();
    let executable = folder.path().join("program");
    fs::write(&executable, elf::executable(&program.segments, program.entry)).unwrap();
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o755)).unwrap();
    let (golden, bundle) = (folder.path().join("golden"), folder.path().join("bundle"));
    let arguments: [&OsStr; 12] = [
        "record".as_ref(),
        "--exit-zero".as_ref(),
        "--engine".as_ref(),
        "step".as_ref(),
        "--full".as_ref(),
        "--no-follow".as_ref(),
        "--golden".as_ref(),
        golden.as_ref(),
        "-o".as_ref(),
        bundle.as_ref(),
        "--".as_ref(),
        executable.as_ref(),
    ];
    let run = backtrail(arguments).unwrap();
    assert_eq!(run.status, Some(0), "program {seed}: {}", run.stderr);
    let steps = steps(&program, &golden);
    let end = steps.last().map(|step| step.at.0);
    let exit = program.segments[0].start + program.segments[0].bytes.len() as u64 - 2;
    assert_eq!(end, Some(exit), "program {seed} did not run to its end");
    Run {
        code: program.code,
        steps,
    }
}

/// Returns the instructions of the only list of addresses in the folder.
fn steps(program: &Program, golden: &Path) -> Vec<Step> {
    let mut files = fs::read_dir(golden).unwrap();
    let file = files.next().unwrap().unwrap().path();
    assert!(files.next().is_none(), "a random program has one thread");
    let mut known: HashMap<u64, Step> = HashMap::new();
    let bytes = fs::read(file).unwrap();
    let addresses = bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word));
    addresses
        .map(|at| {
            *known.entry(at).or_insert_with(|| Step {
                at: Avma(at),
                instruction: instruction(&program.code, at),
                ptwrite: program.ptwrites.contains(&at),
            })
        })
        .collect()
}

fn instruction(code: &[Segment], at: u64) -> CodeInstruction {
    let bytes = code
        .iter()
        .find_map(|segment| segment.bytes.get(at.wrapping_sub(segment.start) as usize..))
        .unwrap();
    CodeInstruction::decode(bytes, Avma(at)).unwrap()
}

#[test]
fn programs_run_hundreds_to_thousands_of_instructions() {
    let lengths: Vec<usize> = (0..8).map(|seed| of(seed).steps.len()).collect();
    assert!(
        lengths.iter().all(|length| (50..20_000).contains(length)),
        "{lengths:?}"
    );
}
