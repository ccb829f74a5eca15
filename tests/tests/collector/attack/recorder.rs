//! Programs that the recorder once lost or did not clean up.

use backtrail_tests::backtrail::{Run, binary};
use backtrail_tests::build;
use backtrail_tests::bundle::Bundle;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of each step.
const LIMIT: Duration = Duration::from_secs(120);

/// A program that only these tests use.
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

const CHILDREN: Program = program("children", "../attack/children.c", &["-O1"]);
const UNTRACED: Program = program("untraced", "../attack/untraced.c", &["-O1"]);

/// Returns `backtrail record` in a shell that sets a limit.
fn limited(limit: &str, bundle: &Path, rest: &[&OsStr]) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{limit} && exec \"$@\""), "sh"])
        .arg(binary().unwrap())
        .args(["record", "--exit-zero", "--overwrite", "-o"])
        .arg(bundle)
        .args(rest)
        .stdin(Stdio::null());
    command
}

/// Runs a command to its end, within the time limit.
#[track_caller]
fn run(mut command: Command) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    let file = |name: &str| fs::File::create(place(name)).unwrap();
    let mut child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
    let status = ended(&mut child).unwrap_or_else(|| panic!("{command:?} does not end"));
    let text = |name: &str| String::from_utf8_lossy(&fs::read(place(name)).unwrap()).into_owned();
    Run {
        status: status.code(),
        stdout: text("out"),
        stderr: text("err"),
    }
}

/// Returns how a child ended, or kills the child after the time limit and returns `None`.
fn ended(child: &mut Child) -> Option<std::process::ExitStatus> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn executable(program: &Program) -> PathBuf {
    build(program, Variant::Pie).unwrap()
}

#[track_caller]
fn is_sound(bundle: &Bundle) {
    let check = bundle.run(&["check"], &[]);
    assert!(check.stdout.contains("no faults"), "{check:?}");
}

/// Each process maps three files.
#[test]
fn sequential_children_leak_no_descriptors() {
    let bundle = Bundle::empty();
    let script = "i=0; while [ $i -lt 60 ]; do /bin/true; i=$((i+1)); done; echo $i";
    let arguments = ["--", "sh", "-c", script].map(OsStr::new);
    let run = run(limited("ulimit -n 64", &bundle.path, &arguments)).exited(0);
    assert_eq!(run.stdout, "60\n", "{run:?}");
    is_sound(&bundle);
}

#[test]
fn children_with_own_programs_leak_no_descriptors() {
    let bundle = Bundle::empty();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "cd {}; i=0; while [ $i -lt 60 ]; do cp /bin/true p$i; ./p$i; rm p$i; i=$((i+1)); done; echo $i",
        folder.path().display()
    );
    let arguments = ["--", "sh", "-c", &script].map(OsStr::new);
    let run = run(limited("ulimit -n 64", &bundle.path, &arguments)).exited(0);
    assert_eq!(run.stdout, "60\n", "{run:?}");
    is_sound(&bundle);
    for last in ["p0", "p59"] {
        let modules = fs::read_dir(bundle.path.join("modules")).unwrap().flatten();
        let mut copies = modules.filter(|module| module.path().join(last).exists());
        assert!(copies.next().is_some(), "{last} was deleted, and was not kept");
    }
}

#[test]
fn many_children_at_a_time_are_recorded_to_the_end() {
    let bundle = Bundle::empty();
    let children = executable(&CHILDREN);
    for option in ["--full", "--ring=1M"] {
        let arguments = [option.as_ref(), "--".as_ref(), children.as_ref(), "60".as_ref()];
        let run = run(limited("ulimit -n 64", &bundle.path, &arguments)).exited(0);
        assert_eq!(run.stdout, "60\n", "{run:?}");
        assert!(run.stderr.contains("121 thread(s)"), "{run:?}");
        is_sound(&bundle);
    }
}

#[test]
fn program_inherits_the_limits_of_the_recorder() {
    let bundle = Bundle::empty();
    let arguments = ["--", "sh", "-c", "ulimit -S -n; ulimit -H -n"].map(OsStr::new);
    let run = run(limited(
        "ulimit -n 200 && ulimit -S -n 90",
        &bundle.path,
        &arguments,
    ))
    .exited(0);
    assert_eq!(run.stdout, "90\n200\n");
}

