//! Stacks from cores, against GDB's. Stacks from a core and a partial trace, against a whole trace.

use backtrail_tests::backtrail::backtrail;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// The compared part of a frame, which a core alone determines.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Frame {
    pc: u64,
    /// The name without parameters.
    function: Option<String>,
    /// Whether this frame handles a signal that interrupted the next frame.
    signal_handler: bool,
}

/// GDB's names of the types of frames.
const TAIL_CALL: &str = "3";
const SIGNAL: &str = "4";

const GDB_SCRIPT: &str = "
import gdb
frame = gdb.newest_frame()
while frame:
    print('FRAME', frame.type(), frame.pc(), frame.name() or '?')
    frame = frame.older()
";

fn plain(name: &str) -> String {
    name.split('(').next().unwrap().to_owned()
}

/// Returns whether GDB is installed, or prints that it is missing.
fn have_gdb() -> bool {
    let found = Command::new("gdb").arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no gdb on this machine");
    }
    found
}

/// Returns the stack of a thread by GDB, without the callers that GDB assumes to have jumped.
fn by_gdb(executable: &Path, core: &Path, tid: Option<u64>) -> Vec<Frame> {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("frames.py");
    std::fs::write(&script, GDB_SCRIPT).unwrap();
    let select = tid.map_or("info inferiors".to_owned(), |tid| {
        format!("python [t.switch() for t in gdb.selected_inferior().threads() if t.ptid[1] == {tid} or t.ptid[2] == {tid}]")
    });
    let output = Command::new("gdb")
        .args(["-nx", "-q", "-batch", "-ex", "set debuginfod enabled off"])
        .args([
            "-ex",
            "set backtrace past-main on",
            "-ex",
            "set backtrace past-entry on",
        ])
        .args(["-ex", "set backtrace limit 5000", "-ex"])
        .arg(format!("file {}", executable.display()))
        .arg("-ex")
        .arg(format!("core-file {}", core.display()))
        .args(["-ex", &select, "-ex"])
        .arg(format!("source {}", script.display()))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut frames: Vec<Frame> = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("FRAME ")) {
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().unwrap();
        let (kind, pc, name) = (word(), word().parse().unwrap(), word());
        match kind {
            TAIL_CALL => {}
            SIGNAL => frames.last_mut().unwrap().signal_handler = true,
            _ => frames.push(Frame {
                pc,
                function: (name != "?").then(|| plain(name)),
                signal_handler: false,
            }),
        }
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!frames.is_empty(), "{text}\n{errors}");
    frames
}

/// Returns the results of commands, in order.
fn answers(path: &Path, commands: &[&str]) -> Vec<Value> {
    let mut arguments = vec!["debug".as_ref(), path.as_os_str()];
    arguments.extend(["--batch", "--json"].map(std::ffi::OsStr::new));
    for command in commands {
        arguments.extend(["-e", command].map(std::ffi::OsStr::new));
    }
    let run = backtrail(arguments).unwrap().exited(0);
    // The first line names the schema.
    let lines = run.stdout.lines().skip(1);
    let answers = lines.map(|line| serde_json::from_str(line).unwrap());
    answers.map(|mut answer: Value| answer["result"].take()).collect()
}

/// Returns the frames of an answer, except callers that jumped, which have no frame on the stack.
fn frames(stack: &Value) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    for frame in stack["frames"].as_array().unwrap() {
        if frame["tail_caller"] == true || is_copy_in_tail_caller(frame, stack) {
            continue;
        }
        frames.push(Frame {
            pc: frame["pc"].as_u64().unwrap(),
            function: frame["function"].as_str().map(plain),
            signal_handler: frame["signal_handler"] == true,
        });
    }
    frames
}

/// Returns whether the frame is a copy inlined into a caller that jumped.
fn is_copy_in_tail_caller(frame: &Value, stack: &Value) -> bool {
    let later = stack["frames"].as_array().unwrap().iter();
    let mut later = later.skip(frame["number"].as_u64().unwrap() as usize);
    frame["inlined"] == true
        && later
            .find(|frame| frame["inlined"] == false)
            .is_some_and(|frame| frame["tail_caller"] == true)
}

