//! The definitive check of the recorder: libipt decodes every recorded stream, without error, into exactly the
//! instructions that were stepped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oracle;

use backtrail_bundle::Bundle;
use backtrail_pt::Avma;
use backtrail_recorder::{Ending, Outcome, RecordOptions, Target, record};
use backtrail_tests::programs::{self, Variant};
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn options(program: &Path, output: &Path) -> RecordOptions<'static> {
    // A backtrace of a Rust panic reads all the debug information, which takes minutes in single steps.
    let command = ["env".into(), "RUST_BACKTRACE=0".into(), OsString::from(program)];
    let target = Target::Command(command.to_vec());
    let options = RecordOptions::new(target, output.to_owned(), &NEVER);
    RecordOptions {
        golden: true,
        follow: true,
        ..options
    }
}

/// Every thread's stream decodes to what was stepped; with a ring, to the end of it.
fn check(outcome: &Outcome) -> Bundle {
    let bundle = Bundle::open(&outcome.bundle).unwrap();
    assert!(outcome.instructions > 0);
    for golden in &outcome.golden {
        let decoded = oracle::decode(&bundle, golden.pid, golden.tid);
        let place = format!(
            "thread {} of {} instructions",
            golden.tid,
            golden.instructions.len()
        );
        assert_eq!(decoded.errors, [], "{place}");
        let kept = if outcome.dropped == 0 {
            0
        } else {
            golden
                .instructions
                .len()
                .saturating_sub(decoded.instructions.len())
        };
        same(&decoded.instructions, &golden.instructions[kept..], &place);
        assert_eq!(decoded.overflows, 0, "{place}");
        assert_eq!(decoded.lost, (0, 0), "{place}");
        assert!(decoded.times.is_sorted(), "{place}: time runs backward");
    }
    bundle
}

fn same(decoded: &[Avma], golden: &[Avma], place: &str) {
    let differs = decoded
        .iter()
        .zip(golden)
        .position(|(decoded, golden)| decoded != golden);
    if let Some(at) = differs {
        let around = at.saturating_sub(3)..(at + 3).min(decoded.len()).min(golden.len());
        panic!(
            "{place}: at {at}, decoded {:x?}, stepped {:x?}",
            &decoded[around.clone()],
            &golden[around]
        );
    }
    let last = |list: &[Avma]| list[list.len().saturating_sub(8)..].to_vec();
    assert_eq!(
        decoded.len(),
        golden.len(),
        "{place}: the last decoded {:x?}, stepped {:x?}",
        last(decoded),
        last(golden)
    );
}

fn expected(ending: programs::Ending) -> Ending {
    match ending {
        programs::Ending::Exit(status) => Ending::Exited(status),
        programs::Ending::Signal(signal) => Ending::Killed(signal),
    }
}

fn record_program(name: &str, variant: Variant) {
    let program = programs::find(name).expect(name);
    let path = backtrail_tests::build(program, variant).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let outcome = record(options(&path, &dir.path().join("bundle"))).unwrap();
    assert_eq!(outcome.ending, expected(program.ending), "{name}");
    assert_eq!(outcome.gaps, 0, "{name}");
    let bundle = check(&outcome);
    let meta = &bundle.manifest().meta;
    assert_eq!(meta.crash.is_some(), program.crashes(), "{name}");
    if let Some(crash) = meta.crash {
        let core = bundle.core().unwrap().unwrap();
        let thread = core.crashed_thread().unwrap();
        assert_eq!(
            (thread.tid, thread.registers.pc()),
            (crash.tid, crash.pc),
            "{name}"
        );
        assert_eq!(outcome.ending, Ending::Killed(crash.signal), "{name}");
    }
}

macro_rules! programs {
    ($($name:ident $variant:ident;)*) => {
        $(
            #[test]
            fn $name() {
                record_program(stringify!($name), Variant::$variant);
            }
        )*
    };
}

programs! {
    bare Static;
    crash_abort Pie;
    crash_div Static;
    crash_jump Static;
    crash_null Pie;
    crash_stack Static;
    crash_ud2 Static;
    dispatch Static;
    exception Pie;
    exits Pie;
    fork Static;
    inlined Pie;
    lazy Pie;
    ledger Static;
    longjmp Static;
    recursion Static;
    rep Static;
    sigaltstack Static;
    syscall_signal Pie;
    tailcall NoPie;
    terminate Static;
    thread_crash Pie;
    threads Pie;
    lease Pie;
    unwind Static;
}
