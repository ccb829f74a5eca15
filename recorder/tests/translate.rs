//! Compares engine `translate` with engine `step`. libipt must decode its streams into exactly the
//! instructions that `step` has recorded in another run at the same addresses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oracle;

use backtrail_bundle::Bundle;
use backtrail_pt::{Avma, Pid};
use backtrail_recorder::{Ending, Engine, Outcome, RecordOptions, Target, record};
use backtrail_tests::programs::{self, Variant};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

static NEVER: AtomicBool = AtomicBool::new(false);

fn options(command: Vec<OsString>, output: PathBuf, engine: Engine) -> RecordOptions<'static> {
    RecordOptions {
        engine,
        follow: true,
        randomize_addresses: false,
        golden: engine == Engine::Step,
        ..RecordOptions::new(Target::Command(command), output, &NEVER)
    }
}

/// Returns the instructions of every thread as libipt decodes them. Errors and gaps fail the test.
fn decoded(outcome: &Outcome) -> Vec<Vec<Avma>> {
    let bundle = Bundle::open(outcome.bundle.as_ref().unwrap()).unwrap();
    let processes = &bundle.manifest().processes;
    let threads = processes
        .iter()
        .flat_map(|process| process.threads.iter().map(|thread| (process.pid, thread.tid)));
    let mut found: Vec<Vec<Avma>> = threads
        .map(|(pid, tid)| {
            let decoded = oracle::decode(&bundle, pid, tid);
            assert_eq!((&decoded.errors[..], decoded.overflows), (&[][..], 0));
            decoded.instructions
        })
        .collect();
    found.sort();
    found
}

/// Returns the command of a static program.
fn built(name: &str) -> Vec<OsString> {
    let program = programs::find(name).expect(name);
    program.command(&backtrail_tests::build(program, Variant::Static).unwrap())
}

fn same(name: &str, command: &[OsString]) {
    let folder = tempfile::tempdir().unwrap();
    let (ending, golden) = stepped(command, folder.path());
    for (compress_returns, all_superblocks) in [(false, false), (true, false), (true, true)] {
        let output = folder
            .path()
            .join(format!("translated-{compress_returns}-{all_superblocks}"));
        let translated = record(RecordOptions {
            compress_returns,
            all_superblocks,
            ..options(command.to_vec(), output, Engine::Translate)
        })
        .unwrap();
        assert_eq!(translated.ending, ending, "{name}");
        let decoded = decoded(&translated);
        assert_eq!(decoded.len(), golden.len(), "{name}: threads");
        for (ours, theirs) in decoded.iter().zip(&golden) {
            let differs = ours.iter().zip(theirs).position(|(our, their)| our != their);
            assert_eq!(
                (differs, ours.len()),
                (None, theirs.len()),
                "{name}, returns compressed: {compress_returns}, all superblocks: {all_superblocks}"
            );
        }
    }
}

macro_rules! same {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                same(stringify!($name), &built(stringify!($name)));
            }
        )*
    };
}

same! {
    bare crash_abort crash_bus crash_div crash_free crash_jump crash_null crash_stack crash_ud2 dispatch exits fork inlined ledger
    longjmp recursion rep sigaltstack syscall_signal tailcall
}

/// Returns a command that first runs a program with shared libraries, which then executes the
/// static one.
fn exec_through_env(name: &str) -> Vec<OsString> {
    [vec!["env".into()], built(name)].concat()
}

#[test]
fn exec_of_another_program_matches_stepping() {
    same("env", &exec_through_env("exits"));
}

/// A cache so small that it is flushed often.
const SMALL_CACHE: u64 = 64 << 10;

#[test]
fn flushed_cache_matches_stepping() {
    let command = exec_through_env("ledger");
    let folder = tempfile::tempdir().unwrap();
    let (_, golden) = stepped(&command, folder.path());
    let translated = record(RecordOptions {
        cache: SMALL_CACHE,
        ..options(
            command.clone(),
            folder.path().join("translated"),
            Engine::Translate,
        )
    })
    .unwrap();
    assert!(decoded(&translated) == golden);
    // Flushed code is translated again, with a stop each time.
    let large = options(command, folder.path().join("large"), Engine::Translate);
    let large = record(large).unwrap();
    assert!(stops(&translated) > 2 * stops(&large));
}

/// Runs millions of instructions, so that log samples find frequently executed blocks.
#[test]
fn promoted_blocks_match_initial_superblocks() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("compute");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/workloads/compute.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    let run = |name: &str, all_superblocks| {
        let output = folder.path().join(name);
        let command = vec![program.clone().into(), "1".into()];
        let mut options = options(command, output, Engine::Translate);
        options.all_superblocks = all_superblocks;
        decoded(&record(options).unwrap())
    };
    let (often, at_once) = (run("often", false), run("at-once", true));
    assert!(often[0].len() > 5_000_000);
    assert!(often == at_once);
}

