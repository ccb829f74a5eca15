//! A process runs the same with an attached recorder as without.

use backtrail_tests::backtrail::{binary, command};
use backtrail_tests::build;
use backtrail_tests::programs::{Ending, Program, Variant};
use std::process::{Command, Stdio};

/// Existing threads have registered restartable sequences, and new threads must do so too. No
/// starting process may stay in the recorder's code after detach.
#[test]
fn process_that_starts_others_survives_attach() {
    const STARTS: Program = Program {
        name: "starts",
        source: "../killed/starts.c",
        flags: &["-O1", "-pthread"],
        variants: &[Variant::Pie],
        ending: Ending::Exit(0),
        deterministic: false,
    };
    const ATTACHED: usize = 15;
    let program = build(&STARTS, Variant::Pie).unwrap();
    // Builds the binary first, because the program runs only briefly.
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for engine in ["translate", "step"] {
        let process = Command::new(&program)
            // Seconds, longer than all recordings take beside other tests.
            .arg("20")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = process.id().to_string();
        for _ in 0..ATTACHED {
            let mut recorder = command().unwrap();
            recorder.args(["record", "--overwrite", "--engine", engine, "--for", "50ms"]);
            recorder
                .args(["--pid", &pid, "-o"])
                .arg(folder.path().join("bundle"));
            let output = recorder.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{engine}: {said}");
        }
        let output = process.wait_with_output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{engine}: {}: {said}", output.status);
    }
}

/// Starts the program of this kind, and returns it with its first line.
fn waiting(kind: &str) -> (std::process::Child, String) {
    use std::io::{BufRead, BufReader};
    const WAITING: Program = Program {
        name: "waiting",
        source: "../transparency/waiting.c",
        flags: &["-O1", "-pthread", "-w"],
        variants: &[Variant::Pie],
        ending: Ending::Exit(0),
        deterministic: false,
    };
    let program = build(&WAITING, Variant::Pie).unwrap();
    let mut process = Command::new(program)
        .arg(kind)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = process.stdout.take().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    (process, line)
}

/// Attaches for a while, and returns the exit status, the error output and the time.
fn attach(pid: &str, engine: &str, bundle: &std::path::Path) -> (Option<i32>, String, std::time::Duration) {
    let begun = std::time::Instant::now();
    let mut recorder = command().unwrap();
    recorder.args(["record", "--overwrite", "--engine", engine, "--for", "500ms"]);
    let output = recorder.args(["--pid", pid, "-o"]).arg(bundle).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said, begun.elapsed())
}

