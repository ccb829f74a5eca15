//! The same crashes with sqlite3 and redis-server built from Debian's sources, with debug symbols.
//!
//! Debian's packages of debug symbols are in a separate archive, which not every mirror has.
//! Sources are fetched and built once, below the target directory.

use crate::debian::sqlite::{extension, values_are_gdbs};
use crate::debian::walk::{Crash, Step, present};
use crate::debian::{redis, sqlite};
use crate::gdb_answers::have_gdb;
use backtrail_tests::debian_source;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time limit of a command, on an idle machine.
const SLOW: Duration = Duration::from_secs(20);

/// The folder where sources are unpacked and built.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian-sources")
}

/// Builds a program of a package with `commands`.
fn built(package: &str, program: &str, commands: &[&[&str]]) -> Option<PathBuf> {
    let source = debian_source::unpacked(package, &folder())?;
    let program = source.join(program);
    if !program.exists() {
        for command in commands {
            let mut command_line = Command::new(command[0]);
            assert!(
                debian_source::succeeds(command_line.current_dir(&source).args(&command[1..])),
                "{package}"
            );
        }
    }
    Some(program)
}

/// Checks that no command takes long. Each runs in its own session, without cached results.
fn none_is_slow(crash: &Crash, commands: &[&str]) {
    for command in commands {
        let began = Instant::now();
        crash.answers(&[command]);
        let took = began.elapsed();
        eprintln!("{command}: {took:?}");
        assert!(took < SLOW, "{command}: {took:?}");
    }
}

/// With all names and lines of sqlite3.
const SQLITE: &[Step] = &[
    (
        "backtrace",
        &[
            "in show () at rates.c:",
            "in sqlite3VdbeExec () at sqlite3.c:",
            " sqlite3_step () at sqlite3.c:",
            "in shell_exec () at shell.c:",
            "in main () at shell.c:",
        ],
    ),
    ("frame 1", &["sqlite3VdbeExec () at sqlite3.c:"]),
    ("print pOp->opcode", &["= "]),
    ("print db->nVdbeActive", &["= 1\n"]),
    ("break forget", &[]),
    ("reverse-continue", &["Breakpoint 1, forget ()"]),
    ("up 5", &["sqlite3VdbeExec () at sqlite3.c:"]),
    ("reverse-finish", &["sqlite3Step"]),
    ("back", &["forget ()"]),
    ("count sqlite3VdbeExec", &[" calls\n"]),
    ("reverse-advance sqlite3Prepare", &["sqlite3Prepare"]),
    ("list", &["×"]),
    ("latency sqlite3_step", &["p99"]),
];

#[test]
#[ignore = "builds sqlite3 from source, two minutes: cargo xtask test-all"]
fn sqlite_with_debug_symbols() {
    if present("/usr/bin/tclsh").is_none() {
        return;
    }
    let make = ["make", "sqlite3"];
    let configure = [
        "./configure",
        "--disable-tcl",
        "--disable-readline",
        "--disable-shared",
        "CFLAGS=-g -O2",
    ];
    let program = built("sqlite3", "sqlite3", &[&configure, &make]);
    let Some((program, extension)) = program.zip(extension()) else {
        return;
    };
    let crash = sqlite::recorded(&program, &extension, &[]);
    crash.walk(SQLITE);
    crash.comes_back("last forget", "reverse-step", "step", 40);
    crash.comes_back_over_calls("show");
    none_is_slow(
        &crash,
        &[
            "crash",
            "search sqlite3_",
            "list sqlite3_step",
            "latency /./",
            "callers sqlite3Malloc",
        ],
    );
    if have_gdb() {
        values_are_gdbs(&crash);
        crash.stack_is_gdbs();
        crash.arguments_are_gdbs();
        crash.variables_are_gdbs(9);
    }
}

const REDIS: &[Step] = &[
    (
        "backtrace",
        &[
            "sigsegvHandler () at debug.c:",
            "<signal handler called>",
            "debugCommand () at debug.c:",
            "in call () at server.c:",
            "in processCommand () at server.c:",
            "in main () at server.c:",
        ],
    ),
    ("print server.port", &["= 0\n"]),
    ("print server.stat_numcommands", &["= "]),
    ("print *server.commands", &["= {"]),
    ("last debugCommand", &["debugCommand () at debug.c:"]),
    ("reverse-next", &["call () at server.c:"]),
    ("break incrDecrCommand", &[" at t_string.c:"]),
    (
        "reverse-continue",
        &["Breakpoint 1, incrDecrCommand () at t_string.c:"],
    ),
    ("finish", &["call () at server.c:"]),
    ("calls", &["incrDecrCommand"]),
    ("list processCommand", &["×"]),
    ("latency call", &["call: 24 calls\n"]),
];

#[test]
#[ignore = "builds redis-server from source, two minutes: cargo xtask test-all"]
fn redis_with_debug_symbols() {
    let make = [
        "make",
        "-C",
        "src",
        "redis-server",
        "MALLOC=libc",
        "OPTIMIZATION=-O2",
        "V=1",
    ];
    let Some(program) = built("redis", "src/redis-server", &[&make]) else {
        return;
    };
    let crash = redis::recorded(&program);
    crash.walk(REDIS);
    crash.comes_back("last processCommand", "reverse-step", "step", 40);
    crash.comes_back_over_calls("debugCommand");
    none_is_slow(
        &crash,
        &[
            "crash",
            "search Command$",
            "list processCommand",
            "latency /./",
            "callers zmalloc",
        ],
    );
    if have_gdb() {
        crash.stack_is_gdbs();
        crash.arguments_are_gdbs();
        crash.variables_are_gdbs(9);
    }
}