fn stops(outcome: &Outcome) -> u64 {
    let bundle = Bundle::open(outcome.bundle.as_ref().unwrap()).unwrap();
    bundle
        .manifest()
        .meta
        .overhead
        .map_or(0, |overhead| overhead.stops)
}

#[test]
fn cache_is_flushed_while_threads_run() {
    let path = backtrail_tests::build(programs::find("threads").unwrap(), Variant::Pie).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let translated = record(RecordOptions {
        cache: SMALL_CACHE,
        ..options(
            vec![path.into()],
            folder.path().join("translated"),
            Engine::Translate,
        )
    })
    .unwrap();
    assert_eq!(translated.ending, Ending::Exited(0));
    assert!(decoded(&translated).iter().all(|thread| !thread.is_empty()));
}

/// Returns the programs that execute the same instructions in every run of a static build. A Rust
/// panic does not: its message contains a thread id.
fn deterministic() -> impl Iterator<Item = &'static programs::Program> {
    programs::PROGRAMS.iter().filter(|program| {
        program.deterministic
            && program.variants.contains(&Variant::Static)
            && program.language() != programs::Language::Rust
    })
}

#[test]
#[ignore = "minutes"]
fn every_program_matches_in_twenty_runs() {
    for program in deterministic() {
        let command = built(program.name);
        let folder = tempfile::tempdir().unwrap();
        let (_, golden) = stepped(&command, folder.path());
        for run in 0..20 {
            let output = folder.path().join(format!("translated-{run}"));
            let translated = record(options(command.clone(), output, Engine::Translate)).unwrap();
            let decoded = decoded(&translated);
            assert!(decoded == golden, "{}, run {run}", program.name);
        }
    }
}

/// Runs of a program with shared libraries are equal up to the first use of data that differs
/// between runs.
#[test]
#[ignore = "minutes"]
fn shared_library_programs_match_until_data_differ() {
    let mut table = Vec::new();
    let dynamic =
        |program: &&programs::Program| program.deterministic && program.variants.contains(&Variant::Pie);
    for program in programs::PROGRAMS.iter().filter(dynamic) {
        let command = program.command(&backtrail_tests::build(program, Variant::Pie).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let (_, golden) = stepped(&command, folder.path());
        let translated = folder.path().join("translated");
        let decoded = decoded(&record(options(command, translated, Engine::Translate)).unwrap());
        for (ours, theirs) in decoded.iter().zip(&golden) {
            let same = ours
                .iter()
                .zip(theirs)
                .take_while(|(our, their)| our == their)
                .count();
            table.push((program.name, same, theirs.len(), ours.len()));
        }
    }
    for (name, same, stepped, translated) in &table {
        println!("{name}: {same} the same of {stepped} stepped and {translated} translated");
    }
    // The dynamic linker alone runs far more instructions than this before it uses random data.
    assert!(table.iter().all(|(_, same, ..)| *same > 5_000), "{table:?}");
}

/// Returns how the program ends, and the exact instructions of every thread.
fn stepped(command: &[OsString], folder: &Path) -> (Ending, Vec<Vec<Avma>>) {
    let stepped = record(options(command.to_vec(), folder.join("stepped"), Engine::Step)).unwrap();
    let mut golden: Vec<Vec<Avma>> = stepped
        .golden
        .into_iter()
        .map(|thread| thread.instructions)
        .collect();
    golden.sort();
    (stepped.ending, golden)
}

/// Starts a shell that counts until a line arrives on its input.
fn counting() -> Child {
    Command::new("sh")
        .args(["-c", "i=0; while ! read -t 0 x 2>/dev/null && [ $i -lt 100000000 ]; do i=$((i+1)); kill -0 $$; [ -e \"$0\" ] && exit 7; done"])
        .arg("/nonexistent/stop")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn attached_process_is_detached_unchanged() {
    let mut child = counting();
    let pid = child.id();
    std::thread::sleep(Duration::from_millis(100));
    let maps = || std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let before = maps();
    let folder = tempfile::tempdir().unwrap();
    let outcome = record(RecordOptions {
        duration: Some(Duration::from_millis(300)),
        ring: Some(1 << 18),
        ..RecordOptions::new(
            Target::Processes(vec![Pid(pid)]),
            folder.path().join("bundle"),
            &NEVER,
        )
    })
    .unwrap();
    assert_eq!(outcome.ending, Ending::Running);
    let threads = decoded(&outcome);
    assert!(threads.iter().any(|thread| thread.len() > 10_000));
    // The process continues, with only its own code in memory.
    let code = |maps: &str| -> Vec<String> {
        let lines = maps
            .lines()
            .filter(|line| line.contains("r-xp") || line.contains("memfd"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(code(&maps()), code(&before));
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none(), "it still runs");
    child.kill().unwrap();
    child.wait().unwrap();
}
