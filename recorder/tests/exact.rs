//! Compares engine `step` with libipt, which must decode every stream without errors into exactly
//! the stepped instructions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod oracle;

use backtrail_recorder::{Ending, Engine, RecordOptions, Target, record};
use backtrail_tests::programs::{self, Variant};
use oracle::check;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;

static NEVER: AtomicBool = AtomicBool::new(false);

fn options(command: Vec<OsString>, output: &Path) -> RecordOptions<'static> {
    let options = RecordOptions::new(Target::Command(command), output.to_owned(), &NEVER);
    RecordOptions {
        engine: Engine::Step,
        golden: true,
        follow: true,
        ..options
    }
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
    let outcome = record(options(program.command(&path), &dir.path().join("bundle"))).unwrap();
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
    crash_bus Static;
    crash_free Pie;
    crash_div Static;
    crash_jump Static;
    crash_null Pie;
    crash_stack Static;
    crash_ud2 Static;
    dispatch Static;
    exception StaticPie;
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
    terminate Pie;
    thread_crash Pie;
    threads Pie;
    lease Pie;
    unwind Static;
}
