//! Measures how long a crash takes to reach user space, for each kind of attachment: `probe_latency
//! [CRASHES] [KIND…]`.
//!
//! Needs root. For each kind that works here, CRASHES children (default 200) crash in turn by
//! SIGSEGV, SIGILL, SIGFPE, SIGTRAP and SIGABRT. The machine is idle, or has two busy threads for
//! each processor. The reader thread has real-time priority (SCHED_FIFO) or none.
//!
//! Two times are measured, both until the reader has the event. The first starts at the crashing
//! instruction, and may include off-CPU time of the process. SIGABRT has no such time, because
//! `abort` overwrites the register. The second starts at the timestamp of the probe. Each crash
//! must cause exactly one event.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a measuring tool, not shipped

#[path = "../tests/crasher/mod.rs"]
mod crasher;

use backtrail_collector::probe::{AttachKind, CrashSample, Probe, ProbeOptions};
use crasher::{Crash, now};
use std::collections::HashMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Priority of the reader: the middle of the range, above less urgent kernel threads.
const REAL_TIME_PRIORITY: i32 = 50;
/// The argument that makes this program crash its children and print their ids, and nothing else.
const CRASH: &str = "--crash";
/// How long the reader waits for late events.
const PATIENCE: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    crasher::die_if_told();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [only, crashes, busy] = arguments.as_slice()
        && only == CRASH
    {
        crash_in_turn(crashes.parse().unwrap(), busy.parse().unwrap());
        return ExitCode::SUCCESS;
    }
    let crashes = match arguments.first().and_then(|text| text.parse().ok()) {
        Some(crashes) => {
            arguments.remove(0);
            crashes
        }
        None => 200,
    };
    let kinds: Result<Vec<AttachKind>, _> = arguments.iter().map(|text| text.parse()).collect();
    let kinds = match kinds {
        Ok(kinds) if kinds.is_empty() => AttachKind::ALL.to_vec(),
        Ok(kinds) => kinds,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    println!(
        "| kind | reader | machine | events | not exactly one | from the instruction, µs: p50, p99, max | from the probe |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut right = true;
    for kind in kinds {
        for (real_time, loaded) in [(true, false), (true, true), (false, false), (false, true)] {
            match measure(kind, crashes, real_time, loaded) {
                Ok(wrong) => right &= wrong == 0,
                Err(reason) => {
                    println!("| {kind} | {reason} |");
                    break;
                }
            }
        }
    }
    if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Prints one line of the table. Returns how many crashes had no event or several.
fn measure(kind: AttachKind, crashes: usize, real_time: bool, loaded: bool) -> Result<usize, String> {
    let options = ProbeOptions {
        attach: Some(kind),
        ring: 1 << 22,
        ..ProbeOptions::default()
    };
    let mut probe = Probe::attach(&options).map_err(|error| error.to_string())?;
    let done = AtomicBool::new(false);
    let (seen, pids) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            if real_time {
                become_real_time();
            }
            read(&mut probe, &done)
        });
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let busy = if loaded { 2 * processors } else { 0 };
        // Another process forks, because fork(2) locks the address space and a page fault of the
        // reader would wait for it.
        let output = Command::new(std::env::current_exe().unwrap())
            .args([CRASH, &crashes.to_string(), &busy.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        assert!(output.status.success());
        std::thread::sleep(PATIENCE);
        done.store(true, Ordering::Relaxed);
        let pids = String::from_utf8(output.stdout).unwrap();
        let pids: Vec<u32> = pids.lines().map(|line| line.parse().unwrap()).collect();
        (reader.join().unwrap(), pids)
    });
    let mut counts: HashMap<u32, usize> = pids.iter().map(|pid| (*pid, 0)).collect();
    let (mut whole, mut probed) = (Vec::new(), Vec::new());
    for (event, at) in &seen {
        let Some(count) = counts.get_mut(&event.pid.0) else {
            continue;
        };
        *count += 1;
        probed.push(at - event.at);
        if event.siginfo.signal() != libc::SIGABRT {
            whole.push(at - event.registers.r12);
        }
    }
    let wrong = counts.values().filter(|count| **count != 1).count();
    println!(
        "| {kind} | {} | {} | {} of {crashes} | {wrong} | {} | {} |",
        if real_time { "real-time" } else { "ordinary" },
        if loaded { "loaded" } else { "idle" },
        probed.len(),
        spread(whole),
        spread(probed),
    );
    let lost = probe.lost();
    if lost > 0 {
        println!("{lost} events lost");
    }
    Ok(wrong)
}

/// Returns the median, the 99th percentile and the maximum in microseconds.
fn spread(mut nanos: Vec<u64>) -> String {
    nanos.sort_unstable();
    let at = |part: f64| nanos.get(((nanos.len() as f64 * part) as usize).min(nanos.len().saturating_sub(1)));
    let micros = |part| at(part).map_or("-".to_owned(), |nanos| format!("{:.0}", *nanos as f64 / 1e3));
    format!("{}, {}, {}", micros(0.5), micros(0.99), micros(1.0))
}

/// Crashes children one after the other next to busy threads, and prints their ids.
fn crash_in_turn(crashes: usize, busy: usize) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..busy {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        for crash in Crash::CORE_DUMPING.into_iter().cycle().take(crashes) {
            let mut child = crash.command(&[]).spawn().unwrap();
            println!("{}", child.id());
            assert_eq!(child.wait().unwrap().signal(), crash.signal(), "{crash:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Returns all events until `done` is set, each with the time at which it was read.
fn read(probe: &mut Probe, done: &AtomicBool) -> Vec<(CrashSample, u64)> {
    let mut seen = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let mut polled: Vec<libc::pollfd> = probe
            .descriptors()
            .iter()
            .map(|fd| libc::pollfd {
                fd: fd.as_raw_fd(),
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        // SAFETY: the descriptors are open and the slice lives through the call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 50) };
        probe.drain(&mut |event| seen.push((event, now())));
    }
    seen
}

fn become_real_time() {
    let parameters = libc::sched_param {
        sched_priority: REAL_TIME_PRIORITY,
    };
    // SAFETY: the struct lives through the call, which is about this thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameters) } != 0 {
        eprintln!(
            "the reader cannot be real-time: {}",
            std::io::Error::last_os_error()
        );
    }
}
