//! Watchpoints and the writes of recorded values, against GDB's software watchpoints.

use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded_with;
use std::process::Command;

const SOURCE: &str = "recorded_values/changes.c";
/// Expressions at the first `deposit`.
const EXPRESSIONS: [&str; 4] = ["total", "accounts[1].balance", "current->number", "*current"];

fn recorded(level: &str, source: &str) -> Bundle {
    let flags = ["-g", level, "-pthread"];
    compiled_and_recorded_with(&["--values"], "cc", &flags, source)
}

fn has_gdb() -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no gdb on this machine");
    }
    found
}

/// A change: the old value, the new one, and the line of the stop.
type Change = (String, String, String);

/// Returns the changes in a transcript of GDB or of ours.
fn changes(text: &str) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let mut old = None;
    let mut is_open = false;
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("Old value = ") {
            old = Some(value.to_owned());
        } else if let Some(value) = line.strip_prefix("New value = ") {
            let old = old.take().unwrap();
            changes.push((old, value.to_owned(), String::new()));
            is_open = true;
        } else if is_open
            && let Some((number, _)) = line.split_once('\t')
            && number.parse::<u32>().is_ok()
            && let Some(last) = changes.last_mut()
        {
            last.2 = number.to_owned();
            is_open = false;
        }
    }
    changes
}

/// Returns what GDB's software watchpoint finds from a function on.
fn gdb_changes(level: &str, function: &str, expression: &str) -> Vec<Change> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = repository().join("tests/fixtures").join(SOURCE);
    let compiled = Command::new("cc")
        .args(["-g", level, "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .status()
        .unwrap();
    assert!(compiled.success());
    let mut gdb = Command::new("gdb");
    gdb.args(["-q", "-nx", "-batch"]).arg(&program);
    let setup = [
        "set can-use-hw-watchpoints 0".to_owned(),
        format!("break {function}"),
        "run".to_owned(),
        "delete".to_owned(),
        format!("watch {expression}"),
    ];
    for command in setup.into_iter().chain((0..30).map(|_| "continue".to_owned())) {
        gdb.args(["-ex", &command]);
    }
    let output = gdb.output().unwrap();
    changes(&String::from_utf8_lossy(&output.stdout))
}

fn our_changes(bundle: &Bundle, function: &str, expression: &str) -> Vec<Change> {
    let mut commands = vec![
        "set just-my-code off".to_owned(),
        "goto start".to_owned(),
        format!("break {function}"),
        "continue".to_owned(),
        "delete".to_owned(),
        format!("watch {expression}"),
    ];
    commands.extend((0..30).map(|_| "continue".to_owned()));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    changes(&bundle.debug(&commands))
}

#[test]
fn watchpoints_stop_where_gdbs_software_watchpoints_do() {
    if !has_gdb() {
        return;
    }
    let bundle = recorded("-O0", SOURCE);
    for expression in EXPRESSIONS {
        let theirs = gdb_changes("-O0", "deposit", expression);
        assert!(!theirs.is_empty(), "{expression}");
        assert_eq!(
            our_changes(&bundle, "deposit", expression),
            theirs,
            "{expression}"
        );
    }
}

#[test]
fn watchpoints_on_locals_find_what_gdb_finds() {
    if !has_gdb() {
        return;
    }
    for level in ["-O0", "-O1"] {
        let bundle = recorded(level, SOURCE);
        // The value before the first write is that of an earlier call.
        let values =
            |changes: Vec<Change>| -> Vec<String> { changes.into_iter().map(|(_, new, _)| new).collect() };
        let theirs = values(gdb_changes(level, "sum", "result"));
        assert!(theirs.len() > 2, "{level}: {theirs:?}");
        assert_eq!(values(our_changes(&bundle, "sum", "result")), theirs, "{level}");
    }
}

#[test]
fn reverse_watchpoints_find_the_same_changes() {
    let bundle = recorded("-O0", SOURCE);
    for expression in ["total", "accounts[1].balance"] {
        let forward = our_changes(&bundle, "main", expression);
        let watch = format!("watch {expression}");
        let mut commands = vec![&*watch];
        commands.extend(["reverse-continue"; 30]);
        let mut backward = changes(&bundle.debug(&commands));
        backward.reverse();
        let values = |changes: &[Change]| -> Vec<(String, String)> {
            changes
                .iter()
                .map(|(old, new, _)| (old.clone(), new.clone()))
                .collect()
        };
        assert_eq!(values(&backward), values(&forward), "{expression}");
    }
}

#[test]
fn history_and_last_find_each_change() {
    let bundle = recorded("-O0", SOURCE);
    let forward = our_changes(&bundle, "main", "total");
    let history = bundle.debug(&["history total"]);
    let values: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_once("  total = ")?.1.split_whitespace().next())
        .collect();
    let mut expected: Vec<&str> = vec![&forward[0].0];
    expected.extend(forward.iter().map(|(_, new, _)| &**new));
    assert_eq!(values, expected, "{history}");
    let last = changes(&bundle.debug(&["last total", "last total", "next total"]));
    let count = forward.len();
    let value = |at: usize| (forward[at].0.clone(), forward[at].1.clone());
    let last: Vec<_> = last.into_iter().map(|(old, new, _)| (old, new)).collect();
    assert_eq!(last, [value(count - 1), value(count - 2), value(count - 2)]);
}

