//! GDB, which records a program with `record full` and executes a plan in the record.

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

/// The script that runs inside GDB.
const SCRIPT: &str = include_str!("judge.py");
const REGISTERS: &str = include_str!("registers.py");

/// Disabled CPU features. GDB 13 cannot record AVX or XSAVE of the C library, and counts every
/// repetition of a string instruction.
pub const TUNABLES: (&str, &str) = (
    "GLIBC_TUNABLES",
    "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-XSAVE,-XSAVEC,-ERMS,-FSRM",
);

/// A part of a plan: the start, and the commands.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The number of instructions before the start, where no breakpoint is set. `None` starts where
    /// the last trial ended, with its breakpoints.
    pub from: Option<usize>,
    /// The last command is the move that is compared; those before it prepare it.
    pub commands: Vec<String>,
}

/// An instruction of the record, and GDB's data about its address.
#[derive(Clone, Debug, Deserialize)]
pub struct Here {
    pub pc: u64,
    /// The start address of its row in the line table.
    pub row: u64,
    /// The line of the row; 0 for none.
    pub line: u32,
    /// Whether the row begins a statement.
    pub statement: bool,
    /// The number of frames on the program's stack.
    pub depth: u32,
    pub function: Option<String>,
    /// Whether this is the first instruction of the function.
    pub entry: bool,
    /// The start addresses of the inlined copies that contain it, innermost first.
    pub copies: Vec<u64>,
    /// Whether one of the copies begins here.
    pub copy: bool,
    /// Whether it is repeated. GDB counts each repetition.
    #[serde(default)]
    pub repeats: bool,
}

/// A frame of GDB's stack.
#[derive(Clone, Debug, Deserialize)]
pub struct Frame {
    pub pc: u64,
    pub function: Option<String>,
    pub kind: String,
    pub line: Option<u32>,
}

/// The end of a trial in GDB.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// The number of instructions before the start of the trial.
    pub start: usize,
    /// The number of instructions before its end.
    pub number: usize,
    pub frames: Vec<Frame>,
    pub error: Option<String>,
}

/// Returns whether GDB is installed, or prints that it is missing.
pub fn is_there() -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no gdb on this machine");
    }
    found
}

/// Returns the record from main to the program's end, and an answer for each trial. `exits`: the
/// program ends by returning from main.
pub fn judge(executable: &Path, exits: bool, plan: &[Trial]) -> (Vec<Here>, Vec<Answer>) {
    let folder = tempfile::tempdir().unwrap();
    let line = |trial: &Trial| {
        let from = trial.from.map(|from| from.to_string()).unwrap_or_default();
        format!("{from}\t{}\n", trial.commands.join("\t"))
    };
    let plan_file = folder.path().join("plan");
    std::fs::write(&plan_file, plan.iter().map(line).collect::<String>()).unwrap();
    let (text, errors) = told(folder.path(), SCRIPT, executable, |gdb| {
        gdb.env("JUDGE_PLAN", plan_file);
        if exits {
            gdb.env("JUDGE_EXITS", "1");
        }
    });
    let mut lines = text.lines();
    let path = lines
        .next()
        .unwrap_or_else(|| panic!("GDB recorded nothing: {errors}"));
    let path = serde_json::from_str(path).unwrap();
    let answers: Vec<Answer> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(answers.len(), plan.len(), "GDB gave up: {errors}");
    (path, answers)
}

/// Returns the general registers and rip in another run, by the number of instructions after
/// `main`.
pub fn registers(
    executable: &Path,
    main: u64,
    places: &BTreeSet<usize>,
) -> BTreeMap<usize, BTreeMap<String, u64>> {
    let folder = tempfile::tempdir().unwrap();
    let (text, errors) = told(folder.path(), REGISTERS, executable, |gdb| {
        let places: Vec<String> = places.iter().map(usize::to_string).collect();
        gdb.env("JUDGE_MAIN", main.to_string())
            .env("JUDGE_PLACES", places.join(" "));
    });
    let registers: BTreeMap<_, _> = text
        .lines()
        .map(|line| serde_json::from_str::<(usize, _)>(line).unwrap())
        .collect();
    assert_eq!(registers.len(), places.len(), "GDB gave up: {errors}");
    registers
}

/// Runs a script inside GDB, and returns its output and its errors.
fn told(folder: &Path, script: &str, executable: &Path, with: impl FnOnce(&mut Command)) -> (String, String) {
    let file = |name: &str| folder.join(name);
    std::fs::write(file("script.py"), script).unwrap();
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-ex"])
        .arg(format!("source {}", file("script.py").display()))
        .arg(executable)
        .env("JUDGE_ANSWERS", file("answers"))
        .env(TUNABLES.0, TUNABLES.1)
        .stdout(Stdio::null());
    with(&mut gdb);
    let output = gdb.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = std::fs::read_to_string(file("answers")).unwrap_or_default();
    (text, errors)
}
