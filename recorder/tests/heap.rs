//! Tests of heap events: they equal a program's own log of its blocks, and change no instruction.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oracle;

use backtrail_bundle::Bundle;
use backtrail_bundle::heap::{AllocatorFunction, HeapWord, VERSION};
use backtrail_pt::packet::{Packet, Payload};
use backtrail_pt::{Avma, Parser};
use backtrail_recorder::{Ending, Engine, Error, Outcome, RecordOptions, Target, record};
use backtrail_tests::programs::{self, Variant};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn options(command: Vec<OsString>, output: PathBuf) -> RecordOptions<'static> {
    RecordOptions {
        heap: true,
        randomize_addresses: false,
        follow: true,
        ..RecordOptions::new(Target::Command(command), output, &NEVER)
    }
}

/// Compiles `blocks.cpp`.
fn blocks(folder: &Path, flags: &[&str]) -> PathBuf {
    let program = folder.join("blocks");
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sources/blocks.cpp"));
    let mut compiler = Command::new("c++");
    compiler
        .args(["-O1", "-fno-builtin", "-o"])
        .args([&program, source]);
    assert!(compiler.args(flags).status().unwrap().success());
    program
}

/// Returns a line for each heap event of the only thread.
fn events(outcome: &Outcome) -> Vec<String> {
    let bundle = Bundle::open(outcome.bundle.as_ref().unwrap()).unwrap();
    let thread = &bundle.manifest().processes[0].threads[0];
    let trace = bundle.bytes(thread.trace.as_ref().unwrap()).unwrap();
    let values = Parser::new(&trace).filter_map(|packet| match packet.unwrap().1 {
        Packet::Ptw { value, ip: false } => Some(match value {
            Payload::Four(value) => u64::from(value),
            Payload::Eight(value) => value,
        }),
        _ => None,
    });
    let line = |value| match HeapWord::decode(value).expect("a heap event") {
        // Both names may be one function.
        HeapWord::Call {
            function: AllocatorFunction::AlignedAlloc | AllocatorFunction::Memalign,
            argument,
        } => format!("memalign {argument:x}"),
        HeapWord::Call { function, argument } => format!("{} {argument:x}", function.name()),
        HeapWord::Size(size) => format!("size {size:x}"),
        HeapWord::Result(block) => format!("result {block:x}"),
    };
    values.map(line).collect()
}

/// Returns the first line that does not follow in the events.
fn missing<'a>(wanted: &'a str, events: &[String]) -> Option<&'a str> {
    let mut events = events.iter();
    wanted.lines().find(|line| !events.any(|event| event == line))
}

fn matches_own_log(flags: &[&str], all_superblocks: bool) {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let command = vec![blocks(folder.path(), flags).into(), log.clone().into()];
    let outcome = record(RecordOptions {
        all_superblocks,
        ..options(command, folder.path().join("bundle"))
    })
    .unwrap();
    assert_eq!(outcome.ending, Ending::Exited(0));
    let (log, events) = (std::fs::read_to_string(log).unwrap(), events(&outcome));
    assert_eq!(missing(&log, &events), None, "{events:#?}");
    // The program allocates nothing else between its first line and its last.
    let last = log.lines().last().unwrap();
    let first = log.lines().next().unwrap();
    let start = events.iter().position(|event| event == first).unwrap();
    let end = events.iter().rposition(|event| event == last).unwrap();
    let between: Vec<&str> = events[start..=end].iter().map(String::as_str).collect();
    // Throwing the exception takes blocks too.
    let others = between.len() - log.lines().count();
    assert!(others <= 8, "{between:#?}");
    let decoded = decoded(&outcome);
    assert!(decoded[0].len() > 1000);
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

#[test]
fn events_match_log_of_program_with_shared_libraries() {
    matches_own_log(&[], false);
}

#[test]
fn events_match_log_of_static_program() {
    matches_own_log(&["-static"], false);
}

#[test]
fn events_match_log_in_superblocks() {
    matches_own_log(&[], true);
}

#[test]
fn heap_events_keep_instructions() {
    for name in ["crash_free", "ledger", "fork", "longjmp", "sigaltstack"] {
        let program = programs::find(name).unwrap();
        let command = program.command(&backtrail_tests::build(program, Variant::Static).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let run = |heap, compress_returns, all_superblocks| {
            let output = folder
                .path()
                .join(format!("{heap}-{compress_returns}-{all_superblocks}"));
            let outcome = record(RecordOptions {
                heap,
                compress_returns,
                all_superblocks,
                ..options(command.clone(), output)
            });
            decoded(&outcome.unwrap())
        };
        let plain = run(false, true, false);
        for (compress_returns, all_superblocks) in [(false, false), (true, false), (true, true)] {
            let with_events = run(true, compress_returns, all_superblocks);
            let lengths = |threads: &[Vec<Avma>]| threads.iter().map(Vec::len).collect::<Vec<_>>();
            assert_eq!(lengths(&with_events), lengths(&plain), "{name}");
            assert!(with_events == plain, "{name}");
        }
    }
}

#[test]
fn metadata_state_heap_events() {
    let folder = tempfile::tempdir().unwrap();
    for heap in [false, true] {
        let outcome = record(RecordOptions {
            heap,
            ..options(
                ["sh", "-c", ":"].map(OsString::from).to_vec(),
                folder.path().join(format!("{heap}")),
            )
        })
        .unwrap();
        let bundle = Bundle::open(outcome.bundle.as_ref().unwrap()).unwrap();
        assert_eq!(bundle.manifest().meta.heap_events, heap.then_some(VERSION));
        assert_eq!(!events(&outcome).is_empty(), heap);
    }
}

#[test]
fn stepping_with_heap_events_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = record(RecordOptions {
        engine: Engine::Step,
        ..options(vec!["true".into()], folder.path().join("bundle"))
    });
    assert!(matches!(refused, Err(Error::HeapOfSteps)));
}
