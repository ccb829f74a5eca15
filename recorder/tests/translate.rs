//! Engine `translate` against its oracle: libipt decodes its streams into exactly the instructions that
//! engine `step` has seen in another run of the same program at the same addresses.
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

/// The instructions of every thread that libipt decodes, without an error or a gap.
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

/// A program without shared libraries, and its command.
fn built(name: &str) -> Vec<OsString> {
    let program = programs::find(name).expect(name);
    program.command(&backtrail_tests::build(program, Variant::Static).unwrap())
}

fn same(name: &str, command: &[OsString]) {
    let folder = tempfile::tempdir().unwrap();
    let (ending, golden) = stepped(command, folder.path());
    for (compress_returns, all_wide) in [(false, false), (true, false), (true, true)] {
        let output = folder
            .path()
            .join(format!("translated-{compress_returns}-{all_wide}"));
        let translated = record(RecordOptions {
            compress_returns,
            all_wide,
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
                "{name}, returns compressed: {compress_returns}, all wide: {all_wide}"
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

/// A command that is another program first, one with shared libraries.
fn behind_another(name: &str) -> Vec<OsString> {
    [vec!["env".into()], built(name)].concat()
}

#[test]
fn a_program_that_becomes_another_tells_the_same() {
    same("env", &behind_another("exits"));
}

/// Room for so little code that it is emptied often.
const LITTLE: u64 = 64 << 10;

#[test]
fn a_cache_that_is_emptied_tells_the_same() {
    let command = behind_another("ledger");
    let folder = tempfile::tempdir().unwrap();
    let (_, golden) = stepped(&command, folder.path());
    let translated = record(RecordOptions {
        cache: LITTLE,
        ..options(
            command.clone(),
            folder.path().join("translated"),
            Engine::Translate,
        )
    })
    .unwrap();
    assert!(decoded(&translated) == golden);
    // What was thrown away is translated again, and each time that is a stop.
    let ample = options(command, folder.path().join("ample"), Engine::Translate);
    let ample = record(ample).unwrap();
    assert!(stops(&translated) > 2 * stops(&ample));
}

/// Millions of instructions, so that the log shows what is executed often.
#[test]
fn what_is_translated_anew_while_it_runs_tells_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("compute");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/workloads/compute.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-static", "-o"]).args([&program, &source]);
    assert!(compiler.status().unwrap().success());
    let run = |name: &str, all_wide| {
        let output = folder.path().join(name);
        let command = vec![program.clone().into(), "1".into()];
        let mut options = options(command, output, Engine::Translate);
        options.all_wide = all_wide;
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
fn a_cache_is_emptied_under_threads_that_run() {
    let path = backtrail_tests::build(programs::find("threads").unwrap(), Variant::Pie).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let translated = record(RecordOptions {
        cache: LITTLE,
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

/// Programs whose instructions are the same in every run of a static build. A Rust panic is not: it names
/// the thread by a number of the kernel's choice.
fn deterministic() -> impl Iterator<Item = &'static programs::Program> {
    programs::PROGRAMS.iter().filter(|program| {
        program.deterministic
            && program.variants.contains(&Variant::Static)
            && program.language() != programs::Language::Rust
    })
}

#[test]
#[ignore = "minutes"]
fn every_program_is_the_same_twenty_times() {
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

/// Two runs of a program with shared libraries may differ where data do that no run has in common with
/// another: up to there they are the same.
#[test]
#[ignore = "minutes"]
fn programs_with_shared_libraries_are_the_same_up_to_where_their_data_differ() {
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
    // The dynamic linker alone runs far more than this before it looks at anything random.
    assert!(table.iter().all(|(_, same, ..)| *same > 5_000), "{table:?}");
}

/// How the program ends, and the exact instructions of every thread.
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

/// Starts a shell that counts, and is told to end by a line.
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
fn an_attached_process_is_let_go_as_it_was() {
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
    // It runs on: its own code, and nothing else in its memory.
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
