//! Values of the past that were recorded (`record --values`), against those that the program kept.

use backtrail_bundle::{Bundle as Opened, value_log};
use backtrail_tests::backtrail::{backtrail, repository};
use backtrail_tests::bundle::Bundle;
use backtrail_tests::compiled::compiled_and_recorded_with;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// The rounds of the program.
const ROUNDS: usize = 24;
/// The text of `check` for a recording whose values all replay.
const CLEAN: &str = "no faults, 0 gap(s), 0 gap(s) of values, 0 unseen change(s) of memory";
const SOURCE: &str = "recorded_values/witness.c";
/// Expressions at the beginning of `witness`, and the members that keep their values.
const EXPRESSIONS: [(&str, &str); 6] = [
    ("round", "round"),
    ("amount", "amount"),
    ("ratio", "ratio"),
    ("*item", "item"),
    ("sum", "sum"),
    ("raw", "raw"),
];

fn recorded(level: &str) -> Bundle {
    recorded_by("translate", level)
}

fn recorded_by(engine: &str, level: &str) -> Bundle {
    let flags = ["-g", level];
    compiled_and_recorded_with(&["--values", "--engine", engine], "cc", &flags, SOURCE)
}

/// Returns the values that commands print, without their numbers.
fn printed(bundle: &Bundle, commands: &[String]) -> Vec<String> {
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let text = bundle.debug(&commands);
    let values = text.lines().filter(|line| line.starts_with('$'));
    values
        .map(|line| line.split_once(" = ").unwrap().1.to_owned())
        .collect()
}

#[track_caller]
fn compare(engine: &str, level: &str) {
    let bundle = recorded_by(engine, level);
    let mut backward = vec!["break witness".to_owned()];
    let mut truth = Vec::new();
    for round in (0..ROUNDS).rev() {
        backward.push("reverse-continue".to_owned());
        for (expression, member) in EXPRESSIONS {
            backward.push(format!("print {expression}"));
            truth.push(format!("print truth[{round}].{member}"));
        }
    }
    let (ours, truth) = (printed(&bundle, &backward), printed(&bundle, &truth));
    assert_eq!(truth.len(), ROUNDS * EXPRESSIONS.len());
    assert_eq!(ours, truth, "{engine}, {level}");
    let checked = backtrail(["check".as_ref(), bundle.path.as_os_str()])
        .unwrap()
        .exited(0);
    assert!(checked.stdout.contains(" 0 gap(s) of values"), "{checked:?}");
}

#[test]
fn recorded_values_are_those_of_the_program() {
    compare("translate", "-O0");
}

#[test]
fn recorded_values_of_optimized_code_are_those_of_the_program() {
    compare("translate", "-O2");
}

#[test]
fn stacks_and_conditions_have_recorded_values() {
    let bundle = recorded("-O0");
    let text = bundle.debug(&[
        "break witness if round == 5",
        "reverse-continue",
        "backtrace",
        "up",
        "info locals",
    ]);
    assert!(text.contains("witness (round=5, amount="), "{text}");
    assert!(text.contains("round = 5"), "{text}");
    assert!(!text.contains("numbers = ?"), "{text}");
}

#[test]
fn memory_before_a_write_of_the_kernel_is_unknown() {
    let bundle = recorded("-O0");
    // The first access of `sum` is a load, and that of `raw` is the kernel's.
    let text = bundle.debug(&["goto start", "break main", "continue", "print sum", "print raw"]);
    assert!(text.contains("$1 = 0\n"), "{text}");
    assert!(text.contains("$2 = <unknown: "), "{text}");
}

#[test]
fn redacted_bundles_have_no_recorded_values() {
    let bundle = recorded("-O0");
    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("shared.btz");
    let arguments: [&OsStr; 6] = [
        "pack".as_ref(),
        bundle.path.as_os_str(),
        "--redact".as_ref(),
        "memory".as_ref(),
        "-o".as_ref(),
        packed.as_os_str(),
    ];
    let run = backtrail(arguments).unwrap();
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    let shared = Bundle::in_folder(folder, packed);
    let text = shared.debug(&["break witness", "reverse-continue", "print amount"]);
    assert!(
        text.contains("$1 = <unknown: the trace records control flow only"),
        "{text}"
    );
}

