//! Every motion stops at the position that its definition names, and each pair returns to its start
//! as defined. The inputs are traces of real processors, and recordings of the example programs,
//! which cover every rule of control flow.
//!
//! The definitions are those of `backtrail_debugger::step` and `backtrail_debugger::lines`. This
//! test implements them again in the simplest way: check every position, and take the nearest match
//! ([`stretch`]).

mod nearest;
mod pairs;
mod stretch;
mod walk;

use backtrail_debugger::{Navigator, OpenOptions, Session};
use backtrail_decoder::{Position, Watch};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::captures::folder;
use backtrail_tests::programs::{Variant, find};
use std::ffi::OsStr;
use std::path::Path;
use stretch::{Stretch, stretches};

/// Checks all motions in every thread of a bundle.
fn hold_in(bundle: &Bundle) {
    let session = Session::open(&bundle.path, &OpenOptions::default(), &Watch::none()).unwrap();
    let mut navigator = Navigator::new(session).unwrap();
    // `my_code` has the definitions of steps that pass over libraries.
    navigator.just_my_code = false;
    let threads = navigator.session().threads().iter();
    let threads: Vec<_> = threads.map(|thread| (thread.tid, thread.history.len())).collect();
    assert!(threads.iter().any(|&(_, len)| len > 0));
    for (tid, len) in threads.into_iter().filter(|&(_, len)| len > 0) {
        navigator.go_to(Position::new(tid, len)).unwrap();
        let held = navigator.with_steps(&Watch::none(), |steps| {
            walk::hold(steps);
            for range in stretches(steps) {
                let stretch = Stretch::new(steps, range);
                nearest::hold(&stretch);
                pairs::hold(&stretch);
            }
            Ok(())
        });
        held.unwrap();
    }
}

macro_rules! programs {
    ($($name:ident $variant:ident;)*) => {
        $(
            #[test]
            fn $name() {
                let program = find(stringify!($name)).unwrap();
                hold_in(&Bundle::recorded(program, Variant::$variant, &["--full"]).0);
            }
        )*
    };
}

programs! {
    crash_stack Static;
    dispatch Pie;
    exception StaticPie;
    fork Static;
    inlined Static;
    lazy NoPie;
    lease Static;
    ledger Static;
    longjmp Static;
    recursion Static;
    sigaltstack Static;
    tailcall Static;
    terminate StaticPie;
    threads Static;
    unwind Static;
}

#[test]
fn definitions_hold_in_crashes_from_production() {
    let Some(folder) = folder() else { return };
    for crash in [
        "control_flow/control_flow-20180404T163033",
        "loopy/loopy-20180404T162955",
    ] {
        let crash = folder.join("pt/hase/20180404").join(crash);
        let (data, core) = (crash.with_extension("perf"), crash.with_extension("coredump"));
        let symfs = crash.parent().unwrap_or(Path::new("."));
        let import: [&OsStr; 7] = [
            "import".as_ref(),
            "perf".as_ref(),
            data.as_ref(),
            "--core".as_ref(),
            core.as_ref(),
            "--symfs".as_ref(),
            symfs.as_ref(),
        ];
        hold_in(&Bundle::made(&import, &[]).0);
    }
}

#[test]
fn traces_of_lldb() {
    let Some(folder) = folder() else { return };
    for trace in [
        "intelpt-trace-multi-file/multi-file-no-ld.json",
        "intelpt-multi-core-trace/trace.json",
    ] {
        let trace = folder.join("pt/lldb").join(trace);
        hold_in(&Bundle::made(&["import".as_ref(), "lldb".as_ref(), trace.as_os_str()], &[]).0);
    }
}
