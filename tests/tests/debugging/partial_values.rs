//! Values of which only a part or not even the format is known, and values of Go, in cores that GDB
//! writes.

use super::gdb_answers::have_gdb;
use backtrail_tests::backtrail::backtrail;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A program and its core, in a folder.
struct Stopped {
    folder: TempDir,
}

impl Stopped {
    /// Builds a program of `tests/fixtures/values`, and stops it; `None` with a message if its
    /// compiler or GDB is missing.
    fn at(source: &str, compiler: &[&str], stop: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/values")
            .join(source);
        let stopped = Self { folder };
        let built = Command::new(compiler[0])
            .args(&compiler[1..])
            .arg("-o")
            .args([&stopped.path("program"), &source])
            .env("HOME", stopped.folder.path())
            .env("GO111MODULE", "off")
            .output();
        if !have_gdb() {
            return None;
        }
        let Ok(built) = built else {
            eprintln!("skipped: no {} on this machine", compiler[0]);
            return None;
        };
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        let mut gdb = Command::new("gdb");
        gdb.args(["-nx", "-batch", "-iex", "set debuginfod enabled off"]);
        let save = format!("generate-core-file {}", stopped.path("core").display());
        for command in stop.iter().chain(&["run", &*save]) {
            gdb.args(["-ex", command]);
        }
        let output = gdb.arg(stopped.path("program")).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Some(stopped)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Checks the lines that the debugger answers to a command.
    #[track_caller]
    fn check(&self, command: &str, expected: &[&str]) {
        let core = self.path("core");
        let arguments: [&OsStr; 5] = [
            "debug".as_ref(),
            core.as_ref(),
            "--batch".as_ref(),
            "-e".as_ref(),
            command.as_ref(),
        ];
        let run = backtrail(arguments).unwrap();
        let answer = run.stdout.split_once(&format!("(backtrail) {command}\n"));
        let lines: Vec<&str> = answer.unwrap_or_default().1.lines().collect();
        assert_eq!(lines, expected, "{command}\n{}", run.stderr);
    }
}

#[test]
fn known_pieces_of_numbers_and_texts_are_shown() {
    let compiler = ["cc", "-nostdlib", "-static"];
    let Some(stopped) = Stopped::at("pieces.S", &compiler, &[]) else {
        return;
    };
    stopped.check(
        "info locals",
        &[
            "marked = 1.5",
            "reference = <synthetic pointer>: 1.5",
            "again = <synthetic pointer>: <synthetic pointer>",
            "real = 1.5 + <optimized out>i",
            "imaginary = <optimized out> + 1.5i",
            "neither = <optimized out>",
            "both = 1.5 + 1.5i",
            "text = {97 'a', 98 'b', <optimized out> <repeats 12 times>}",
            "spilled = <unknown: its location expression is malformed: it loads more bytes than an address has>",
            "parts = 1.5 + 1.5i",
            "wide = <unknown: numbers of type real(kind=16) are not supported>",
            "passed = 1.5",
            "sum = 3",
        ],
    );
    // A part is no whole.
    stopped.check("print real + 1", &["real + 1 = <optimized out>"]);
    stopped.check("print text[1]", &["$1 = 98 'b'"]);
    stopped.check("print text[2]", &["$1 = <optimized out>"]);
}

#[test]
fn long_double_of_another_format_is_unknown() {
    for (flags, expected) in [
        (&[][..], ["$1 = 1", "$1 = 0.5 + 2i"]),
        (&["-mlong-double-64"], ["$1 = 1", "$1 = 0.5 + 2i"]),
        (
            &["-mlong-double-128"],
            [
                "$1 = <unknown: numbers of type long double are not supported>",
                "$1 = <unknown: numbers of type complex long double are not supported>",
            ],
        ),
    ] {
        let compiler = [&["gcc", "-g"], flags].concat();
        let Some(stopped) = Stopped::at("formats.c", &compiler, &[]) else {
            return;
        };
        stopped.check("print one", &expected[..1]);
        stopped.check("print half", &expected[1..]);
    }
}

#[test]
fn strings_and_slices_of_go_are_shown_by_their_contents() {
    let compiler = ["go", "build", "-gcflags=-N -l"];
    let Some(stopped) = Stopped::at("texts.go", &compiler, &["break main.stop"]) else {
        return;
    };
    let long = "ab".repeat(100);
    stopped.check(
        "info args",
        &[
            "text = \"abc\"",
            "empty = \"\"",
            "quote = \"a\\\"b\\nü\\377\"",
            &format!("long = \"{long}\"..."),
            "label = \"named\"",
            "values = []int = {1, 2, 3, 4}",
            "none = []int",
            "names = []string = {\"roof\", \"stairs\"}",
            "bytes = []uint8 = {65, 0}",
            "reading = {Name = \"cellar\", Values = []int = {2, 3}}",
        ],
    );
    for (command, expected) in [
        ("print names[1]", "$1 = \"stairs\""),
        ("print values[3]", "$1 = 4"),
        ("print text[1]", "$1 = 98"),
        ("print reading.Values[0]", "$1 = 2"),
        ("print values.len", "$1 = 4"),
        ("print text == \"abc\"", "$1 = 1"),
        ("print label == \"name\"", "$1 = 0"),
        ("print/r text.len", "$1 = 3"),
    ] {
        stopped.check(command, &[expected]);
    }
    let outside = "error: the index is out of range: there are 4 elements";
    stopped.check("print values[4]", &[outside]);
}