#[test]
fn descriptor_limit_is_reported() {
    let children = executable(&CHILDREN);
    let mut refused = 0;
    for limit in [8, 10, 12, 14, 16, 18, 24] {
        let bundle = Bundle::empty();
        let arguments = ["--full".as_ref(), "--".as_ref(), children.as_ref(), "20".as_ref()];
        let run = run(limited(&format!("ulimit -n {limit}"), &bundle.path, &arguments));
        match run.status {
            Some(0) => is_sound(&bundle),
            Some(_) => {
                refused += 1;
                let said = run.stderr.lines().last().unwrap();
                let cause =
                    format!("Too many open files (os error 24): the recorder may open at most {limit} files");
                assert!(said.contains(&cause), "{limit}: {run:?}");
            }
            None => panic!("{limit}: {run:?}"),
        }
    }
    assert!(refused > 0, "8 descriptors were enough");
}

/// Returns the states of the running processes whose program is `executable`.
fn alive(executable: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| exe == executable))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .collect()
}

/// Records children that run until they are killed, signals the recorder, and waits for its end.
#[track_caller]
fn signaled(signal: &str) -> (Bundle, String) {
    // A private copy of the program identifies its processes.
    let folder = tempfile::tempdir().unwrap();
    let (own, begun) = (folder.path().join("children"), folder.path().join("begun"));
    fs::copy(executable(&CHILDREN), &own).unwrap();
    let bundle = Bundle::empty();
    let arguments = ["--".as_ref(), own.as_ref(), "60".as_ref(), begun.as_ref()];
    let said = folder.path().join("said");
    let mut recorder = limited("ulimit -S -n 64", &bundle.path, &arguments)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said).unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    while !text(&begun).ends_with('\n') && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let kill = Command::new("kill")
        .args([signal, &recorder.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    assert!(ended(&mut recorder).is_some(), "the recorder does not end");
    let start = Instant::now();
    while !alive(&own).is_empty() && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(alive(&own), [""; 0], "left behind");
    while text(&said).is_empty() && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(10));
    }
    let said = text(&said);
    (bundle, said)
}

#[test]
fn a_terminated_recorder_saves_and_leaves_no_process() {
    let (bundle, said) = signaled("-TERM");
    assert!(said.contains("recording ended, and so did the program"), "{said}");
    is_sound(&bundle);
    assert!(bundle.path.join("core").exists());
}

#[test]
fn killed_recorder_leaves_no_process() {
    let (_, said) = signaled("-KILL");
    assert!(said.contains("was killed with it (process "), "{said}");
}

#[test]
fn children_that_hide_from_tracers_are_recorded() {
    let executable = executable(&UNTRACED);
    let native = run(Command::new(&executable)).exited(0);
    assert_eq!(native.stdout.matches("status 700, arguments kept").count(), 12);
    for engine in ["translate", "step"] {
        let bundle = Bundle::empty();
        let arguments = [
            "--engine".as_ref(),
            engine.as_ref(),
            "--".as_ref(),
            executable.as_ref(),
        ];
        let run = run(limited(":", &bundle.path, &arguments)).exited(0);
        assert_eq!(run.stdout, native.stdout, "{engine}");
        assert!(run.stderr.contains("13 thread(s)"), "{engine}: {run:?}");
        is_sound(&bundle);
    }
}

/// Builds a program with a sanitizer; `None` if the compiler lacks it.
fn sanitized(name: &'static str, flags: &'static [&'static str]) -> Option<PathBuf> {
    build(&program(name, "../attack/sanitized.c", flags), Variant::Pie)
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()
}

#[test]
fn thread_sanitizer_starts_under_the_recorder() {
    let Some(executable) = sanitized("tsan", &["-O1", "-pthread", "-fsanitize=thread"]) else {
        return;
    };
    let bundle = Bundle::empty();
    let arguments = ["--".as_ref(), executable.as_ref()];
    let run = run(limited(":", &bundle.path, &arguments)).exited(0);
    assert_eq!(run.stdout, "200\n", "{run:?}");
    is_sound(&bundle);
}

#[test]
fn leak_sanitizer_ends_under_the_recorder() {
    let Some(executable) = sanitized("asan", &["-O1", "-pthread", "-fsanitize=address"]) else {
        return;
    };
    // The helper of the sanitizer stops the threads of the program, and finds no leak.
    for options in ["detect_leaks=1", "detect_leaks=0"] {
        let bundle = Bundle::empty();
        let arguments = ["--".as_ref(), executable.as_ref()];
        let mut command = limited(":", &bundle.path, &arguments);
        command.env("ASAN_OPTIONS", options);
        let run = run(command).exited(0);
        assert!(run.stderr.contains("status 0"), "{run:?}");
        assert_eq!(run.stdout, "200\n", "{run:?}");
        is_sound(&bundle);
    }
    assert_eq!(alive(&executable), [""; 0], "left behind");
}