#[test]
fn reads_are_hits_of_read_watchpoints() {
    let bundle = recorded("-O0", SOURCE);
    let text = bundle.debug(&[
        "rwatch accounts[2].balance",
        "reverse-continue",
        "info watchpoints",
    ]);
    assert!(
        text.contains("Read watchpoint 1: accounts[2].balance\nValue = 20\n"),
        "{text}"
    );
    assert!(text.contains("in sum ("), "{text}");
}

#[test]
fn origin_leads_through_moves_to_a_sum() {
    let bundle = recorded("-O0", SOURCE);
    let text = bundle.debug(&["origin accounts[1].balance"]);
    assert!(text.contains("accounts[1].balance = 250"), "{text}");
    let places: Vec<&str> = text
        .lines()
        .filter_map(|line| line.rsplit_once("  ").map(|(_, place)| place))
        .filter(|place| place.contains(" at changes.c:"))
        .collect();
    assert!(places.first().unwrap().starts_with("main at "), "{text}");
    assert!(places.last().unwrap().starts_with("sum at "), "{text}");
    assert!(text.contains("Origin: computed by add with"), "{text}");
}

#[test]
fn writes_of_other_threads_are_found_by_time() {
    let bundle = recorded("-O0", "recorded_values/threads.c");
    let text = bundle.debug(&[
        "break checkpoint",
        "reverse-continue",
        "print shared",
        "last shared",
        "last shared",
        "history shared",
        "goto crash",
        "break checkpoint if number == 1",
        "reverse-continue",
        "reverse-continue",
        "print shared",
    ]);
    assert!(text.contains("$1 = 9\n"), "{text}");
    assert!(text.contains("Old value = 4\nNew value = 9\n"), "{text}");
    assert!(text.contains("set_nine () at threads.c:"), "{text}");
    assert!(text.contains("Old value = 2\nNew value = 4\n"), "{text}");
    assert!(text.contains("$2 = 4\n"), "{text}");
}

/// Returns the error of a command.
fn refused(bundle: &Bundle, command: &str) -> String {
    let path = bundle.path.to_str().unwrap();
    let run = backtrail(["debug", path, "--batch", "-e", command]).unwrap();
    assert_ne!(run.status, Some(0), "{command}");
    run.stdout + &run.stderr
}

#[test]
fn watchpoints_without_values_name_the_way_out() {
    let flags = ["-g", "-pthread"];
    let bundle = compiled_and_recorded_with(&[], "cc", &flags, SOURCE);
    let text = refused(&bundle, "watch accounts");
    assert!(text.contains("backtrail record --values"), "{text}");
}

#[test]
fn expressions_that_cannot_change_are_refused() {
    let bundle = recorded("-O0", SOURCE);
    for (expression, why) in [
        ("5", "is a constant"),
        ("main", "is code"),
        ("nothing", "no symbol \"nothing\""),
        ("total +", ""),
    ] {
        let text = refused(&bundle, &format!("watch {expression}"));
        assert!(text.contains("error: ") && text.contains(why), "{text}");
    }
}

/// A program with a system call that writes unseen.
fn with_unseen_writes() -> Bundle {
    recorded("-O0", "recorded_values/unseen.c")
}

#[test]
fn last_refuses_a_write_before_an_unknown_system_call() {
    let bundle = with_unseen_writes();
    let path = bundle.path.to_str().unwrap();
    let mut arguments = vec!["debug", path, "--batch"];
    for command in [
        "break checkpoint if number == 1",
        "reverse-continue",
        "last waiting",
    ] {
        arguments.extend(["-e", command]);
    }
    let run = backtrail(arguments).unwrap();
    let text = run.stdout + &run.stderr;
    assert_ne!(run.status, Some(0), "{text}");
    let refusal = "the last write of waiting is unknown: the kernel may have written here, at t";
    let (_, rest) = text.split_once(refusal).unwrap_or_else(|| panic!("{text}"));
    // Both positions are ones for `goto`.
    let (unseen, rest) = rest.split_once("; the last write that is seen is at t").unwrap();
    let seen = rest.split_whitespace().next().unwrap();
    let places = bundle.debug(&[&format!("goto t{unseen}"), &format!("goto t{seen}")]);
    assert!(places.contains("ioctl ()"), "{places}");
    assert!(places.contains("waiting = 1;"), "{places}");
}

