//! Names in code that was replaced: those of the module that was mapped at the time.

use super::*;
use std::process::Command;

/// Builds a program from `NAME.S` at an address. `NAME_entry` has this number of instructions
/// before its call of `NAME_helper`, which follows it. `NAME_far` is on the next page.
fn build(recording: &Recording, name: &str, address: u64, before: usize) {
    let source = recording.path(&format!("{name}.S"));
    let function = |function: &str, body: &str| {
        let symbol = format!("{name}_{function}");
        format!(
            "\t.globl {symbol}\n\t.type {symbol}, @function\n{symbol}:\n{body}\t.size {symbol}, . - {symbol}\n"
        )
    };
    let entry = format!("{}\tcall {name}_helper\n\tnop\n", "\tnop\n".repeat(before));
    let nops = "\tnop\n".repeat(64);
    let text = format!(
        "\t.text\n{}{}\t.balign 4096\n{}",
        function("entry", &entry),
        function("helper", &nops),
        function("far", &nops)
    );
    fs::write(&source, text).unwrap();
    let output = Command::new("cc")
        .current_dir(recording.folder.path())
        .args(["-g", "-nostdlib", "-static", "-Wl,--build-id=sha1"])
        .arg(format!("-Wl,-Ttext={address:#x},-e,{address:#x}"))
        .arg("-o")
        .args([recording.path(name), source])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Returns how many calls each function has.
fn calls<const N: usize>(bundle: &Bundle, names: [&str; N]) -> [usize; N] {
    let list = bundle.run(&["dump", "calls"], &[]).stdout;
    names.map(|name| list.matches(&format!(" {name}  [")).count())
}

/// Returns the debugger's answer to each command, in lines.
fn debug(bundle: &Bundle, commands: &[&str]) -> Vec<String> {
    let transcript = bundle.debug(commands);
    let answers = transcript.split("(backtrail) ").skip(1);
    answers
        .map(|answer| {
            answer
                .split_once('\n')
                .unwrap_or_default()
                .1
                .trim_end()
                .to_owned()
        })
        .collect()
}

/// A process that maps one program, another one in its place, and the first one again.
fn replaced_twice(bound: Bound) -> Bundle {
    let mut recording = Recording::new(bound);
    build(&recording, "first", CODE, 1);
    build(&recording, "second", CODE, 3);
    recording.data.comm(at(PID, 900), "program", true);
    recording.maps(PID, 901, "first", 1);
    recording.turn(PID, PID, 1000, 10);
    recording.maps(PID, 1150, "second", 2);
    recording.turn(PID, PID, 1200, 12);
    recording.maps(PID, 1350, "first", 1);
    recording.turn(PID, PID, 1400, 9);
    recording.import()
}

#[test]
fn names_in_replaced_code_are_those_of_the_time() {
    for bound in [Bound::Thread(PID), Bound::Processors] {
        let bundle = replaced_twice(bound);
        let names = ["first_entry", "first_helper", "second_entry", "second_helper"];
        assert_eq!(calls(&bundle, names), [2, 2, 1, 1]);
        let found = debug(
            &bundle,
            &[
                "bt",
                "count first_helper",
                "count second_helper",
                "count first.S:5",
                "count second.S:5",
                "break second_helper",
                "reverse-continue",
                "bt",
                "info source",
                "delete",
                "break first_helper",
                "reverse-continue",
                "bt",
                "callers first_helper",
                "break second.S:6",
                "continue",
            ],
        );
        let text = |number: usize| found[number].as_str();
        let has = |number: usize, parts: &[&str]| {
            let missing = parts.iter().find(|part| !text(number).contains(**part));
            assert!(missing.is_none(), "{missing:?} in {number}: {}", text(number));
        };
        has(0, &["first_helper", "first_entry"]);
        has(1, &["2 calls"]);
        has(2, &["1 call"]);
        has(3, &["executed 2 times"]);
        has(4, &["executed once"]);
        has(
            7,
            &["second_helper () at second.S:", "second_entry () at second.S:8"],
        );
        has(8, &["second.S"]);
        has(
            12,
            &["first_helper () at first.S:", "first_entry () at first.S:6"],
        );
        has(13, &["first_entry"]);
        has(15, &["second_entry () at second.S:6"]);
        assert!(!text(7).contains("first") && !text(12).contains("second"));
        assert!(!bundle.info()["notes"].to_string().contains("names"));
    }
}

#[test]
fn names_before_an_exec_are_those_of_the_first_program() {
    let mut recording = Recording::new(Bound::Thread(PID));
    build(&recording, "first", CODE, 1);
    build(&recording, "second", CODE, 3);
    recording.data.comm(at(PID, 900), "first", true);
    recording.maps(PID, 901, "first", 1);
    recording.turn(PID, PID, 1000, 10);
    recording.data.comm(at(PID, 1150), "second", true);
    recording.maps(PID, 1151, "second", 2);
    recording.turn(PID, PID, 1200, 12);
    // A child starts with the second program, and executes the first one.
    recording.data.fork(at(60, 1310), PID);
    recording.turn(60, 60, 1320, 12);
    recording.data.comm(at(60, 1450), "first", true);
    recording.maps(60, 1451, "first", 1);
    recording.turn(60, 60, 1500, 10);
    let bundle = recording.import();
    let list = bundle.run(&["dump", "calls"], &[]).stdout;
    let order = |thread: &str| -> Vec<&str> {
        let lines = list.lines().filter(|line| line.starts_with(thread));
        lines.filter_map(|line| line.split_whitespace().nth(2)).collect()
    };
    let (first, second) = (["first_entry", "first_helper"], ["second_entry", "second_helper"]);
    assert_eq!(order("t50#"), [first, second].concat(), "{list}");
    assert_eq!(order("t60#"), [second, first].concat(), "{list}");
}

#[test]
fn only_the_replaced_part_of_a_module_has_other_names() {
    let mut recording = Recording::new(Bound::Thread(PID));
    let far = CODE + 0x1000;
    build(&recording, "first", CODE, 1);
    build(&recording, "second", far, 3);
    let map = |recording: &mut Recording, time, area, name: &str, inode| {
        let path = recording.path(name).display().to_string();
        recording.data.mmap(at(PID, time), area, &path, inode);
    };
    let turn = |recording: &mut Recording, time: u64| {
        recording.data.ran(PID, PID, 0, time + 10..time + 100);
        recording.burst(10);
        recording.encoder.enable(Avma(far));
        recording.encoder.disable_async(Avma(far + 3));
        recording.aux(PID, time + 105);
    };
    map(&mut recording, 901, (CODE, 0x2000, 0x1000), "first", 1);
    turn(&mut recording, 1000);
    map(&mut recording, 1150, (far, 0x1000, 0x1000), "second", 2);
    turn(&mut recording, 1200);
    let bundle = recording.import();
    let names = ["first_entry", "first_helper", "first_far", "second_entry"];
    assert_eq!(calls(&bundle, names), [2, 2, 1, 1]);
}
