//! Programs that watch what a tracer changes behave as they do without the recorder.

use backtrail_tests::backtrail::{binary, command};
use backtrail_tests::build;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ENGINES: [&str; 2] = ["translate", "step"];
/// Programs with a loop that fills a log take too long in single steps.
const TRANSLATE: [&str; 1] = ["translate"];

const fn program(name: &'static str, source: &'static str, flags: &'static [&'static str]) -> Program {
    Program {
        name,
        source,
        flags,
        variants: &[Variant::Pie],
        ending: Ending::Exit(0),
        deterministic: false,
    }
}

const UNMAPPED: Program = program("unmapped", "../transparency/unmapped.c", &["-O1", "-pthread"]);
const OWNER: Program = program("owner", "../transparency/owner.c", &["-O1", "-pthread"]);
const ADDRESSES: Program = program("addresses", "../transparency/addresses.c", &["-O1", "-pthread"]);
const MASKS: Program = program("masks", "../transparency/masks.c", &["-O1", "-pthread", "-w"]);
const WAITS: Program = program("waits", "../transparency/waits.c", &["-O1", "-pthread", "-w"]);
const TRAPPED: Program = program("trapped", "../transparency/trapped.c", &["-O1"]);
const UNDUMPABLE: Program = program("undumpable", "../transparency/undumpable.c", &["-O1", "-pthread"]);
const X87: Program = program("x87", "../transparency/x87.c", &["-O1"]);
const TRACED: Program = program("traced", "../transparency/traced.c", &["-O1", "-w"]);

#[track_caller]
fn built(program: &Program) -> PathBuf {
    build(program, Variant::Pie).unwrap()
}

/// Records a program, which must print the same as without the recorder, in a trace without gaps.
/// Returns the notes of the recording.
#[track_caller]
fn same_output(program: &Program, engine: &str, arguments: &[&str]) -> Vec<String> {
    let executable = built(program);
    let native = Command::new(&executable)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut rest = vec!["--".as_ref(), executable.as_os_str()];
    rest.extend(
        arguments
            .iter()
            .map(|argument| AsRef::<std::ffi::OsStr>::as_ref(*argument)),
    );
    let (bundle, run) = Bundle::made(&["record", "--engine", engine], &rest);
    let native = String::from_utf8_lossy(&native.stdout);
    assert_eq!(run.stdout, native, "{engine} {arguments:?}: {}", run.stderr);
    notes_of(&bundle)
}

