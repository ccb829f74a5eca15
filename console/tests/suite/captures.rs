//! Sessions on real captures: crashes as they came from production, and traces of LLDB's tests.

use crate::support::{self, hase, lldb};

/// Returns the answer of a command in a transcript.
fn answer<'a>(transcript: &'a str, command: &str) -> &'a str {
    let begin = transcript.find(&format!("(backtrail) {command}\n")).unwrap();
    let rest = &transcript[begin..];
    let text = rest.split_once('\n').unwrap().1;
    text.split("(backtrail)").next().unwrap()
}

#[test]
fn control_flow_shows_its_crash_and_walks_back_from_it() {
    let Some(bundle) = hase("control_flow") else {
        return;
    };
    let transcript = bundle.batch(&[
        "backtrace",
        "print $rip",
        "when",
        "reverse-stepi",
        "goto crash",
        "reverse-step",
        "print $rax",
        "goto crash",
        "break raise",
        "reverse-continue",
        "history 3",
        "reverse-finish",
        "callers raise",
        "count raise",
    ]);
    let backtrace = answer(&transcript, "backtrace");
    for function in [
        "raise (sig=6) at raise.c",
        "main (argc=?, argv=?) at control_flow.c:32",
        "_start ()",
    ] {
        assert!(backtrace.contains(function), "{backtrace}");
    }
    assert!(answer(&transcript, "print $rip").contains("0x400a07"));
    assert!(answer(&transcript, "when").contains("instruction 1092 of 1092"));
    assert!(answer(&transcript, "reverse-stepi").contains("0x0000000000400a05 in "));
    assert!(answer(&transcript, "reverse-step").contains(" () at syscall_arch.h:38"));
    assert!(answer(&transcript, "print $rax").contains("<unknown: "));
    assert!(answer(&transcript, "reverse-continue").starts_with("Breakpoint 1, "));
    let history = answer(&transcript, "history 3");
    let lines: Vec<&str> = history
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(lines.contains(&"32"), "{history}");
    assert!(answer(&transcript, "reverse-finish").contains("=> 0x4001f5 <main+117>:\tcall"));
    assert!(answer(&transcript, "callers raise").contains("main at control_flow.c:32"));
    assert_eq!(answer(&transcript, "count raise"), "raise: 1 call\n");
}

#[test]
fn loopy_ends_where_the_core_says() {
    let Some(bundle) = hase("loopy") else { return };
    let transcript = bundle.batch(&["print $rip", "info registers r8", "reverse-stepi", "print $r8"]);
    assert!(
        answer(&transcript, "print $rip").contains("0x400135"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "info registers r8").ends_with(" 0x1\n"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "reverse-stepi").contains("=> 0x400133 <exit+26>:\tsyscall"),
        "{transcript}"
    );
    let before = answer(&transcript, "print $r8");
    assert!(before.starts_with("$2 = 1\n"), "{transcript}");
    assert!(before.contains("implied by the branch at t"), "{transcript}");
}

#[test]
fn a_gap_stops_in_both_directions_and_is_crossed_going_on() {
    let Some(bundle) = lldb("intelpt-trace-multi-file/multi-file-no-ld.json") else {
        return;
    };
    let transcript = bundle.batch(&[
        "goto start",
        "continue",
        "reverse-stepi",
        "goto end",
        "reverse-continue",
    ]);
    assert!(
        answer(&transcript, "continue")
            .starts_with("History has a gap directly before this position: no code bytes for")
    );
    assert!(
        answer(&transcript, "reverse-stepi").starts_with("Crossed a gap in history"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "reverse-continue")
            .starts_with("History has a gap directly before this position")
    );
}

#[test]
fn json_answers_are_records_of_the_schema() {
    let Some(bundle) = hase("control_flow") else {
        return;
    };
    let mut out = Vec::new();
    let options = backtrail_console::batch::BatchOptions {
        json: true,
        ..Default::default()
    };
    let watch = backtrail_decoder::Watch::none();
    let failed = backtrail_console::batch::run(
        bundle.session(),
        ["reverse-step", "nonsense"],
        options,
        &watch,
        &mut out,
    );
    assert_eq!(failed.unwrap(), 1);
    let text = String::from_utf8(out).unwrap();
    let records: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records[0]["schema"], "backtrail-debug/1");
    assert_eq!(records[1]["command"], "reverse-step");
    assert_eq!(records[1]["result"]["kind"], "stop");
    assert_eq!(records[1]["result"]["reason"], "done");
    assert_eq!(records[1]["result"]["place"]["frame"]["line"], 38);
    assert_eq!(records[2]["ok"], false);
    assert!(records[2]["error"].as_str().unwrap().contains("help"));
}

#[test]
fn threads_of_a_per_cpu_trace_are_separated() {
    let Some(bundle) = lldb("intelpt-multi-core-trace/trace.json") else {
        return;
    };
    let transcript = bundle.batch(&[
        "info threads",
        "thread 3497497",
        "backtrace",
        "thread 1",
        "thread 9",
    ]);
    assert!(
        answer(&transcript, "info threads").contains("3497496"),
        "{transcript}"
    );
    assert!(answer(&transcript, "backtrace").contains("bar()"), "{transcript}");
    // The first one, as GDB counts.
    assert!(answer(&transcript, "thread 1").contains("foo()"), "{transcript}");
    assert!(
        answer(&transcript, "thread 9").contains("`info threads`"),
        "{transcript}"
    );
}

#[test]
fn a_core_alone_shows_the_state_at_the_crash_and_has_no_history() {
    let Some(core) = support::capture("hase/20180404/loopy/loopy-20180404T162955.coredump") else {
        return;
    };
    let session =
        backtrail_debugger::Session::open(&core, &Default::default(), &backtrail_decoder::Watch::none());
    let mut out = Vec::new();
    let options = backtrail_console::batch::BatchOptions {
        echo: true,
        ..Default::default()
    };
    let commands = [
        "crash",
        "backtrace",
        "print $r8",
        "reverse-step",
        "calls",
        "history",
    ];
    let watch = backtrail_decoder::Watch::none();
    backtrail_console::batch::run(session.unwrap(), commands, options, &watch, &mut out).unwrap();
    let transcript = String::from_utf8(out).unwrap();
    assert!(
        answer(&transcript, "crash").contains("no history"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "backtrace").contains("0x0000000000400135"),
        "{transcript}"
    );
    assert!(
        answer(&transcript, "print $r8").trim_end().ends_with(" = 1"),
        "{transcript}"
    );
    for command in ["reverse-step", "calls", "history"] {
        assert!(
            answer(&transcript, command).contains("no history"),
            "{transcript}"
        );
    }
}