#[test]
fn threads_that_cannot_stop_do_not_prevent_attaching() {
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    for engine in ["translate", "step"] {
        for kind in ["io_uring", "first_ended", "vfork_thread"] {
            let (mut process, line) = waiting(kind);
            if line == "no io_uring\n" {
                eprintln!("skipped: io_uring is not available");
                continue;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            let (status, said, _) = attach(&process.id().to_string(), engine, &bundle);
            assert_eq!(status, Some(0), "{engine} {kind}: {said}");
            assert!(said.contains("1 thread(s)"), "{engine} {kind}: {said}");
            assert!(
                process.try_wait().unwrap().is_none(),
                "{engine} {kind}: the process has ended"
            );
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

#[test]
fn process_that_cannot_stop_is_refused_at_once() {
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let (mut process, _) = waiting("vfork");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (status, said, _) = attach(&process.id().to_string(), "translate", &bundle);
    assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("did not stop") && !bundle.exists(), "{said}");
    assert!(process.try_wait().unwrap().is_none(), "the process has ended");
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn stopped_process_stays_stopped_after_a_recording() {
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    for engine in ["translate", "step"] {
        let (mut process, _) = waiting("stopped");
        let pid = process.id();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (status, said, time) = attach(&pid.to_string(), engine, &bundle);
        assert_eq!(status, Some(0), "{engine}: {said}");
        assert!(time.as_secs() < 5, "{engine}: {time:?}");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        assert!(stat.contains(") T "), "{engine}: {stat}");
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn interrupted_call_is_restarted_after_a_recording() {
    use std::io::Write;
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    for engine in ["translate", "step"] {
        let mut process = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let (status, said, _) = attach(&process.id().to_string(), engine, &bundle);
        assert_eq!(status, Some(0), "{engine}: {said}");
        process.stdin.take().unwrap().write_all(b"text\n").unwrap();
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{engine}: {output:?}");
        assert_eq!(output.stdout, b"text\n", "{engine}: {output:?}");
    }
}

#[test]
fn thread_with_another_tracer_refuses_the_attach() {
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let (mut process, _) = waiting("traced");
    for engine in ["translate", "step"] {
        let (status, said, _) = attach(&process.id().to_string(), engine, &bundle);
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{engine}: {said}");
        assert!(said.contains(") traces thread"), "{engine}: {said}");
        assert!(
            !bundle.exists() && process.try_wait().unwrap().is_none(),
            "{engine}"
        );
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn sigterm_ends_recordings_of_threads_that_wait_in_the_kernel() {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    for kind in ["io_uring", "vfork_thread", "stopped"] {
        let (mut process, line) = waiting(kind);
        if line == "no io_uring\n" {
            continue;
        }
        let mut command = command().unwrap();
        command.args(["record", "--overwrite", "--pid", &process.id().to_string(), "-o"]);
        let mut recorder = command.arg(&bundle).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_secs(1));
        kill(Pid::from_raw(recorder.id() as i32), Signal::SIGTERM).unwrap();
        let begun = std::time::Instant::now();
        while recorder.try_wait().unwrap().is_none() {
            let waited = begun.elapsed().as_secs();
            assert!(waited < 10, "{kind}: the recording does not end");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(
            process.try_wait().unwrap().is_none(),
            "{kind}: the process has ended"
        );
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

#[test]
fn process_that_has_exited_is_named_so() {
    binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let (mut process, line) = waiting("ended");
    let ended = line.trim().trim_start_matches("ready ");
    for engine in ["translate", "step"] {
        let (status, said, _) = attach(ended, engine, &bundle);
        let expected = format!("backtrail: process {ended} has exited\n");
        assert_eq!((status, said), (Some(1), expected));
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

/// A process whose function has uprobes at its entry and its return, and waits in that function.
#[test]
fn process_with_uprobes_is_recorded_without_breakpoints() {
    use std::io::{BufRead, BufReader, Read, Write};
    const UPROBED: Program = Program {
        name: "uprobed",
        source: "../transparency/uprobed.c",
        flags: &["-O1", "-g"],
        variants: &[Variant::Pie],
        ending: Ending::Exit(7),
        deterministic: false,
    };
    let program = build(&UPROBED, Variant::Pie).unwrap();
    let binary = binary().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle");
    let mut process = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    if line == "no uprobes\n" {
        eprintln!("left out: uprobes cannot be had here");
        process.wait().unwrap();
        return;
    }
    let pid = process.id().to_string();
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (status, said, _) = attach(&pid, "step", &bundle);
    assert_eq!(status, Some(1), "{said}");
    assert!(
        said.contains("breakpoints of uprobes") && !bundle.exists(),
        "{said}"
    );
    let recorder = command()
        .unwrap()
        .args(["record", "--pid", &pid, "-o"])
        .arg(&bundle)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let is_traced = || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        !status.contains("TracerPid:\t0\n")
    };
    while !is_traced() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    process.stdin.take().unwrap().write_all(b"x").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(
        (rest.as_str(), process.wait().unwrap().code()),
        ("sum 1001\n", Some(7))
    );
    let recorded = recorder.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&recorded.stderr);
    assert!(
        recorded.status.success() && said.contains("exited with status 7"),
        "{said}"
    );
    // The code of the file is what ran: each call is in the trace.
    let debugged = Command::new(binary)
        .args(["debug", "--batch", "-e", "count work"])
        .arg(&bundle)
        .output()
        .unwrap();
    let counted = String::from_utf8_lossy(&debugged.stdout);
    assert!(counted.contains("1000"), "{counted}");
}
