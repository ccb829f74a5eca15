//! The daemon is killed, crashes, or meets hostile programs.

use crate::collect::{example, program};
use crate::collector::{Collector, cannot, core_pattern, quiet, until};
use backtrail_tests::backtrail::backtrail;
use nix::sys::signal::Signal;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

/// Kills the daemon while programs crash, `times` times, at a different moment each time.
fn killed(times: u32) {
    let mut collector = Collector::new("");
    let before = core_pattern();
    // A small generator is random enough, and repeatable.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..times {
        collector.start();
        let mut children: Vec<Child> = (0..4)
            .map(|_| quiet(&mut example("crash_null")).spawn().unwrap())
            .collect();
        std::thread::sleep(Duration::from_micros(random() % 40_000));
        collector.signal(Signal::SIGKILL);
        collector.wait();
        until(&format!("round {round}: no process hangs"), || {
            children
                .iter_mut()
                .all(|child| child.try_wait().unwrap().is_some())
        });
        until(
            &format!("round {round}: core_pattern is back, which is {}", core_pattern()),
            || core_pattern() == before,
        );
        for crash in collector.list() {
            assert_eq!(crash["complete"], true, "round {round}: {crash}");
        }
    }
    // The next start removes the unfinished bundles of killed daemons.
    collector.start();
    let left = std::fs::read_dir(collector.spool()).unwrap().flatten();
    let left = left.filter(|entry| entry.file_name().to_string_lossy().starts_with(".backtrail-"));
    assert_eq!(left.count(), 0);
    collector.crash(&mut example("crash_null"));
}

#[test]
fn killed_daemon_leaves_no_files() {
    if !cannot() {
        killed(12);
    }
}

/// `cargo xtask test-all`.
#[test]
#[ignore = "takes minutes"]
fn daemon_killed_two_hundred_times_leaves_no_files() {
    if !cannot() {
        killed(200);
    }
}

#[test]
fn handler_of_a_killed_daemon_and_guard_does_not_block() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let before = core_pattern();
    collector.start();
    let guards = std::process::Command::new("pgrep")
        .args([
            "-f",
            &format!("core-guard {}", collector.folder().join("run").display()),
        ])
        .output()
        .unwrap();
    let guard: i32 = String::from_utf8_lossy(&guards.stdout).trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(guard), Signal::SIGKILL).unwrap();
    collector.signal(Signal::SIGKILL);
    collector.wait();
    assert!(
        core_pattern().contains(" core-handler "),
        "there is nobody to put it back"
    );
    let begun = std::time::Instant::now();
    quiet(&mut example("crash_null")).status().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let config = collector.config();
    let restored = backtrail(["collect", "--restore", "--config", config.to_str().unwrap()])
        .unwrap()
        .exited(0);
    assert!(restored.stdout.contains("was restored"), "{restored:?}");
    assert_eq!(core_pattern(), before);
}

#[test]
fn crash_of_the_daemon_blocks_nothing() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let before = core_pattern();
    collector.start();
    let begun = std::time::Instant::now();
    // Rust's runtime ignores the first SIGSEGV that another process sends.
    collector.signal(Signal::SIGABRT);
    collector.wait();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    until("core_pattern is back", || core_pattern() == before);
    collector.start();
    collector.crash(&mut example("crash_null"));
}

#[test]
fn a_process_that_forks_while_it_crashes_is_saved() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let crash = collector.crash(&mut program("forks", "../collect/forks.c"));
    assert_eq!(crash["complete"], true, "{crash}");
    let threads = collector.debug(&crash, &["info threads"]);
    assert!(threads.contains("crashed"), "{threads}");
}

#[test]
fn five_thousand_threads_are_all_there() {
    if cannot() {
        return;
    }
    let collector = Collector::started("");
    let crash = collector.crash(program("crowd", "../collect/crowd.c").arg("5000"));
    assert_eq!(crash["complete"], true, "{crash}");
    let threads = collector.debug(&crash, &["info threads"]);
    assert_eq!(threads.matches(" instructions").count(), 5000, "{threads}");
}

#[test]
fn unprivileged_start_error_names_the_fix() {
    if cannot() {
        return;
    }
    let mut command = backtrail_tests::backtrail::command().unwrap();
    // User `nobody`, who cannot write to any directory.
    command.uid(65534).gid(65534).arg("collect");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return eprintln!("left out: nobody may not run the binary ({error})"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("as root") && said.contains("backtrail install"),
        "{said}"
    );
}
