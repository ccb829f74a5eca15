//! python3, which reads at address 0 through ctypes. `names.py` describes the defect.

use crate::debian::walk::{Crash, Step, folder, present};
use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::bundle::Bundle;
use std::path::Path;
use std::sync::OnceLock;

/// Records one run of Debian's python3, with its debug symbols. Returns `None`, with a message on
/// stderr, if a package is not installed.
pub fn crash() -> Option<&'static Crash> {
    static CRASH: OnceLock<Option<Crash>> = OnceLock::new();
    CRASH
        .get_or_init(|| {
            let python = present("/usr/bin/python3")?;
            present("/usr/bin/python3-dbg")?;
            let script = folder().join("names.py");
            let arguments = ["--".as_ref(), python.as_ref(), "-I".as_ref(), script.as_os_str()];
            let (bundle, run) = Bundle::made(&["record", "--full", "--heap"], &arguments);
            assert!(run.stderr.contains("SIGSEGV killed"), "{run:?}");
            Some(Crash {
                bundle,
                executable: Path::new("/usr/bin/python3").to_path_buf(),
            })
        })
        .as_ref()
}

/// From the crash in the C library to the call from Python, and to an earlier call that succeeded.
pub const WALK: &[Step] = &[
    ("crash", &["_ctypes.cpython", "Last lines"]),
    ("set scheduler-locking off", &["any thread"]),
    ("skip file no_such_file.c", &["Skip 1: file no_such_file.c"]),
    ("info skip", &["Skip 1: "]),
    ("set just-my-code off", &["stop in library code"]),
    ("show just-my-code", &["just-my-code: off"]),
    (
        "crash full",
        &[
            "/usr/bin/python3",
            "SIGSEGV (segmentation fault) at address 0x0",
            "strlen",
            "in string_at () at _ctypes.c:",
        ],
    ),
    (
        "info sharedlibrary",
        &["/usr/bin/python3", "_ctypes.cpython", "/libc.so.6"],
    ),
    ("info gaps", &["No gaps"]),
    ("info heap", &[" live, ", "Most live bytes"]),
    ("info functions ^string_at$", &["  string_at  _ctypes.c:"]),
    (
        "break string_at",
        &["Breakpoint 1: ", " in string_at at _ctypes.c:"],
    ),
    ("tbreak PyCFuncPtr_call", &["Temporary breakpoint 2: "]),
    ("rbreak ^_ctypes_callproc$", &["_ctypes_callproc"]),
    ("reverse-continue", &["Breakpoint 1, string_at () at _ctypes.c:"]),
    (
        "reverse-continue",
        &["Breakpoint 3, _ctypes_callproc () at callproc.c:"],
    ),
    ("reverse-continue", &["Breakpoint 2, PyCFuncPtr_call () at "]),
    (
        "info breakpoints",
        &["1   string_at  hit 1 time", "3   _ctypes_callproc  hit 1 time"],
    ),
    ("delete 3", &["Deleted 3."]),
    ("goto crash", &["strlen"]),
    ("ignore 1 3", &["Breakpoint 1: "]),
    ("reverse-continue", &["Breakpoint 1, string_at () at _ctypes.c:"]),
    ("reverse-continue", &["No more history: this is the start."]),
    ("condition 1 $instructions > 10", &["Breakpoint 1: "]),
    ("continue", &["Breakpoint 1, string_at () at _ctypes.c:"]),
    ("condition 1", &[]),
    ("delete", &["Deleted all breakpoints."]),
    ("count string_at", &["string_at: 4 calls\n"]),
    ("first string_at", &["string_at () at _ctypes.c:"]),
    ("callers string_at", &["4  "]),
    ("last string_at", &["string_at () at _ctypes.c:"]),
    ("set disassembly-flavor intel", &["intel"]),
    (
        "disassemble string_at",
        &["Code of string_at:", "=> 0x", "mov ", "call "],
    ),
    ("set disassembly-flavor att", &["att"]),
    ("x/3i $pc", &["<string_at"]),
    ("nexti", &["string_at"]),
    ("reverse-nexti", &["string_at () at _ctypes.c:"]),
    ("last PyCFuncPtr_call", &["PyCFuncPtr_call () at "]),
    (
        "reverse-advance PyObject_Vectorcall",
        &["in _PyObject_MakeTpCall () at call.c:", "call "],
    ),
    ("advance string_at", &["string_at () at _ctypes.c:"]),
    ("stepi", &["string_at"]),
    ("reverse-stepi", &["string_at () at _ctypes.c:"]),
    ("when", &["instruction ", "time "]),
    ("history 5", &["[t"]),
    ("info threads", &["* ", "\"python3\"", "crashed"]),
    ("set substitute-path /build /nowhere", &["/nowhere"]),
    ("bookmark last", &["last"]),
    ("info bookmarks", &["last"]),
    ("next", &["string_at () at _ctypes.c:"]),
    ("step", &["_ctypes.c:"]),
    ("goto end", &["strlen"]),
    ("reverse-finish", &["in string_at () at _ctypes.c:", "call "]),
    (
        "help reverse-finish",
        &["Goes back to the instruction that called the selected frame."],
    ),
    ("latency string_at --instructions", &["string_at: 4 calls\n"]),
    ("quit", &[]),
];

#[test]
fn the_crash_in_a_library_leads_to_what_called_it() {
    let Some(crash) = crash() else { return };
    crash.walk(WALK);
}

/// Python calls itself through imports and through functions that are split into parts.
#[test]
fn every_call_is_followed_and_the_stack_is_gdbs() {
    let Some(crash) = crash() else { return };
    let dump = crash.bundle.run(&["dump", "calls"], &["--json"]).stdout;
    let (mut calls, mut roots) = (0, 0);
    for line in dump.lines() {
        calls += 1;
        roots += usize::from(line.contains("\"depth\":0,"));
        let lost = line.contains("\"left\":\"left unexplained\"") || line.contains("\"left\":\"unwound\"");
        assert!(!lost, "{line}");
    }
    assert_eq!(roots, 1);
    assert!(calls > 100_000, "{calls} calls");
    if have_gdb() {
        crash.stack_is_gdbs();
        crash.arguments_are_gdbs();
    }
}

#[test]
fn values_of_the_interpreter_are_gdbs() {
    let Some(crash) = crash().filter(|_| have_gdb()) else {
        return;
    };
    let commands = [
        "up",
        "print ptr",
        "print size",
        "print sizeof(PyObject)",
        "whatis ptr",
        "ptype struct _object",
        "print _PyRuntime.initialized",
        "print _PyRuntime.gilstate.check_enabled",
        "whatis _PyRuntime.gilstate",
        "print PyLong_Type.tp_name",
        "print PyBytes_Type.tp_basicsize",
        "print/x _PyRuntime.main_thread",
        "x/s PyLong_Type.tp_name",
    ];
    let ours = ours(&crash.bundle, &commands);
    let theirs = by_gdb(&crash.executable, &crash.bundle, &commands);
    assert_eq!(ours[1..], theirs[1..]);
}

#[test]
fn forward_comes_back_to_where_backward_began() {
    let Some(crash) = crash() else { return };
    crash.comes_back("last string_at", "reverse-step", "step", 30);
    crash.comes_back("last PyObject_Vectorcall", "reverse-stepi", "stepi", 30);
    crash.comes_back_over_calls("PyObject_Vectorcall");
}
