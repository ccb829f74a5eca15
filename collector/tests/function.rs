//! Tests function triggers on a small C program. Needs root and a kernel with uprobes. Otherwise
//! each test prints a message and is skipped.
#![allow(clippy::unwrap_used)] // helpers of tests are tests

use backtrail_collector::probe::{Condition, FunctionHit, FunctionLocation, FunctionTrigger, ProbeError};
use backtrail_pt::{FileOffset, Pid};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Waits for a line, and then calls `work` for 0, 30 and 0 ms. `nested` takes 40 ms outside and 10
/// ms inside. `longjmp` leaves `left` after 30 ms, and its second call returns at once.
const PROGRAM: &str = r#"
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static jmp_buf out;
__attribute__((noinline)) void work(int ms) { usleep(ms * 1000); }
__attribute__((noinline)) void nested(int depth) { usleep(10000); if (depth) { nested(depth - 1); usleep(30000); } }
__attribute__((noinline)) void left(int leave) { if (leave) { usleep(30000); longjmp(out, 1); } }
int main(void)
{
	if (getchar() == EOF) return 1;
	work(0); work(30); work(0);
	nested(1);
	if (!setjmp(out)) left(1);
	left(0);
	return 0;
}
"#;

struct Program {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Program {
    fn build() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        let mut compiler = Command::new("cc")
            .args(["-O1", "-x", "c", "-", "-o"])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        compiler
            .stdin
            .take()
            .unwrap()
            .write_all(PROGRAM.as_bytes())
            .unwrap();
        assert!(compiler.wait().unwrap().success());
        Self {
            _folder: folder,
            path,
        }
    }

    fn start(&self) -> Child {
        Command::new(&self.path).stdin(Stdio::piped()).spawn().unwrap()
    }
}

fn run_on(mut child: Child) {
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
}

/// Attaches a trigger. `None`, with a message: this machine does not allow it.
fn attach(path: &Path, name: &str, condition: Condition, pid: Option<Pid>) -> Option<FunctionTrigger> {
    // SAFETY: the call has no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root || !Path::new("/sys/bus/event_source/devices/uprobe").exists() {
        println!("skipped: no root, or no uprobes in this kernel");
        return None;
    }
    Some(FunctionTrigger::attach(path, &FunctionLocation::Symbol(name.to_owned()), condition, pid).unwrap())
}

fn events(trigger: &mut FunctionTrigger) -> Vec<FunctionHit> {
    let mut seen = Vec::new();
    trigger.drain(&mut |event| seen.push(event));
    assert_eq!(trigger.lost(), 0);
    seen
}

#[test]
fn each_entry_is_reported() {
    let program = Program::build();
    let Some(mut all) = attach(&program.path, "work", Condition::Entered, None) else {
        return;
    };
    let (first, second) = (program.start(), program.start());
    let pids = [Pid(first.id()), Pid(second.id())];
    let mut one = attach(&program.path, "work", Condition::Entered, Some(pids[1])).unwrap();
    run_on(first);
    run_on(second);
    let found: Vec<Pid> = events(&mut all).iter().map(|event| event.pid).collect();
    assert_eq!(found, [pids[0], pids[0], pids[0], pids[1], pids[1], pids[1]]);
    let seen = events(&mut one);
    assert_eq!(
        seen.iter().map(|event| event.pid).collect::<Vec<_>>(),
        [pids[1]; 3]
    );
    assert!(seen.windows(2).all(|pair| pair[0].at < pair[1].at));
    assert!(
        seen.iter()
            .all(|event| event.lasted.is_none() && event.tid.0 == event.pid.0)
    );
}

#[test]
fn only_long_calls_are_reported() {
    let program = Program::build();
    let bound = Duration::from_millis(20);
    let Some(mut trigger) = attach(&program.path, "work", Condition::LongerThan(bound), None) else {
        return;
    };
    run_on(program.start());
    let seen = events(&mut trigger);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(
        (30..2000).contains(&seen[0].lasted.unwrap().as_millis()),
        "{seen:?}"
    );
}

#[test]
fn nested_calls_are_reported_separately() {
    let program = Program::build();
    let Some(mut long) = attach(
        &program.path,
        "nested",
        Condition::LongerThan(Duration::from_millis(5)),
        None,
    ) else {
        return;
    };
    run_on(program.start());
    let lasted: Vec<u128> = events(&mut long)
        .iter()
        .map(|event| event.lasted.unwrap().as_millis())
        .collect();
    assert_eq!(lasted.len(), 2, "{lasted:?}");
    assert!(
        lasted[0] >= 10 && lasted[1] >= lasted[0] + 40,
        "the inner one first: {lasted:?}"
    );
}

#[test]
fn abandoned_call_does_not_affect_the_next() {
    let program = Program::build();
    let Some(mut trigger) = attach(
        &program.path,
        "left",
        Condition::LongerThan(Duration::from_millis(20)),
        None,
    ) else {
        return;
    };
    run_on(program.start());
    assert_eq!(events(&mut trigger), []);
}

#[test]
fn missing_function_is_reported_in_one_sentence() {
    let program = Program::build();
    for location in [
        FunctionLocation::Symbol("no_such_function".to_owned()),
        FunctionLocation::Offset(FileOffset(1 << 40)),
    ] {
        let found = FunctionTrigger::attach(&program.path, &location, Condition::Entered, None);
        let Err(error @ ProbeError::Function { .. }) = found else {
            panic!("{location} is there")
        };
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("a trigger on {location} of ")) && !text.contains('\n'),
            "{text}"
        );
    }
}
