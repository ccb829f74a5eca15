//! Cores without a signal, and recordings without times: every thread at its end.

use super::{Place, debug};
use crate::gdb_answers::have_gdb;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Three threads that wait in `wait_here`.
const HANG: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int jobs[3] = {1, 2, 3};
static __attribute__((noinline)) int wait_here(int *job) { pause(); return *job; }
static void *work(void *job) { return (void *)(long)wait_here(job); }
int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, work, &jobs[i]);
    usleep(100000);
    puts("ready"); fflush(stdout);
    return wait_here(&jobs[2]);
}
"#;

/// Returns the core that `gcore` writes of a process that hangs, and its id.
#[track_caller]
fn hung(place: &Place) -> (PathBuf, u32) {
    let program = place.compile("hang", HANG, &[]);
    let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let prefix = place.at("core");
    let mut command = Command::new("gcore");
    super::run(command.arg("-o").arg(&prefix).arg(child.id().to_string()));
    child.kill().unwrap();
    child.wait().unwrap();
    (place.at(&format!("core.{}", child.id())), child.id())
}

#[test]
fn hung_process_shows_all_threads_first_one_first() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let (core, pid) = hung(&place);
    let run = debug(&core, &[], &["info threads", "thread apply all bt", "crash"]).exited(0);
    let threads: Vec<&str> = run
        .stdout
        .lines()
        .filter(|line| line.contains("instructions"))
        .collect();
    assert_eq!(threads.len(), 3, "{}", run.stdout);
    assert!(threads[0].starts_with(&format!("* {pid} ")), "{threads:?}");
    assert!(
        threads.iter().all(|thread| !thread.contains("unknown")),
        "{threads:?}"
    );
    // Three threads in `thread apply`, and the first one in `crash`.
    let waiting = run.stdout.matches("wait_here (job=").count();
    assert_eq!(waiting, 4, "{}", run.stdout);
    assert_eq!(run.stdout.matches("main ()").count(), 2, "{}", run.stdout);
    assert!(run.stdout.contains("no signal"), "{}", run.stdout);
    assert!(!run.stdout.contains("crashed"), "{}", run.stdout);
}

#[test]
fn threads_of_a_hung_process_are_gdbs() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let (core, _) = hung(&place);
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-batch",
        "-ex",
        "set pagination off",
        "-ex",
        "thread apply all -ascending bt",
    ]);
    let theirs = super::run(gdb.arg(place.at("hang")).arg(&core));
    let ours = debug(&core, &[], &["thread apply all bt"]).exited(0).stdout;
    let functions = |text: &str| -> Vec<String> {
        let frames = text.lines().filter(|line| line.starts_with('#'));
        let named = frames.filter_map(|line| {
            let rest = line.split_once(' ')?.1.trim_start();
            let rest = rest.split_once(" in ").map_or(rest, |(_, rest)| rest);
            Some(rest.split(" (").next()?.to_owned())
        });
        // The C library may have no debug information, and GDB and we name its functions by
        // symbols.
        named
            .filter(|name| ["wait_here", "work", "main"].contains(&name.as_str()))
            .collect()
    };
    assert_eq!(functions(&ours), functions(&theirs), "{ours}\n{theirs}");
    assert_eq!(functions(&ours).len(), 6);
}

#[test]
fn end_of_a_recording_without_times_has_all_threads() {
    if !have_gdb() {
        return;
    }
    let place = Place::new();
    let program = place.compile("hang", HANG, &[]);
    let bundle = place.at("bundle");
    let record = ["record", "--for", "2s", "-o"].map(std::ffi::OsStr::new);
    let rest = ["--".as_ref(), program.as_os_str()];
    let arguments = record.into_iter().chain([bundle.as_os_str()]).chain(rest);
    let _ = backtrail_tests::backtrail::backtrail(arguments).unwrap();
    let run = debug(&bundle, &[], &["info threads", "thread apply all bt"]).exited(0);
    let threads: Vec<&str> = run
        .stdout
        .lines()
        .filter(|line| line.contains("instructions"))
        .collect();
    assert_eq!(threads.len(), 3, "{}", run.stdout);
    assert!(
        threads.iter().all(|thread| !thread.contains("unknown")),
        "{threads:?}"
    );
    assert_eq!(run.stdout.matches("in wait_here (").count(), 3, "{}", run.stdout);
    let _ = fs::remove_dir_all(bundle);
}