fn of_core(stack: &Value) -> usize {
    let frames = stack["frames"].as_array().unwrap().iter();
    frames.filter(|frame| frame["from"] == "core").count()
}

fn recorded(name: &str, variant: Variant, options: &[&str]) -> Bundle {
    Bundle::recorded(find(name).unwrap(), variant, options).0
}

/// Checks that the stacks from the core alone and from the trace at the crash are GDB's.
fn compare_with_gdb(name: &str, variant: Variant) {
    if !have_gdb() {
        return;
    }
    let bundle = recorded(name, variant, &["--full"]);
    let core = bundle.path.join("core");
    let executable = backtrail_tests::built(name, variant).unwrap();
    let mut expected = by_gdb(&executable, &core, None);
    let [stack] = &answers(&core, &["backtrace 5000"])[..] else {
        panic!("one answer")
    };
    let [joined] = &answers(&bundle.path, &["backtrace 5000"])[..] else {
        panic!("one answer")
    };
    let (mut alone, mut joined) = (frames(stack), frames(joined));
    if variant != Variant::Pie || name == "lease" {
        // Several names for one address may differ, and Rust's generic arguments are written
        // differently.
        for frame in expected.iter_mut().chain(&mut alone).chain(&mut joined) {
            frame.function = None;
        }
    }
    assert_eq!(alone, expected, "{name} {}", variant.name());
    assert_eq!(joined, expected, "{name} {}", variant.name());
    assert_eq!(stack["unknown_beyond"], Value::Null, "{name}");
    assert_eq!(of_core(stack), stack["frames"].as_array().unwrap().len());
}

#[test]
fn stack_of_a_simple_crash() {
    compare_with_gdb("crash_null", Variant::Pie);
    compare_with_gdb("crash_null", Variant::Static);
}

#[test]
fn stack_without_frame_pointers_in_a_c_library_callback() {
    compare_with_gdb("crash_compare", Variant::Pie);
    compare_with_gdb("crash_compare", Variant::Static);
}

#[test]
fn stack_of_a_crash_in_a_handler_on_its_own_stack() {
    compare_with_gdb("crash_handler", Variant::Pie);
    compare_with_gdb("crash_handler", Variant::Static);
}

#[test]
fn stack_of_a_crash_whose_handler_returned() {
    compare_with_gdb("crash_again", Variant::Pie);
    compare_with_gdb("crash_again", Variant::Static);
}

#[test]
fn stack_of_an_abort_in_the_c_library() {
    compare_with_gdb("crash_abort", Variant::Pie);
    compare_with_gdb("crash_free", Variant::NoPie);
}

#[test]
fn stack_of_an_uncaught_exception() {
    compare_with_gdb("terminate", Variant::Pie);
    compare_with_gdb("terminate", Variant::StaticPie);
}

#[test]
fn stack_of_a_panic_in_rust() {
    compare_with_gdb("lease", Variant::Pie);
}

#[test]
fn stack_of_a_thread_that_outlives_the_first() {
    compare_with_gdb("leader_ends", Variant::Pie);
}

#[test]
fn stack_of_a_forbidden_system_call() {
    compare_with_gdb("forbidden", Variant::Pie);
}

/// A handler that continued in the interrupted code did not leave the calls around it, even without
/// symbols for that code.
#[test]
fn stack_after_a_handler_skipped_code_without_symbols() {
    compare_with_gdb("skipped", Variant::Pie);
    let bundle = recorded("skipped", Variant::Pie, &["--full"]);
    let said = bundle.debug(&[
        "count probe",
        "callers outer",
        "frame function outer",
        "reverse-finish",
    ]);
    assert!(said.contains("probe: 1 call\n"), "{said}");
    assert!(said.contains("1  main at skipped.c"), "{said}");
    assert!(said.contains("call   "), "{said}");
}

#[test]
fn stack_of_inlined_copies() {
    compare_with_gdb("inlined", Variant::Pie);
}

#[test]
fn stack_of_a_call_through_a_wild_pointer() {
    compare_with_gdb("crash_jump", Variant::Pie);
    let bundle = recorded("crash_jump", Variant::Pie, &["--full"]);
    let said = |path: &Path| {
        let [stack] = &answers(path, &["backtrace"])[..] else {
            panic!("one answer")
        };
        stack["frames"][0]["called_through_bad_pointer"] == true
    };
    assert!(
        said(&bundle.path.join("core")),
        "a core does not know that it was a call"
    );
    assert!(!said(&bundle.path), "the trace does");
}

