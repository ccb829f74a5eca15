//! The crash probe by each way of attaching. Not every kernel has kprobes and function hooks.

use crate::child::{Waiting, killed_by};
use crate::{Outcome, Report, Test};
use backtrail_collector::probe::{AttachKind, CrashSample, Probe, ProbeOptions, SiginfoDetail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::process::{Command, Stdio};
use std::time::Duration;

pub const TESTS: &[Test] = &[
    Test {
        name: "probe/btf-tracepoint",
        run: |_| crashes_are_seen(AttachKind::BtfTracepoint),
    },
    Test {
        name: "probe/fentry",
        run: |_| crashes_are_seen(AttachKind::Fentry),
    },
    Test {
        name: "probe/kprobe",
        run: |_| crashes_are_seen(AttachKind::Kprobe),
    },
    Test {
        name: "probe/raw-tracepoint",
        run: |_| crashes_are_seen(AttachKind::RawTracepoint),
    },
    Test {
        name: "probe/tracepoint",
        run: |_| crashes_are_seen(AttachKind::Tracepoint),
    },
    Test {
        name: "probe/perf-tracepoint",
        run: |_| crashes_are_seen(AttachKind::PerfTracepoint),
    },
    Test {
        name: "probe/thread",
        run: a_thread_crashes,
    },
    Test {
        name: "probe/details",
        run: |report| suite(report, "event_describes_the_process"),
    },
    Test {
        name: "probe/first-of-namespace",
        run: |report| suite(report, "init_of_a_namespace_survives_unhandled_signals"),
    },
];

const PATIENCE: Duration = Duration::from_secs(30);
/// The time without an event that ends the wait.
const QUIET: Duration = Duration::from_millis(200);
/// The address to which the program `crash` writes.
const NOWHERE: u64 = 8;

/// The probe attaches in this way, and reports each crash once, with its details.
fn crashes_are_seen(kind: AttachKind) -> Outcome {
    let options = ProbeOptions {
        attach: Some(kind),
        ..ProbeOptions::default()
    };
    let mut probe = Probe::attach(&options).map_err(|error| error.to_string())?;
    if probe.kind() != kind {
        return Err(format!("it attached as {}", probe.kind()));
    }
    let mut pids = Vec::new();
    for processor in [0, 1, 0, 1] {
        let waiting = Waiting::start("/recordings/crash", processor)?;
        pids.push(waiting.pid());
        let signal = killed_by(&mut waiting.begin()?, PATIENCE)?;
        if signal != libc::SIGSEGV {
            return Err(format!("the program was killed by signal {signal}"));
        }
    }
    let mut seen = drained(&mut probe)?;
    // A perf event has a ring for each processor, and they are read in turn.
    seen.sort_by_key(|crash| crash.at);
    let found: Vec<u32> = seen.iter().map(|crash| crash.pid.0).collect();
    if found != pids {
        return Err(format!("crashed have {pids:?}, told were {found:?}"));
    }
    for (crash, processor) in seen.iter().zip([0, 1, 0, 1]) {
        told_right(crash, processor)?;
    }
    match probe.lost() {
        0 => Ok(()),
        lost => Err(format!("{lost} were lost")),
    }
}

/// A crash of another thread than the first is also one event.
fn a_thread_crashes(_: &mut Report) -> Outcome {
    let mut wrong = Vec::new();
    for kind in AttachKind::ALL {
        let options = ProbeOptions {
            attach: Some(kind),
            ..ProbeOptions::default()
        };
        let mut probe = Probe::attach(&options).map_err(|error| error.to_string())?;
        // The probe's own test binary runs each test in a thread. This test crashes in its thread
        // on request.
        let mut child = Command::new("/tests/probe")
            .args(["die_if_told", "--exact", "--nocapture"])
            .env("BACKTRAIL_CRASH", "Segv")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("cannot run the probe's tests: {error}"))?;
        let pid = child.id();
        killed_by(&mut child, PATIENCE)?;
        let seen = drained(&mut probe)?;
        let found: Vec<_> = seen
            .iter()
            .map(|crash| (crash.pid.0, crash.tid.0 != pid))
            .collect();
        if found != [(pid, true)] {
            let told: Vec<_> = seen
                .iter()
                .map(|crash| {
                    (
                        crash.tid.0,
                        crash.siginfo.signal(),
                        crash.siginfo.code(),
                        crash.at,
                        crash.started,
                    )
                })
                .collect();
            wrong.push(format!(
                "{kind} tells of process {pid} (thread, signal, code, time, start): {told:?}"
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

fn told_right(crash: &CrashSample, processor: u32) -> Outcome {
    let info = &crash.siginfo;
    if info.signal() != libc::SIGSEGV || crash.cpu.0 != processor || crash.tid.0 != crash.pid.0 {
        return Err(format!("a crash on processor {processor} was told as {crash:?}"));
    }
    if crash.siginfo_detail >= SiginfoDetail::Address && info.address().map(|at| at.0) != Some(NOWHERE) {
        return Err(format!(
            "the address of the fault was told as {:?}",
            info.address()
        ));
    }
    Ok(())
}

fn drained(probe: &mut Probe) -> Result<Vec<CrashSample>, String> {
    let mut seen = Vec::new();
    loop {
        let ready = {
            let descriptors = probe.descriptors();
            let mut polled: Vec<PollFd<'_>> = descriptors
                .iter()
                .map(|&descriptor| PollFd::new(descriptor, PollFlags::POLLIN))
                .collect();
            let timeout = PollTimeout::try_from(QUIET).map_err(|error| error.to_string())?;
            poll(&mut polled, timeout).map_err(|error| format!("cannot wait for the probe: {error}"))?
        };
        if ready == 0 {
            return Ok(seen);
        }
        probe.drain(&mut |crash| seen.push(crash));
    }
}

/// Runs one of the probe's own tests. On other kernels it skips ways of attaching with a message,
/// which is an error here.
fn suite(_: &mut Report, test: &str) -> Outcome {
    let output = Command::new("/tests/probe")
        .args([test, "--exact", "--nocapture"])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run the probe's tests: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if let Some(skipped) = text.lines().find(|line| line.contains("skipped: ")) {
        return Err(skipped.to_owned());
    }
    if output.status.success() && text.contains("test result: ok. 1 passed") {
        return Ok(());
    }
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Err(format!(
        "{test} ended with {}; the console has what it said",
        output.status
    ))
}