/// Returns the notes of a recording, whose threads must have no gaps.
#[track_caller]
fn notes_of(bundle: &Bundle) -> Vec<String> {
    let info = bundle.info();
    for thread in info["threads"].as_array().unwrap() {
        let faults = (thread["gaps"].as_u64(), thread["errors"].as_u64());
        assert_eq!(faults, (Some(0), Some(0)), "{thread}");
    }
    let notes = info["notes"].as_array().cloned().unwrap_or_default();
    notes
        .iter()
        .map(|note| note.as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn vdso_may_be_unmapped_or_moved() {
    for engine in ENGINES {
        for way in ["unmap", "move", "protect"] {
            same_output(&UNMAPPED, engine, &["0", way]);
        }
    }
}

#[test]
fn process_without_vdso_can_be_attached_to() {
    let executable = built(&UNMAPPED);
    binary().unwrap();
    let process = Command::new(&executable)
        .arg("3000")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let pid = process.id().to_string();
    let (bundle, _) = Bundle::made(&["record", "--pid", &pid, "--for", "500ms"], &[]);
    assert_eq!(notes_of(&bundle), Vec::<String>::new());
    let output = process.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert_eq!(printed, "ready\nsum 20, signal 10, child 7\n");
}

#[test]
fn recorder_memory_moves_out_of_the_way() {
    for way in [
        "fixed",
        "noreplace",
        "hint",
        "unmap",
        "protect",
        "move",
        "shm",
        "threads",
        "child",
    ] {
        let notes = same_output(&OWNER, "translate", &[way]);
        assert_eq!(notes, Vec::<String>::new(), "{way}");
    }
}

#[test]
fn code_without_free_addresses_nearby_is_stepped() {
    let notes = same_output(&OWNER, "translate", &["reserve"]);
    assert!(
        matches!(&notes[..], [note] if note.contains("has no free addresses near some of its code")),
        "{notes:?}"
    );
}

#[test]
fn kernel_sees_original_syscall_addresses() {
    for engine in ENGINES {
        for way in ["dispatch", "filter", "seccomp", "inherited", "trap", "listener"] {
            same_output(&ADDRESSES, engine, &[way]);
        }
    }
}

/// Returns whether the processor has AMD's architecture.
fn is_amd() -> bool {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap();
    processor.contains("AuthenticAMD") || processor.contains("HygonGenuine")
}

#[test]
fn x87_instruction_pointer_is_the_original() {
    for engine in ENGINES {
        // AMD's processors save the address with pending exceptions only (APM volume 2, FXSAVE), so
        // that a switch of threads loses it.
        if !is_amd() {
            same_output(&X87, engine, &[]);
            continue;
        }
        let executable = built(&X87);
        let (bundle, run) = Bundle::made(
            &["record", "--engine", engine],
            &["--".as_ref(), executable.as_os_str()],
        );
        assert_eq!(run.stdout.lines().count(), 10, "{run:?}");
        assert!(!run.stdout.contains("wrong"), "{run:?}");
        assert_eq!(notes_of(&bundle), Vec::<String>::new());
    }
}

#[test]
fn signal_masks_and_handlers_survive_traps() {
    for engine in ENGINES {
        same_output(&MASKS, engine, &[]);
    }
    // A full log is a fault, in a thread that blocks SIGSEGV.
    for engine in TRANSLATE {
        same_output(&MASKS, engine, &["20000000"]);
    }
}

#[test]
fn waits_with_another_mask_get_their_signals() {
    for engine in ENGINES {
        same_output(&WAITS, engine, &[]);
        // Every system call is a step then.
        same_output(&WAITS, engine, &["dispatch"]);
    }
}

#[test]
fn trap_flag_of_the_program_works() {
    let arguments: &[&str] = if is_amd() { &[] } else { &["int1"] };
    for engine in ENGINES {
        same_output(&TRAPPED, engine, arguments);
    }
}

/// Records in a folder of a user without privileges, if the tests run as root.
#[test]
fn undumpable_process_is_recorded_without_privileges() {
    let executable = built(&UNDUMPABLE);
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    open(folder.path());
    let [recorder, copy] = ["recorder", "program"].map(|name| folder.path().join(name));
    fs::copy(binary().unwrap(), &recorder).unwrap();
    fs::copy(&executable, &copy).unwrap();
    [&recorder, &copy].into_iter().for_each(|path| open(path));
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let ordinary = |program: &Path| {
        let mut command = if is_root {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", "60001", "--regid", "60001", "--clear-groups"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(folder.path()).stdin(Stdio::null());
        command
    };
    let record = |engine: &str, bundle: &Path, way: &str| {
        let mut command = ordinary(&recorder);
        command.args(["record", "--engine", engine, "-o"]).arg(bundle);
        command.arg("--").arg(&copy).arg(way).output().unwrap()
    };
    for way in ["prctl", "namespace"] {
        let native = ordinary(&copy).arg(way).output().unwrap();
        let native = String::from_utf8_lossy(&native.stdout);
        for engine in ENGINES {
            let bundle = folder.path().join(format!("{engine}-{way}"));
            let output = record(engine, &bundle, way);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                String::from_utf8_lossy(&output.stdout),
                native,
                "{engine} {way}: {said}"
            );
            let bundle = Bundle::in_folder(tempfile::tempdir().unwrap(), bundle);
            let notes = notes_of(&bundle);
            let is_noted = notes.iter().any(|note| note.contains("PR_SET_DUMPABLE"));
            assert_eq!(is_noted, way == "prctl", "{engine} {way}: {notes:?}");
        }
    }
    // A program that the user may execute and not read is refused before it runs.
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o111)).unwrap();
    for engine in ENGINES {
        let bundle = folder.path().join("refused");
        let output = record(engine, &bundle, "prctl");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("its program file is not readable"),
            "{engine}: {said}"
        );
        assert!(output.stdout.is_empty() && !bundle.exists(), "{engine}: {said}");
    }
}

#[test]
fn recorded_tracers_trace_their_children() {
    for engine in ENGINES {
        for way in ["fork", "vfork", "attach", "seize"] {
            let notes = same_output(&TRACED, engine, &[way]);
            assert!(
                notes
                    .iter()
                    .any(|note| note.contains("a process has only one tracer")),
                "{engine} {way}: {notes:?}"
            );
        }
    }
}

#[test]
fn helper_stops_threads_of_its_own_memory() {
    for engine in ENGINES {
        let notes = same_output(&TRACED, engine, &["helper"]);
        assert!(
            notes.iter().any(|note| note.contains("answered its requests")),
            "{engine}: {notes:?}"
        );
    }
}

#[test]
fn traceme_of_the_program_itself_succeeds() {
    for engine in ENGINES {
        let notes = same_output(&TRACED, engine, &["self"]);
        assert!(
            notes.iter().any(|note| note.contains("PTRACE_TRACEME")),
            "{engine}: {notes:?}"
        );
    }
}

#[test]
fn leak_sanitizer_finds_leaks() {
    const LEAK: Program = program("leaks", "../transparency/leaks.c", &["-g", "-fsanitize=address"]);
    let Ok(executable) = build(&LEAK, Variant::Pie) else {
        eprintln!("skipped: the compiler has no AddressSanitizer");
        return;
    };
    let bundle = Bundle::empty();
    let output = command()
        .unwrap()
        .args(["record", "-o"])
        .arg(&bundle.path)
        .arg("--")
        .arg(&executable)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("77 byte(s) leaked in 1 allocation(s)") && !said.contains("fatal error"),
        "{said}"
    );
    notes_of(&bundle);
}
