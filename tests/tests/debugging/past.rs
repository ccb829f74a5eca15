//! Values before the crash, where their source is known, and breakpoints on them.

use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded;
use backtrail_tests::programs::{Variant, find};
use std::ffi::OsStr;

fn bundle() -> Bundle {
    Bundle::recorded(find("past").unwrap(), Variant::Static, &["--full"]).0
}

/// Returns the answer to the last command.
fn last_answer(bundle: &Bundle, commands: &[&str]) -> String {
    let transcript = bundle.debug(commands);
    let prompt = format!("(backtrail) {}\n", commands.last().unwrap());
    transcript.rsplit_once(&prompt).unwrap().1.to_owned()
}

/// Checks that the answer to the last command contains each of `parts`.
#[track_caller]
fn says(bundle: &Bundle, commands: &[&str], parts: &[&str]) {
    let answer = last_answer(bundle, commands);
    for part in parts {
        assert!(answer.contains(part), "{commands:?}: {part} is not in\n{answer}");
    }
}

#[test]
fn code_determines_constants_strings_and_counters() {
    let bundle = bundle();
    says(
        &bundle,
        &["last take", "info args"],
        &[
            "\"last\"\n",
            "count = 7\n",
            "set by the instruction at t",
            "read-only memory of ",
        ],
    );
    let round = [
        "goto start",
        "break take",
        "continue",
        "continue",
        "continue",
        "backtrace 2",
    ];
    says(
        &bundle,
        &round,
        &["#0  take (name=0x", "\"round\", count=2) at past.c:"],
    );
    // A table that no instruction writes, and the pointer to it.
    says(
        &bundle,
        &["last weigh", "print *weight"],
        &[" = 30\n", "read-only memory of "],
    );
    says(
        &bundle,
        &["first main", "print weights"],
        &["= {10, 20, 30, 40}\n"],
    );
    // Variables that the program writes are unknown before the end.
    says(
        &bundle,
        &["last weigh", "print sink"],
        &["<unknown: the trace records control flow"],
    );
}

#[test]
fn comparison_reports_differences() {
    let bundle = bundle();
    says(
        &bundle,
        &["last told", "print code"],
        &[" = 42\n", "implied by the branch at t"],
    );
}

#[test]
fn unchanged_values_come_from_the_core() {
    let bundle = bundle();
    let at_the_crash = last_answer(&bundle, &["print $rbx"]);
    let answer = last_answer(&bundle, &["reverse-stepi", "print $rbx"]);
    let value = at_the_crash.lines().next().unwrap();
    assert_eq!(answer.lines().next(), Some(value), "{answer}");
}

#[test]
fn breakpoint_conditions_use_values() {
    let bundle = bundle();
    says(
        &bundle,
        &["goto start", "break take if count == 3", "continue"],
        &["Breakpoint 1, take (name=0x", "\"round\", count=3)"],
    );
    says(
        &bundle,
        &[
            "break take if name[0] == 'a' && $caller == told",
            "reverse-continue",
        ],
        &["Breakpoint 1, take (name=0x", "\"answer\", count=?)"],
    );
    // After its count was loaded from memory.
    says(
        &bundle,
        &[
            "goto start",
            "break take if count > 6",
            "continue",
            "info breakpoints",
        ],
        &[
            "hit 7 times",
            "stop only if count > 6\n",
            "passed 1 hit because the condition is unknown: count > 6 is <unknown: the trace records",
        ],
    );
    says(
        &bundle,
        &["break take if sink == 0", "reverse-continue"],
        &["Breakpoint 1 passed 7 hits because the condition is unknown: sink == 0 is <unknown: "],
    );
}

#[test]
fn invalid_condition_is_refused_at_once() {
    let bundle = bundle();
    for (condition, why) in [
        ("cuont == 3", "no symbol \"cuont\" in the current context"),
        ("count ==", "unexpected end of the expression"),
        ("count.x == 1", "error: "),
        ("", "the condition is incomplete"),
    ] {
        let command = format!("break take if {condition}");
        let arguments = ["debug".as_ref(), bundle.path.as_os_str()];
        let options = ["--batch", "-e", &command, "-e", "info breakpoints"].map(OsStr::new);
        let run = backtrail(arguments.into_iter().chain(options)).unwrap();
        let said = format!("{}{}", run.stdout, run.stderr);
        assert!(said.contains(why) && said.contains("No breakpoints."), "{said}");
    }
}