#[test]
fn stack_through_code_without_unwind_information() {
    // Frames of generated code are found by the code that ran in it. GDB has no or wrong callers
    // there.
    for (name, innermost) in [("made", &["store", "??"][..]), ("made_inside", &["??"])] {
        let bundle = recorded(name, Variant::Pie, &["--full"]);
        let select = format!("frame {}", innermost.len());
        let all = answers(
            &bundle.path,
            &[
                "backtrace",
                &select,
                "print value",
                "print seen",
                "up",
                "print code == 0",
            ],
        );
        let [stack, _, value, seen, _, code] = &all[..] else {
            panic!("six answers")
        };
        assert_eq!(stack["unknown_beyond"], Value::Null, "{name}");
        let shown = frames(stack)
            .into_iter()
            .map(|frame| frame.function.unwrap_or("??".to_owned()));
        let expected = innermost.iter().copied().chain(["use", "main"]);
        let count = innermost.len() + 2;
        assert_eq!(
            shown.take(count).collect::<Vec<_>>(),
            expected.collect::<Vec<_>>()
        );
        let text = [value, seen, code].map(|value| value["value"]["text"].as_str().unwrap().to_owned());
        assert_eq!(text, ["41", "42", "0"], "{name}");
    }
}

#[test]
fn stack_of_every_thread() {
    if !have_gdb() {
        return;
    }
    let bundle = recorded("thread_crash", Variant::Pie, &["--full"]);
    let core = bundle.path.join("core");
    let executable = backtrail_tests::built("thread_crash", Variant::Pie).unwrap();
    let [threads] = &answers(&core, &["info threads"])[..] else {
        panic!("one answer")
    };
    let threads = threads["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 3);
    for thread in threads {
        let tid = thread["tid"].as_u64().unwrap();
        let commands = [&*format!("thread {tid}"), "backtrace"];
        let stack = &answers(&core, &commands)[1];
        assert_eq!(frames(stack), by_gdb(&executable, &core, Some(tid)), "{tid}");
        let joined = &answers(&bundle.path, &commands)[1];
        assert_eq!(frames(joined), frames(stack), "{tid}");
    }
}

#[test]
fn stack_ends_where_it_was_overwritten() {
    let bundle = recorded("crash_smash", Variant::Pie, &["--full"]);
    let [stack] = &answers(&bundle.path.join("core"), &["backtrace"])[..] else {
        panic!("one answer")
    };
    assert_eq!(frames(stack).len(), 1, "{stack}");
    let why = stack["unknown_beyond"].as_str().unwrap();
    assert!(why.contains("0x414141414141 is no code"), "{why}");
    // The trace still has the callers.
    let [stack] = &answers(&bundle.path, &["backtrace"])[..] else {
        panic!("one answer")
    };
    assert!(frames(stack).len() > 2, "{stack}");
    assert_eq!(frames(stack)[1].function.as_deref(), Some("main"), "{stack}");
}

#[test]
fn return_to_a_non_canonical_address_is_a_crash() {
    for engine in ["translate", "step"] {
        let executable = backtrail_tests::build(find("crash_smash").unwrap(), Variant::Pie).unwrap();
        let rest: [&OsStr; 3] = ["--".as_ref(), executable.as_ref(), "wild".as_ref()];
        let (bundle, _) = Bundle::made(&["record", "--full", "--engine", engine], &rest);
        let transcript = bundle.debug(&["crash", "reverse-step", "reverse-finish"]);
        assert!(transcript.contains("SIGSEGV"), "{engine}: {transcript}");
        for line in ["main () at crash_smash.c:", "return (int)buffer[1];"] {
            assert!(transcript.contains(line), "{engine}: {transcript}");
        }
    }
}

#[test]
fn backtrace_shows_at_most_the_requested_frames() {
    let bundle = recorded("crash_late", Variant::Pie, &["--ring", "8K"]);
    let [stack] = &answers(&bundle.path, &["backtrace 3"])[..] else {
        panic!("one answer")
    };
    assert_eq!(stack["frames"].as_array().unwrap().len(), 3);
    assert_eq!(stack["unknown_beyond"], Value::Null, "the others are known");
}

#[test]
fn the_stack_of_an_endless_recursion_is_whole() {
    if !have_gdb() {
        return;
    }
    let bundle = recorded("crash_stack", Variant::Pie, &["--full"]);
    let core = bundle.path.join("core");
    let [stack] = &answers(&core, &["backtrace 5000"])[..] else {
        panic!("one answer")
    };
    let executable = backtrail_tests::built("crash_stack", Variant::Pie).unwrap();
    assert_eq!(frames(stack), by_gdb(&executable, &core, None));
}

/// Returns the thread that crashed and the length of its history.
fn end(bundle: &Bundle) -> (u64, u64) {
    let [when] = &answers(&bundle.path, &["when"])[..] else {
        panic!("one answer")
    };
    (when["thread"].as_u64().unwrap(), when["of"].as_u64().unwrap())
}

/// Returns the stacks at these numbers of instructions before the end.
fn stacks(bundle: &Bundle, before: &[u64]) -> Vec<Value> {
    let (tid, len) = end(bundle);
    let goto: Vec<String> = before
        .iter()
        .map(|before| format!("goto t{tid}#{}", len - before))
        .collect();
    let commands: Vec<&str> = goto.iter().flat_map(|goto| [&**goto, "backtrace 5000"]).collect();
    let mut answers = answers(&bundle.path, &commands).into_iter();
    std::iter::from_fn(|| answers.by_ref().nth(1)).collect()
}

/// Returns positions in a history of `len` instructions, counted from its end.
fn spread(len: u64, count: u64) -> Vec<u64> {
    (0..count).map(|part| len * part / (count - 1)).collect()
}

#[test]
fn frames_lost_by_the_ring_come_from_the_core() {
    for variant in [Variant::Pie, Variant::Static] {
        let whole = recorded("crash_late", variant, &["--full", "--no-aslr"]);
        let ring = recorded("crash_late", variant, &["--ring", "8K", "--no-aslr"]);
        let (kept, all) = (end(&ring).1, end(&whole).1);
        assert!(
            kept < all * 9 / 10,
            "{kept} of {all}: history begins in the middle"
        );
        let positions = spread(kept, 12);
        let (by_trace, joined) = (stacks(&whole, &positions), stacks(&ring, &positions));
        for (at, (by_trace, joined)) in positions.iter().zip(by_trace.iter().zip(&joined)) {
            assert_eq!(of_core(by_trace), 0, "{at}: the trace alone knows all");
            assert!(of_core(joined) >= 5, "{at}: {joined}");
            assert_eq!(frames(joined), frames(by_trace), "{at}");
            assert_eq!(joined["unknown_beyond"], Value::Null, "{at}");
        }
        let text = ring.debug(&["backtrace"]);
        assert!(text.contains("read from the core"), "{text}");
    }
}

/// With any amount of history, at any position, every frame is also in the stack of the whole
/// history.
#[test]
fn no_frame_is_wrong() {
    for name in [
        "crash_late",
        "crash_handler",
        "crash_compare",
        "crash_free",
        "crash_jump",
        "ledger",
    ] {
        let whole = recorded(name, Variant::Pie, &["--full", "--no-aslr"]);
        for size in ["4K", "5K", "6K", "12K"] {
            let ring = recorded(name, Variant::Pie, &["--ring", size, "--no-aslr"]);
            let kept = end(&ring).1;
            let positions = spread(kept, 15);
            for (at, (by_trace, joined)) in positions
                .iter()
                .zip(stacks(&whole, &positions).iter().zip(&stacks(&ring, &positions)))
            {
                let (by_trace, here) = (frames(by_trace), frames(joined));
                let place = format!("{name}, ring {size}, {at} before the end of {kept}");
                assert!(by_trace.starts_with(&here), "{place}:\n{joined}\n{by_trace:#?}");
                let complete = joined["unknown_beyond"] == Value::Null;
                assert!(!complete || by_trace.len() == here.len(), "{place}");
                assert!(
                    complete || *at > 0,
                    "{place}: all is known at the crash: {joined}"
                );
            }
        }
    }
}