#[test]
fn next_refuses_a_write_after_an_unknown_system_call() {
    let bundle = with_unseen_writes();
    let path = bundle.path.to_str().unwrap();
    let mut arguments = vec!["debug", path, "--batch"];
    for command in ["goto start", "break unseen.c:21", "continue", "next waiting"] {
        arguments.extend(["-e", command]);
    }
    let run = backtrail(arguments).unwrap();
    let text = run.stdout + &run.stderr;
    assert!(
        text.contains("the next write of waiting is unknown: the kernel may have written here, at t"),
        "{text}"
    );
}

#[test]
fn history_shows_unseen_writes_at_their_position() {
    let bundle = with_unseen_writes();
    let text = bundle.debug(&["history waiting"]);
    let rows: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.1.trim()))
        .collect();
    let at = |start: &str| {
        let found = rows.iter().position(|row| row.starts_with(start));
        found.unwrap_or_else(|| panic!("{start}: {text}"))
    };
    let unseen = at("unseen: the kernel may have written here");
    assert!(at("waiting = 1  main at unseen.c:") < unseen, "{text}");
    assert!(unseen < at("waiting = 7  main at unseen.c:"), "{text}");
    let json = backtrail([
        "debug",
        bundle.path.to_str().unwrap(),
        "--json",
        "-e",
        "history waiting",
    ]);
    let json = json.unwrap().stdout;
    assert!(json.contains("\"cause\":\"kernel\""), "{json}");
}

#[test]
fn watch_stops_name_unseen_writes_in_between() {
    let bundle = with_unseen_writes();
    let note = "In between, accesses may have gone unseen: the kernel may have written here, at t";
    let text = bundle.debug(&["watch waiting", "reverse-continue", "reverse-continue"]);
    let stops: Vec<&str> = text.split("Watchpoint 1: waiting").skip(1).collect();
    assert!(
        stops[1].contains("New value = 7\n") && stops[2].contains("New value = 1\n"),
        "{text}"
    );
    // The note comes before the second stop.
    assert!(stops[1].contains(note), "{text}");
    let text = bundle.debug(&["goto start", "watch waiting", "continue", "continue"]);
    let (before, after) = text.split_once("New value = 7\n").unwrap();
    assert!(before.contains(note) && !after.contains(note), "{text}");
}

#[test]
fn changes_by_unknown_system_calls_are_writes() {
    let bundle = with_unseen_writes();
    let text = bundle.debug(&["last seen", "goto crash", "last kept"]);
    assert!(text.contains("Old value = 2\nNew value = 3\n"), "{text}");
    assert!(text.contains("in ioctl"), "{text}");
    // The core shows that no call has changed it since.
    assert!(text.contains("New value = 5\nmain () at unseen.c:20"), "{text}");
}

#[test]
fn memory_of_several_processes_is_known_at_accesses_alone() {
    let bundle = recorded("-O0", "recorded_values/shared.c");
    let text = bundle.debug(&[
        "break checkpoint if number == 1",
        "reverse-continue",
        "print *shared",
        "print own",
        "delete",
        "rwatch *shared",
        "continue",
        "goto crash",
        "history *shared",
    ]);
    // The child has written 9 by then.
    assert!(
        text.contains(
            "<unknown: memory shared with other processes; its last access here was 0x00000005, at t"
        ),
        "{text}"
    );
    // Memory of its own is not shared, also after a fork.
    assert!(text.contains("$2 = 6\n"), "{text}");
    // The load has the value of the child.
    assert!(text.contains("Read watchpoint 2: *shared\nValue = 9\n"), "{text}");
    let text = bundle.debug(&["goto start", "break checkpoint", "continue", "history *shared"]);
    assert!(
        text.contains("unseen: other processes may write this memory, which was mapped\n"),
        "{text}"
    );
    assert!(text.contains("  *shared = 5  main at shared.c:19\n"), "{text}");
}

#[test]
fn last_refuses_memory_of_several_processes() {
    let bundle = recorded("-O0", "recorded_values/shared.c");
    let path = bundle.path.to_str().unwrap();
    let at_checkpoint = ["-e", "break checkpoint if number == 1", "-e", "reverse-continue"];
    for (command, refusal) in [
        (
            "last *shared",
            "the last write of *shared is unknown: other processes may write this memory, which was mapped, at t",
        ),
        (
            "origin *shared",
            "The origin is unknown: memory shared with other processes; the last write of this process is at t",
        ),
    ] {
        let mut arguments = vec!["debug", path, "--batch"];
        arguments.extend(at_checkpoint);
        arguments.extend(["-e", command]);
        let run = backtrail(arguments).unwrap();
        let text = run.stdout + &run.stderr;
        assert!(text.contains(refusal), "{text}");
    }
}