/// Writes a value into the trace of a bundle, as if the first instruction were PTWRITE. A PTW with
/// a FUP follows the TIP.PGE with its address (Intel SDM, volume 3, chapter "Intel Processor
/// Trace").
fn write_into_trace(bundle: &Bundle, value: u64, first: u64) {
    let mut traces = std::fs::read_dir(bundle.path.join("traces")).unwrap();
    let path = traces.next().unwrap().unwrap().path();
    let mut trace = std::fs::read(&path).unwrap();
    let address = first.to_le_bytes();
    let enabled = trace
        .windows(5)
        .position(|bytes| bytes[0] == 0x51 && bytes[1..] == address[..4])
        .unwrap();
    let mut packets = vec![0x02, 0xb2];
    packets.extend(value.to_le_bytes());
    packets.push(0xdd);
    packets.extend(address);
    trace.splice(enabled + 5..enabled + 5, packets);
    std::fs::write(&path, trace).unwrap();
}

#[test]
fn ptwrite_values_are_shown() {
    let bundle = bundle();
    says(&bundle, &["info ptwrites"], &["The program executed no PTWRITE"]);
    let first = bundle.addresses()[0];
    write_into_trace(&bundle, 0xfeed_f00d, first);
    says(
        &bundle,
        &["info ptwrites"],
        &["0x00000000feedf00d  _start  [t", "#1, "],
    );
    says(
        &bundle,
        &["goto start", "info ptwrites"],
        &["executed no PTWRITE"],
    );
}

#[test]
fn virtual_call_determines_the_class() {
    for (program, variant) in [
        ("shapes", Variant::Static),
        ("shapes", Variant::Pie),
        ("shapes_optimized", Variant::Pie),
    ] {
        let program = find(program).unwrap();
        let (bundle, _) = Bundle::recorded(program, variant, &["--full"]);
        for class in ["Square", "Oblong"] {
            says(
                &bundle,
                &[&format!("last {class}::area"), "info frame"],
                &[
                    "called at t",
                    "returns to 0x",
                    &format!("virtual call of entry 0 in the vtable of {class}\n"),
                ],
            );
        }
        let direct = last_answer(&bundle, &["last measure", "info frame"]);
        assert!(
            direct.contains("returns to 0x") && !direct.contains("virtual"),
            "{direct}"
        );
    }
}

/// The source of [`kept`].
const KEPT: &str = "values/kept.c";

/// A program with values in registers that calls preserve.
fn kept() -> Bundle {
    // Otherwise GCC keeps values in registers that its callees happen not to use.
    compiled_and_recorded("cc", &["-g", "-O2", "-fno-ipa-ra"], KEPT)
}

/// Returns a breakpoint on the line that ends with a comment.
fn at_comment(comment: &str) -> String {
    let source = std::fs::read_to_string(repository().join("tests/fixtures").join(KEPT)).unwrap();
    let end = format!("// {comment}");
    let line = source.lines().position(|line| line.ends_with(&end)).unwrap() + 1;
    format!("break kept.c:{line}")
}

#[test]
fn registers_that_calls_preserve_are_known_in_frames_of_the_crash() {
    let bundle = kept();
    // The call of `serve` had not ended.
    let prepared = at_comment("prepared");
    says(
        &bundle,
        &[&prepared, "reverse-continue", "print number"],
        &["= 7\n", "unchanged in its frame until the crash"],
    );
    // `prepare` gave the register back.
    says(
        &bundle,
        &["break prepare", "reverse-continue", "up", "print number"],
        &["= 7\n", "preserved by the calls between"],
    );
    // The register of an earlier call was overwritten after its end.
    says(
        &bundle,
        &[&prepared, "reverse-continue", "reverse-continue", "info args"],
        &["number = ?\n", "`print NAME` says why"],
    );
}

#[test]
fn unknown_values_have_that_of_the_crash_as_a_hint() {
    let bundle = kept();
    let middle = ["break prepare", "goto start", "continue", "up 2"];
    says(
        &bundle,
        &[&middle[..], &["print served"]].concat(),
        &["= <unknown: the trace records", "    <at the crash: 2>\n"],
    );
    says(
        &bundle,
        &[&middle[..], &["info locals"]].concat(),
        &["served = ?  <at the crash: 2>\n"],
    );
    // That call of `serve` ended before the crash.
    let answer = last_answer(&bundle, &["break prepare", "goto start", "continue", "info args"]);
    assert!(answer.contains("number = ?\n"), "{answer}");
    let answers = bundle.results(&[&middle[..], &["print served"]].concat());
    assert_eq!(answers[4]["value"]["at_crash"], "2");
}