#[test]
fn single_steps_record_the_same_values() {
    compare("step", "-O0");
}

#[test]
fn values_of_system_programs_replay_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let programs: [&[&str]; 5] = [
        &["ls", "-la", "/usr/bin"],
        &["sort", "/etc/passwd"],
        &["gzip", "-c", "/bin/ls"],
        &["od", "-x", "/etc/passwd"],
        // The vdso reads memory that the kernel changes.
        &["bash", "-c", "echo $EPOCHREALTIME; echo $EPOCHREALTIME"],
    ];
    for program in programs {
        let bundle = folder.path().join(format!("{}.bundle", program[0]));
        let bundle = bundle.to_str().unwrap();
        // Each small segment begins with the registers of the processor.
        let segments = ["--values-segment", "4K"];
        let record = ["record", "--values", "--full", "-o", bundle];
        let record = record.iter().chain(&segments).chain(&["--"]);
        let run = backtrail(record.chain(program)).unwrap().exited(0);
        assert!(run.stderr.contains("exited with status 0"), "{}", run.stderr);
        let checked = backtrail(["check", bundle]).unwrap().exited(0);
        assert!(checked.stdout.contains(CLEAN), "{program:?}: {}", checked.stdout);
    }
}

#[test]
fn values_go_on_after_signals() {
    let bundle = compiled_and_recorded_with(&["--values"], "cc", &["-g"], "recorded_values/signals.c");
    let checked = backtrail(["check".as_ref(), bundle.path.as_os_str()])
        .unwrap()
        .exited(0);
    assert!(checked.stdout.contains(" 0 gap(s) of values"), "{checked:?}");
    let text = bundle.debug(&["break on_signal", "reverse-continue", "print handled"]);
    assert!(text.contains("$1 = 190"), "{text}");
    let text = bundle.debug(&["break 18", "reverse-continue", "print handled", "print sum"]);
    assert!(text.contains("$1 = 200") && text.contains("$2 = 1900"), "{text}");
}

#[test]
fn programs_that_ended_have_their_last_values() {
    let source = "recorded_values/ended.c";
    let bundle = compiled_and_recorded_with(&["--values"], "cc", &["-g"], source);
    let commands = ["print total", "print text", "print/x $rsp"].map(str::to_owned);
    let values = printed(&bundle, &commands);
    assert_eq!(values[0], "36");
    assert!(values[1].starts_with(r#""after\000"#), "{values:?}");
    assert!(values[2].starts_with("<unknown"), "{values:?}");
}

#[test]
fn segments_of_a_bundle_are_in_order() {
    let bundle = recorded("-O0");
    let opened = Opened::open(&bundle.path).unwrap();
    let process = &opened.manifest().processes[0];
    let log = opened
        .value_log(process.pid, process.threads[0].tid)
        .unwrap()
        .unwrap();
    assert!(!log.segments().is_empty());
    for segment in log.segments() {
        assert_eq!(log.content(segment).unwrap().len(), segment.size);
        assert_eq!(
            value_log::segment_of(value_log::mark(segment.number)),
            Some(segment.number)
        );
    }
}

#[test]
fn bundles_list_the_shared_memory_of_each_process() {
    let flags = ["-g", "-O0"];
    let shared = compiled_and_recorded_with(&["--values"], "cc", &flags, "recorded_values/shared.c");
    let opened = Opened::open(&shared.path).unwrap();
    let processes = &opened.manifest().processes;
    let listed = |number: usize| processes[number].shared_memory.clone().unwrap();
    let (parent, child) = (listed(0), listed(1));
    assert_eq!(
        (parent.len(), parent[0].size, parent[0].is_unseen),
        (1, 4096, false)
    );
    // No log of the child has the call.
    assert_eq!((child.len(), child[0].start), (1, parent[0].start));
    assert!(child[0].is_unseen);

    let list_of = |bundle: Bundle| {
        let opened = Opened::open(&bundle.path).unwrap();
        opened.manifest().processes[0].shared_memory.clone()
    };
    assert_eq!(list_of(recorded("-O0")), Some(Vec::new()));
    // Single steps make no list.
    assert_eq!(list_of(recorded_by("step", "-O0")), None);
}

#[test]
fn memory_mapped_before_an_attachment_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("attached");
    let source = repository().join("tests/fixtures/recorded_values/attached.c");
    let mut compiler = Command::new("cc");
    compiler.arg("-o").arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let mut child = Command::new(&program).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    let output = child.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut address).unwrap();
    let bundle = folder.path().join("attached.bundle");
    let pid = child.id().to_string();
    let options = [
        "record",
        "--values",
        "--for",
        "1s",
        "--pid",
        &pid,
        "-o",
        bundle.to_str().unwrap(),
    ];
    let run = backtrail(options);
    child.kill().unwrap();
    child.wait().unwrap();
    let _ = run.unwrap().exited(0);
    let opened = Opened::open(&bundle).unwrap();
    let listed = opened.manifest().processes[0].shared_memory.clone().unwrap();
    let found = listed
        .iter()
        .find(|range| range.start.to_string() == address.trim());
    assert_eq!(
        found.map(|range| (range.size, range.is_unseen)),
        Some((8192, true))
    );
}

