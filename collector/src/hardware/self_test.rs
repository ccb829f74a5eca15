//! Tests Intel PT on this machine: traces a busy child, freezes, and checks the result.

use super::{
    Freezer, Frozen, Hardware, HardwareOptions, TraceCapabilities, TraceSnapshot, clock, first_timestamp,
    written_since,
};
use crate::{Error, Result};
use backtrail_pt::Pid;
use backtrail_pt::parser::{Parser, find_psb};
use std::thread;
use std::time::Duration;

/// Ring size of the test in bytes.
const RING: usize = 1 << 20;
/// Maximum age of a trace's first timestamp, in nanoseconds. The traces are some milliseconds old.
const CLOCK_TOLERANCE: u64 = 60_000_000_000;
/// How long the test's child is busy, in nanoseconds.
const BUSY: u64 = 5_000_000;

/// The result of the self-test.
#[derive(Clone, Debug)]
pub struct SelfTest {
    /// The checks in order.
    pub checks: Vec<Check>,
    /// The optional features that work.
    pub capabilities: TraceCapabilities,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// Whether it passed.
    pub passed: bool,
    /// The observed values.
    pub seen: String,
}

impl SelfTest {
    /// Returns whether all checks passed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.passed)
    }
}

/// Traces a busy child, freezes, and checks packets, timestamps and the child's sideband records.
///
/// # Errors
/// When tracing or the child cannot be started.
pub fn self_test(options: &HardwareOptions) -> Result<SelfTest> {
    let options = HardwareOptions {
        ring: RING,
        ..options.clone()
    };
    let mut hardware = Hardware::start(&options)?;
    let freezer = hardware.freezer();
    let pid = busy_child()?;
    let ended_at = clock::monotonic();
    let frozen = freezer.freeze(None, Some(ended_at));
    hardware.drain();
    let snapshot = hardware.collect(&frozen, Some(pid));
    let mut checks = vec![
        packets(&frozen),
        readable(&frozen),
        times(&hardware, &frozen),
        interval(&snapshot, pid),
        overwritten(&hardware, &frozen, ended_at),
    ];
    checks.push(again(&freezer, &frozen));
    Ok(SelfTest {
        checks,
        capabilities: hardware.capabilities(),
    })
}

/// Starts a child that is busy for a moment, and waits for its end.
fn busy_child() -> Result<Pid> {
    let failed = |source| Error::File {
        action: "start a child of",
        path: "/proc/self".into(),
        source,
    };
    // SAFETY: the child calls only the clock and `_exit`, which are safe in any state of other
    // threads.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let end = clock::monotonic().saturating_add(BUSY);
        while clock::monotonic() < end {}
        // SAFETY: ends the child at once, without running the parent's exit code.
        unsafe { libc::_exit(0) };
    }
    if pid < 0 {
        return Err(failed(std::io::Error::last_os_error()));
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the result, and the child is ours.
    if unsafe { libc::waitpid(pid, &mut status, 0) } != pid {
        return Err(failed(std::io::Error::last_os_error()));
    }
    Ok(Pid(pid as u32))
}

fn check(name: &'static str, passed: bool, seen: String) -> Check {
    Check { name, passed, seen }
}

/// Counts PSB packets, where a decoder can start.
fn packets(frozen: &Frozen) -> Check {
    let count = |bytes: &[u8]| {
        let mut from = 0;
        std::iter::from_fn(|| {
            let psb = find_psb(bytes, from)?;
            from = psb + 16;
            Some(())
        })
        .count()
    };
    let psbs: usize = frozen.cpus.iter().map(|cpu| count(cpu.bytes())).sum();
    let bytes: usize = frozen.cpus.iter().map(|cpu| cpu.bytes().len()).sum();
    let seen = format!(
        "{bytes} bytes and {psbs} PSB packets on {} processors",
        frozen.cpus.len()
    );
    check("packets", psbs != 0, seen)
}

/// Checks that all bytes after the first PSB are packets. The last one may be incomplete.
fn readable(frozen: &Frozen) -> Check {
    use backtrail_pt::parser::ParseErrorKind;
    let mut wrong = Vec::new();
    let mut count = 0usize;
    for cpu in &frozen.cpus {
        let Some(psb) = find_psb(cpu.bytes(), 0) else {
            continue;
        };
        for packet in Parser::at(cpu.bytes(), psb) {
            match packet {
                Ok(_) => count += 1,
                Err(error) if error.kind == ParseErrorKind::Truncated => {}
                Err(error) => wrong.push(format!("processor {}: {error}", cpu.cpu)),
            }
        }
    }
    let seen = wrong
        .first()
        .cloned()
        .unwrap_or_else(|| format!("{count} packets"));
    check("packets can be read", wrong.is_empty() && count != 0, seen)
}

/// Checks that the first timestamp of each trace is recent.
fn times(hardware: &Hardware, frozen: &Frozen) -> Check {
    let tsc = hardware.machine().tsc;
    let now = clock::perf(&tsc).0;
    let ages: Vec<u64> = frozen
        .cpus
        .iter()
        .filter_map(|cpu| first_timestamp(cpu.bytes(), clock::tsc()))
        .map(|first| now.wrapping_sub(tsc.nanos(first).0))
        .collect();
    let oldest = ages.iter().max().copied();
    let seen = oldest.map_or_else(
        || "no trace has a timestamp".to_owned(),
        |age| {
            format!(
                "{} traces have timestamps, the oldest from {age} ns ago",
                ages.len()
            )
        },
    );
    check(
        "time stamps",
        oldest.is_some_and(|age| age < CLOCK_TOLERANCE),
        seen,
    )
}

/// Checks that the sideband contains the child.
fn interval(snapshot: &TraceSnapshot<'_>, pid: Pid) -> Check {
    let process = snapshot.interval.world.processes.get(&pid);
    let mapped = process.map_or(0, |process| process.mappings.len());
    let ran = snapshot
        .interval
        .switches
        .values()
        .flatten()
        .filter(|switch| switch.pid == pid)
        .count();
    let seen = format!("{mapped} executable mappings and {ran} context switches of a child");
    check("sideband", mapped != 0 && ran != 0, seen)
}

/// Measures the bytes written between the child's end and the pause.
fn overwritten(hardware: &Hardware, frozen: &Frozen, ended_at: u64) -> Check {
    let tsc = hardware.machine().tsc;
    let moment = tsc.tsc(clock::perf_of_monotonic(&tsc, ended_at));
    let most = frozen
        .cpus
        .iter()
        .filter_map(|cpu| written_since(cpu.bytes(), moment, clock::tsc()))
        .max();
    let last = frozen
        .cpus
        .iter()
        .map(|cpu| cpu.paused_at.saturating_sub(ended_at))
        .max();
    let seen = format!(
        "all traces paused {} ns after the request; at most {} bytes were written meanwhile",
        last.unwrap_or_default(),
        most.map_or_else(|| "an unknown number of".to_owned(), |bytes| bytes.to_string())
    );
    check(
        "pause",
        frozen.cpus.iter().all(|cpu| cpu.resumed_at.is_some()),
        seen,
    )
}

/// Checks that the traces grow after they were resumed.
fn again(freezer: &Freezer, before: &Frozen) -> Check {
    thread::sleep(Duration::from_millis(20));
    let after = freezer.freeze(None, None);
    let changed = after
        .cpus
        .iter()
        .zip(&before.cpus)
        .filter(|(new, old)| new.bytes() != old.bytes());
    let changed = changed.count();
    check(
        "tracing goes on",
        changed != 0,
        format!("{changed} traces grew within 20 ms"),
    )
}
