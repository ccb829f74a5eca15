//! The runtime directory and the core handler: owned by root, short-lived, and usable by all users.

use crate::collect::example;
use crate::collector::{Collector, CorePattern, cannot, core_pattern, quiet, until};
use backtrail_tests::backtrail::backtrail;
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program that crashes, where core files are written without limit.
fn dumping(program: &Command, folder: &std::path::Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -c unlimited; exec \"$0\""])
        .arg(program.get_program())
        .current_dir(folder);
    command
}

/// A stopped daemon, which continues when this is dropped.
struct Stopped<'a>(&'a Collector);

impl<'a> Stopped<'a> {
    fn new(collector: &'a Collector) -> Self {
        collector.signal(Signal::SIGSTOP);
        Self(collector)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::SIGCONT);
    }
}

#[test]
fn hanging_daemon_holds_no_crash_beyond_the_limit() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("[crash]\nhold_limit = \"1s\"\n");
    let folder = collector.folder().to_owned();
    let _before = CorePattern::set("left.%e");
    collector.start();
    let stopped = Stopped::new(&collector);
    let begun = Instant::now();
    let mut child = quiet(&mut dumping(&example("crash_null"), &folder))
        .spawn()
        .unwrap();
    until("the process is let go", || child.try_wait().unwrap().is_some());
    let held = begun.elapsed();
    drop(stopped);
    assert!(held >= Duration::from_secs(1), "{held:?}: it was not held");
    assert!(held < Duration::from_secs(4), "{held:?}");
    let core = folder.join("left.crash_null");
    let run = backtrail(["debug", "--batch", "-e", "backtrace", core.to_str().unwrap()]).unwrap();
    assert!(
        run.stdout.contains("main"),
        "nothing of the core is lost: {run:?}"
    );
}

#[test]
fn crash_storm_leaves_handlers_for_other_users() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("[crash]\nhold_limit = \"8s\"\n");
    let folder = collector.folder().to_owned();
    let _before = CorePattern::set("left.%e");
    collector.start();
    // Each handler waits for the stopped daemon, as for a busy one.
    let stopped = Stopped::new(&collector);
    let mut storm: Vec<_> = (0..300)
        .map(|_| quiet(&mut example("crash_null")).spawn().unwrap())
        .collect();
    let handlers = || {
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter(|process| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(b"core-handler")
        })
        .count()
    };
    until("all of the storm are held", || handlers() >= 300);
    let mut other = quiet(&mut dumping(&example("crash_abort"), &folder))
        .spawn()
        .unwrap();
    until("the other one ends", || other.try_wait().unwrap().is_some());
    drop(stopped);
    for child in &mut storm {
        child.wait().unwrap();
    }
    assert!(folder.join("left.crash_abort").is_file(), "the kernel refused it");
}

#[test]
fn the_runtime_directory_stays_root_s_with_another_user() {
    if cannot() {
        return;
    }
    let collector = Collector::new("user = \"daemon\"\n");
    fs::set_permissions(collector.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut collector = collector;
    let before = core_pattern();
    collector.start();
    let runtime = collector.folder().join("run");
    let entries = fs::read_dir(&runtime).unwrap().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.push(runtime);
    for path in paths {
        let found = path.symlink_metadata().unwrap();
        assert_eq!(found.uid(), 0, "{}", path.display());
        let is_socket = path.extension().is_some_and(|ending| ending == "socket");
        assert!(is_socket || found.mode() & 0o022 == 0, "{}", path.display());
    }
    assert_eq!(collector.crash(&mut example("crash_null"))["complete"], true);
    collector.stop();
    assert_eq!(core_pattern(), before);
}

#[test]
fn runtime_directory_of_another_user_is_refused() {
    if cannot() {
        return;
    }
    let collector = Collector::new("");
    let (runtime, before) = (collector.folder().join("run"), core_pattern());
    fs::create_dir(&runtime).unwrap();
    let config = collector.config();
    for (mode, owner) in [(0o777, 0), (0o755, 1)] {
        fs::set_permissions(&runtime, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&runtime, Some(owner), None).unwrap();
        let refused = backtrail(["collect", "--config", config.to_str().unwrap()]).unwrap();
        let sentence = refused.exited(1).sentence().to_owned();
        assert!(sentence.contains("runtime directory"), "{sentence}");
        assert_eq!(core_pattern(), before);
    }
}

#[test]
fn a_long_runtime_directory_works_through_a_link() {
    if cannot() {
        return;
    }
    let mut collector = Collector::new("");
    let long = collector.folder().join("r".repeat(45));
    let text = fs::read_to_string(collector.config()).unwrap();
    let run = collector.folder().join("run");
    fs::write(
        collector.config(),
        text.replace(run.to_str().unwrap(), long.to_str().unwrap()),
    )
    .unwrap();
    collector.start();
    let pattern = core_pattern();
    assert!(pattern.contains(long.to_str().unwrap()), "{pattern}");
    let crash = collector.crash(&mut example("crash_null"));
    assert_eq!((&crash["complete"], &crash["signal"]), (&true.into(), &11.into()));
}