#[test]
fn loads_under_masks_replay() {
    let source = "recorded_values/masks.c";
    for engine in ["translate", "step"] {
        let options = ["--values", "--values-segment", "4K", "--engine", engine];
        let bundle = compiled_and_recorded_with(&options, "cc", &["-g", "-O1"], source);
        let checked = backtrail(["check".as_ref(), bundle.path.as_os_str()])
            .unwrap()
            .exited(0);
        assert!(checked.stdout.contains(CLEAN), "{engine}: {}", checked.stdout);
        if !std::is_x86_feature_detected!("avx512bw") {
            eprintln!("the processor has no AVX-512: masks are not tested");
            return;
        }
        let mut commands = vec!["print differences", "break compared"];
        for _ in 0..60 {
            commands.extend(["reverse-continue", "print found == expected"]);
        }
        let commands: Vec<String> = commands.into_iter().map(str::to_owned).collect();
        let values = printed(&bundle, &commands);
        assert_eq!((values.len(), values[0].as_str()), (61, "0"), "{engine}");
        let equal = values[1..].iter().step_by(2);
        assert!(
            equal.clone().all(|value| value == "1" || value == "true"),
            "{values:?}"
        );
    }
}

#[test]
fn faults_under_masks_have_their_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let source = repository().join("tests/fixtures/recorded_values/masked_fault.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-o"]).arg(&program).arg(source);
    assert!(compiler.status().unwrap().success());
    let masks = ["ff00", "1", "80000000", "0", "ffffffff"];
    let native = Command::new(&program).args(masks).output().unwrap();
    let bundle = folder.path().join("bundle");
    let record = ["record", "--values", "--full", "-o"].map(OsStr::new);
    let record = record
        .iter()
        .copied()
        .chain([bundle.as_os_str(), "--".as_ref(), program.as_os_str()]);
    let run = backtrail(record.chain(masks.map(OsStr::new))).unwrap().exited(0);
    assert_eq!(run.stdout, String::from_utf8(native.stdout).unwrap());
    let checked = backtrail(["check".as_ref(), bundle.as_os_str()])
        .unwrap()
        .exited(0);
    assert!(checked.stdout.contains(CLEAN), "{}", checked.stdout);
}

/// Each small segment begins with the registers of the processor, which `check` compares.
#[test]
fn values_of_a_go_program_replay_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("meters");
    let mut compiler = Command::new("go");
    let built = compiler
        .args(["build", "-o"])
        .arg(&program)
        .arg(repository().join("tests/fixtures/locals/meters.go"))
        .envs([("GO111MODULE", "off"), ("CGO_ENABLED", "0")])
        .env("HOME", folder.path())
        .env("GOCACHE", folder.path().join("cache"))
        .output();
    let Ok(built) = built else {
        eprintln!("skipped: no go on this machine");
        return;
    };
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let bundle = folder.path().join("bundle");
    let options = ["record", "--values", "--values-segment", "4K", "--full", "-o"];
    let options = options.map(OsStr::new).into_iter();
    let words = [bundle.as_os_str(), "--".as_ref(), program.as_os_str()];
    let _ = backtrail(options.chain(words)).unwrap().exited(0);
    let checked = backtrail(["check".as_ref(), bundle.as_os_str()])
        .unwrap()
        .exited(0);
    assert!(checked.stdout.contains(CLEAN), "{}", checked.stdout);
}
