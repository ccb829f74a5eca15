//! sqlite3, with our extension that crashes in the middle of a query. `rates.c` describes its
//! defect.

use crate::debian::walk::{Crash, Step, folder, present};
use crate::gdb_answers::{by_gdb, have_gdb, ours};
use backtrail_tests::bundle::Bundle;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Records one run of Debian's sqlite3. Returns `None`, with a message on stderr, if a package is
/// not installed.
pub fn crash() -> Option<&'static Crash> {
    static CRASH: OnceLock<Option<Crash>> = OnceLock::new();
    CRASH
        .get_or_init(|| Some(recorded(present("/usr/bin/sqlite3")?, &extension()?, &[])))
        .as_ref()
}

/// Returns the extension with debug symbols. It is built once, because other tests may have it
/// open.
pub fn extension() -> Option<PathBuf> {
    static EXTENSION: OnceLock<Option<PathBuf>> = OnceLock::new();
    EXTENSION.get_or_init(built).clone()
}

/// Builds the extension. Returns `None` if the header of sqlite3 is not installed.
fn built() -> Option<PathBuf> {
    present("/usr/include/sqlite3ext.h")?;
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rates.so");
    let output = Command::new("cc")
        .current_dir(folder())
        .args(["-g", "-Og", "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg("rates.c")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(library)
}

/// Records `sqlite3` running the script, up to its crash, with these options.
pub fn recorded(sqlite3: &Path, extension: &Path, options: &[&str]) -> Crash {
    let load = format!(".load {}", extension.display());
    let read = format!(".read {}", folder().join("rates.sql").display());
    let arguments: [&OsStr; 6] = [
        "--".as_ref(),
        sqlite3.as_ref(),
        ":memory:".as_ref(),
        "-cmd".as_ref(),
        load.as_ref(),
        read.as_ref(),
    ];
    let (bundle, run) = Bundle::made(&[&["record", "--full"], options].concat(), &arguments);
    assert!(run.stderr.contains("SIGSEGV killed"), "{run:?}");
    Crash {
        bundle,
        executable: sqlite3.to_path_buf(),
    }
}

/// From the crash to the cause.
pub const WALK: &[Step] = &[
    (
        "crash",
        &[
            "SIGSEGV (segmentation fault) at address 0x0",
            "show () at rates.c:91",
            "→91",
            "Last calls:",
        ],
    ),
    (
        "backtrace",
        &[
            "#0  ",
            "in show () at rates.c:91\n#1 ",
            " in sqlite3_step () from ",
            " in __libc_start_call_main ()",
        ],
    ),
    (
        "info locals",
        &[
            "amount = 12733.7",
            "sign = <unknown: the core does not have the memory at 0x0>",
        ],
    ),
    ("print *base", &["sign = 0x0, per_unit = 0, used = 0}"]),
    ("print base == &kept[0]", &["= 1\n"]),
    ("print kept[1].currency", &["\"GBP\"\n"]),
    ("whatis base", &["type = struct rate *\n"]),
    (
        "ptype struct rate",
        &["    char currency[4];\n    char *sign;\n    double per_unit;\n    long used;\n}"],
    ),
    ("x/s kept[1].sign", &["\"L\"\n"]),
    ("x/dg &clock", &["<clock>:\t60\n"]),
    ("info frame", &["show", "rates.c:91"]),
    ("info line", &["Line 91 of", "rates.c"]),
    ("info source", &["rates.c"]),
    ("info registers rax", &["rax "]),
    ("info all-registers", &["rax ", "gs_base ", "xmm15 "]),
    ("info vector", &["xmm0 ", "xmm15 "]),
    ("display base->used", &["1: base->used = 0\n"]),
    ("info display", &["base->used"]),
    ("undisplay 1", &[]),
    ("count forget", &["forget: 1 call\n"]),
    ("break forget", &["Breakpoint 1: ", " in forget at rates.c:29\n"]),
    ("info breakpoints", &["forget"]),
    ("reverse-continue", &["Breakpoint 1, forget () at rates.c:29 "]),
    (
        "backtrace 6",
        &[
            "#0  forget ()",
            "in make_room () at rates.c:43",
            "in load () at rates.c:49",
            "in rate_of () at rates.c:68",
            "in convert () at rates.c:82",
            "<more frames follow>",
        ],
    ),
    ("print *base", &["<unknown: the trace records control flow only"]),
    ("bookmark forgotten", &["forgotten"]),
    (
        "reverse-finish",
        &["in make_room () at rates.c:43 ", "forget(oldest);", "call "],
    ),
    ("list load", &["load(sqlite3 *db", "5×"]),
    ("list", &["5× 54\t    if (found) {", "4× 55\t        strcpy"]),
    ("reverse-step", &["make_room () at rates.c:43 "]),
    ("reverse-next", &["make_room () at rates.c:37 "]),
    ("goto forgotten", &["forget () at rates.c:29 "]),
    ("back", &["make_room () at rates.c:37 "]),
    ("forward", &["forget () at rates.c:29 "]),
    ("skip function forget", &["Skip 1: function forget"]),
    ("info skip", &["Skip 1: function forget"]),
    ("show just-my-code", &["just-my-code: on"]),
    // The library is not own code, and `finish` would leave it.
    ("set just-my-code off", &["Steps stop in library code too."]),
    ("up", &["#1 ", "make_room"]),
    ("down", &["#0  forget"]),
    ("frame 4", &["#4 ", "convert"]),
    ("info args", &["context = ?", "count = ", "arguments = "]),
    ("finish", &["in sqlite3VdbeExec () from "]),
    (
        "search forget",
        &["       1  forget  [", "       1  rates.c:43  forget(oldest);  ["],
    ),
    ("callers forget", &["       1  make_room at rates.c:43"]),
    ("first load", &["load () at rates.c:48 "]),
    ("run-to-call 5 of load", &["load () at rates.c:48 "]),
    (
        "calls",
        &[
            "→ load rates.c:47",
            "    make_room rates.c:34",
            "      forget rates.c:28",
            "    sqlite3_finalize",
        ],
    ),
    ("latency convert", &["convert: 60 calls\n", "p90", "self"]),
    (
        "slowest convert 2 --instructions",
        &["convert from sqlite3VdbeExec"],
    ),
    // Other commands that users of GDB type.
    ("goto forgotten", &["forget () at rates.c:29 "]),
    ("info symbol $pc", &["forget"]),
    ("delete", &[]),
    ("tbreak make_room", &["Temporary breakpoint "]),
    ("disable", &[]),
    ("enable", &[]),
    ("reverse-continue", &["make_room () at rates.c:"]),
    ("until 43", &["make_room () at rates.c:43 ", "forget(oldest);"]),
    ("set pager off", &["without a pager"]),
    ("set height 0", &["no effect"]),
    ("set print pretty on", &[]),
    ("echo here:\\n", &["here:"]),
    ("printf \"%d\\n\", sizeof(int)", &["4"]),
    ("output sizeof(long)", &["8"]),
];

#[test]
fn the_cause_is_found_far_before_the_crash() {
    let Some(crash) = crash() else { return };
    crash.walk(WALK);
}

#[test]
fn difference_between_calls_is_found() {
    let Some(crash) = crash() else { return };
    // Four calls find a rate and one does not; that one evicts an entry.
    let slowest = &crash.ask(&["slowest load --instructions"])[0];
    let calls = slowest["slowest"].as_array().unwrap();
    assert_eq!(calls.len(), 5);
    let position = |call: &serde_json::Value| call["position"].as_str().unwrap().to_owned();
    let index = |call: &serde_json::Value| {
        let position = position(call);
        position.split('#').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let last = calls.iter().max_by_key(|call| index(call)).unwrap();
    let first = calls.iter().min_by_key(|call| index(call)).unwrap();
    let compare = format!("compare {} {}", position(first), position(last));
    let comparison = &crash.ask(&[&compare])[0];
    let rows = comparison["differences"].as_array().unwrap();
    let who = |function: &str| {
        let row = rows.iter().find(|row| row["function"] == function);
        row.unwrap_or_else(|| panic!("no {function}: {comparison}"))["who"].clone()
    };
    assert_eq!(who("forget"), "second");
    assert_eq!(who("sqlite3_column_text"), "first");
}

#[test]
fn forward_comes_back_to_where_backward_began() {
    let Some(crash) = crash() else { return };
    for (back, forth) in [("reverse-step", "step"), ("reverse-stepi", "stepi")] {
        crash.comes_back("last forget", back, forth, 25);
    }
    // All steps are in `load`, because no calls are between them.
    crash.comes_back("last rates.c:60", "reverse-next", "next", 5);
    crash.comes_back("last rates.c:60", "reverse-nexti", "nexti", 20);
}

#[test]
fn stack_and_values_are_gdbs() {
    let Some(crash) = crash().filter(|_| have_gdb()) else {
        return;
    };
    values_are_gdbs(crash);
    crash.stack_is_gdbs();
    crash.arguments_are_gdbs();
}

/// Checks values of the extension at the crash against GDB.
pub fn values_are_gdbs(crash: &Crash) {
    let commands = [
        "print *base",
        "print kept",
        "print/x kept[2].used",
        "print kept[1].sign",
        "print *kept[3].sign@2",
        "print clock",
        "print base",
        "print amount",
        "print text",
        "print context",
        "print sizeof(struct rate)",
        "print forget",
        "print $rip",
        "x/4xw base",
        "x/s kept[1].sign",
        "whatis kept",
        "ptype struct rate",
    ];
    let ours = ours(&crash.bundle, &commands);
    let theirs = by_gdb(&crash.executable, &crash.bundle, &commands);
    assert_eq!(ours, theirs);
}
