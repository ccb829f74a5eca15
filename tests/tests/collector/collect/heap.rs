//! The heap history of services: `[heap]` of the configuration.

use crate::collector::{Collector, cannot, until};
use backtrail_tests::backtrail::{backtrail, repository};
use serde_json::Value;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SETTINGS: &str = "[heap]\nservices = [\"heap-*\"]\n";

/// The service, compiled, and its source.
struct Service {
    folder: tempfile::TempDir,
    source: String,
}

impl Service {
    fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = repository().join("tests/fixtures/heap/service.cpp");
        let mut compiler = Command::new("c++");
        compiler.args(["-std=c++17", "-O1", "-g", "-pthread", "-o"]);
        compiler.args([folder.path().join("heap-service"), path.clone()]);
        assert!(compiler.status().unwrap().success());
        let source = std::fs::read_to_string(path).unwrap();
        Self { folder, source }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("heap-service")
    }

    fn start(program: &Path, arguments: &[&str]) -> Child {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Returns the number of the line with a comment.
    fn line(&self, comment: &str) -> usize {
        let end = format!("// {comment}");
        self.source.lines().position(|line| line.ends_with(&end)).unwrap() + 1
    }
}

/// Starts a collector that notes heap calls. `None`, with a message: this machine does not allow
/// it.
fn collector() -> Option<Collector> {
    if cannot() {
        return None;
    }
    let collector = Collector::started(SETTINGS);
    if collector.log().contains("the heap of services is not recorded") {
        eprintln!("left out: uprobes cannot be had here");
        return None;
    }
    Some(collector)
}

/// Waits until the calls of a process are noted.
fn until_noted(collector: &Collector, child: &Child) {
    let line = format!("noting allocator calls of process {}:", child.id());
    until("the process is found", || collector.log().contains(&line));
}

/// Makes the service crash, and returns its crash.
fn crash(collector: &Collector, mut child: Child) -> Value {
    child.stdin.take().unwrap().write_all(b"one\ndrop\n").unwrap();
    child.wait().unwrap();
    let mut found = None;
    until("the crash is saved", || {
        found = collector
            .list()
            .into_iter()
            .find(|crash| crash["pid"] == child.id());
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn use_after_free_names_threads_and_lines_without_history() {
    let Some(collector) = collector() else { return };
    let service = Service::build();
    let child = Service::start(&service.program(), &[]);
    until_noted(&collector, &child);
    assert!(collector.metric("heap_processes") >= 1.0);
    let crash = crash(&collector, child);
    let bundle = crash["bundle"].as_str().unwrap();
    let screen = collector.debug(&crash, &["crash"]);
    let sentence = format!(
        "perhaps a use after free: freed by thread \"reaper\" in drop_session at service.cpp:{}, \
         allocated by open_session at service.cpp:{}\n",
        service.line("freed"),
        service.line("allocated")
    );
    assert!(screen.contains(&sentence), "{screen}");
    let (_, rest) = screen.split_once("`info heap ").unwrap();
    let (address, _) = rest.split_once('`').unwrap();
    let shown = collector.debug(&crash, &[&format!("info heap {address}"), "info heap"]);
    for part in [
        "208 bytes\n",
        "allocated by operator new in open_session() at service.cpp:",
        "freed by free in drop_session(Session*) at service.cpp:",
        "The collector noted the calls since -",
        "allocations and ",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(!shown.contains("Gap:"), "{shown}");
    let checked = backtrail(["check", bundle]).unwrap().exited(0);
    assert!(checked.stdout.contains("no faults"), "{checked:?}");
    // A shared copy has no stacks of the callers, which are memory. The direct callers stay.
    let packed = collector.folder().join("shared.btz");
    let packed = packed.to_str().unwrap();
    let _ = backtrail(["pack", bundle, "-o", packed, "--redact", "memory"])
        .unwrap()
        .exited(0);
    let copy = backtrail(["debug", "--batch", packed, "-e", &format!("info heap {address}")]).unwrap();
    let freed = format!(
        "in drop_session(Session*) at service.cpp:{}",
        service.line("freed")
    );
    assert!(copy.stdout.contains(&freed), "{copy:?}");
}

#[test]
fn double_free_names_both_frees_without_history() {
    let Some(collector) = collector() else { return };
    let service = Service::build();
    let child = Service::start(&service.program(), &["twice"]);
    until_noted(&collector, &child);
    let crash = crash(&collector, child);
    assert_eq!(
        crash["signal_name"].as_str().or(crash["signal"].as_str()),
        Some("SIGABRT"),
        "{crash}"
    );
    let screen = collector.debug(&crash, &["crash"]);
    let freed = format!(
        "in drop_session at service.cpp:{}, allocated by open_session",
        service.line("freed")
    );
    assert!(
        screen.contains("double free: freed by thread \"reaper\" "),
        "{screen}"
    );
    assert!(screen.contains(&freed), "{screen}");
    let again = format!("at service.cpp:{} frees 0x", service.line("freed again"));
    assert!(screen.contains(&again), "{screen}");
}

#[test]
fn only_configured_services_are_noted() {
    let Some(collector) = collector() else { return };
    let service = Service::build();
    let other = service.folder.path().join("other-service");
    std::fs::copy(service.program(), &other).unwrap();
    let plain = Service::start(&other, &[]);
    let noted = Service::start(&service.program(), &[]);
    until_noted(&collector, &noted);
    let crash_of_other = crash(&collector, plain);
    let said = collector.debug(&crash_of_other, &["info heap"]);
    assert!(said.contains("no heap events"), "{said}");
    let crash = crash(&collector, noted);
    assert!(
        collector
            .debug(&crash, &["info heap"])
            .contains("The collector noted")
    );
}
