//! A trace that is decoded from its end first answers every command as after decoding all of it.

use backtrail_console::batch::{self, BatchOptions};
use backtrail_debugger::{OpenOptions, Session};
use backtrail_decoder::Watch;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Variant, find};
use serde_json::Value;
use std::ffi::OsStr;

/// Command sequences that start at the crash.
const SCRIPTS: &[&[&str]] = &[
    &[
        "backtrace",
        "reverse-step",
        "backtrace",
        "up",
        "list",
        "reverse-finish",
        "finish",
    ],
    &[
        "reverse-stepi 300",
        "backtrace 3",
        "stepi 20",
        "reverse-nexti 10",
        "nexti 3",
        "back",
        "back",
        "forward",
    ],
    &["reverse-next 4", "reverse-next 40", "next 2", "reverse-next 4000"],
    &[
        "reverse-step 25",
        "reverse-finish",
        "reverse-finish",
        "reverse-finish",
        "finish",
        "step 3",
    ],
    &[
        "calls",
        "reverse-step 30",
        "calls --depth 4",
        "calls all --limit 20",
    ],
    &[
        "history 5",
        "history 400",
        "bookmark here",
        "goto start",
        "stepi 3",
        "goto here",
    ],
    &[
        "break main",
        "reverse-continue",
        "info breakpoints",
        "continue",
        "reverse-continue",
    ],
    &[
        "rbreak .*",
        "reverse-continue",
        "reverse-continue",
        "reverse-continue",
        "reverse-step 2",
        "continue",
    ],
    &[
        "goto #-100",
        "goto #-999999999",
        "goto #5",
        "goto t1#5",
        "goto c#-3",
        "goto c3",
    ],
    &["count main", "callers main", "search a"],
    &[
        "first main",
        "last main",
        "back",
        "list --counts main",
        "run-to-call 1 of main",
    ],
    &[
        "last main",
        "latency main",
        "slowest /^m/ 3",
        "timeline main",
        "timeline --from @-1us",
        "timeline main --from @-1us --to crash",
        "thread apply all backtrace 2",
    ],
    &[
        "break main if caller != nobody && $instructions > 0",
        "commands",
        "backtrace 1",
        "end",
        "reverse-continue",
    ],
    &["search m", "reverse-continue", "info threads", "info gaps"],
    &[
        "tbreak main",
        "reverse-stepi 200",
        "condition 1 caller == nobody",
        "reverse-continue",
        "disassemble",
    ],
    &["goto @-1us", "goto @-10s", "info locals", "print $rip", "thread"],
    &[
        "reverse-step 3",
        "info registers",
        "up",
        "info registers",
        "reverse-finish",
        "info registers",
    ],
];

/// Returns the answers to commands.
fn answers(bundle: &Bundle, first: u64, commands: &[&str]) -> Vec<Value> {
    let options = OpenOptions {
        first: Some(first),
        ..OpenOptions::default()
    };
    let session = Session::open(&bundle.path, &options, &Watch::none()).unwrap();
    assert!(session.is_partial());
    let options = BatchOptions {
        json: true,
        ..BatchOptions::default()
    };
    let mut out = Vec::new();
    batch::run(
        session,
        commands.iter().copied(),
        options,
        &Watch::none(),
        &mut out,
    )
    .unwrap();
    let lines = std::str::from_utf8(&out).unwrap().lines().skip(1);
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Removes what is still unknown: the name of a call whose beginning is not decoded, and the length
/// of the history.
fn without_unknown(lazily: &Value, at_once: &mut Value) {
    match (lazily, at_once) {
        (Value::Object(lazily), Value::Object(at_once)) => {
            for (key, value) in at_once {
                match lazily.get(key) {
                    Some(Value::Null) if matches!(key.as_str(), "call" | "of") => *value = Value::Null,
                    Some(known) => without_unknown(known, value),
                    None => {}
                }
            }
        }
        (Value::Array(lazily), Value::Array(at_once)) => {
            for (known, value) in lazily.iter().zip(at_once) {
                without_unknown(known, value);
            }
        }
        _ => {}
    }
}

#[track_caller]
fn hold_in(name: &str, variant: Variant) {
    let (bundle, _) = Bundle::recorded(find(name).unwrap(), variant, &["--full"]);
    let bytes = std::fs::read_dir(bundle.path.join("traces"));
    let bytes: u64 = bytes
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .max()
        .unwrap();
    for first in [bytes / 5, bytes / 40, 64] {
        for script in SCRIPTS {
            let lazily = answers(&bundle, first, script);
            let after_all: Vec<&str> = ["goto start", "goto end"]
                .iter()
                .chain(*script)
                .copied()
                .collect();
            let mut at_once = answers(&bundle, first, &after_all);
            assert_eq!(lazily.len() + 2, at_once.len());
            for (lazily, at_once) in lazily.iter().zip(&mut at_once[2..]) {
                without_unknown(lazily, at_once);
                assert_eq!(
                    lazily, at_once,
                    "{name}, {first} of {bytes} bytes first, {script:?}"
                );
            }
        }
    }
}

macro_rules! programs {
    ($($name:ident $variant:ident;)*) => {
        $(
            #[test]
            fn $name() {
                hold_in(stringify!($name), Variant::$variant);
            }
        )*
    };
}

programs! {
    crash_abort Static;
    dispatch Pie;
    exception StaticPie;
    inlined Static;
    lazy NoPie;
    lease Static;
    ledger Static;
    longjmp Static;
    recursion Static;
    sigaltstack Static;
    tailcall Static;
    terminate StaticPie;
    unwind Static;
}

#[test]
fn a_long_trace_by_the_command_line() {
    let program = "i=0; while [ $i -lt 12000 ]; do i=$((i+1)); done; kill -SEGV $$";
    let rest = ["--", "sh", "-c", program].map(OsStr::new);
    let (bundle, _) = Bundle::made(&["record", "--full"], &rest);
    let transcript = bundle.debug(&[
        "crash",
        "when",
        "reverse-stepi 5",
        "back",
        "goto start",
        "when",
        "goto #0",
    ]);
    let answer = |command: &str| {
        let (_, rest) = transcript
            .split_once(&format!("(backtrail) {command}\n"))
            .unwrap();
        rest.split("(backtrail) ").next().unwrap()
    };
    assert!(answer("crash").contains(" crashed: SIGSEGV "), "{transcript}");
    assert!(
        answer("when").contains(", 0 instructions before the end\n"),
        "{transcript}"
    );
    assert!(answer("reverse-stepi 5").contains("#-5,"), "{transcript}");
    // The whole trace is decoded now. The start has a number, and the end agrees with it.
    let start = answer("goto start");
    let number = start.split_once("#-").unwrap().1;
    let number = number.split(|c: char| !c.is_ascii_digit()).next().unwrap();
    let instructions = &bundle.info()["threads"][0]["instructions"];
    assert_eq!(instructions.to_string(), number, "{transcript}");
    assert!(transcript.contains(&format!("{number} instructions before the end of {number}\n")));
    assert_eq!(answer("goto #0"), start);
}
