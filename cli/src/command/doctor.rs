//! `backtrail doctor`.

mod self_test;

use crate::args::Doctor;
use crate::exit::Failure;
use crate::output::Output;
use backtrail_collector::pattern::Sysctl;
use backtrail_collector::probe::{self, AttachKind};
use backtrail_collector::realtime;
use backtrail_perf::capability::{self, Capability, State};
use backtrail_pt::Tid;
use backtrail_recorder::Capabilities;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

#[derive(Serialize)]
struct Report {
    capabilities: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    state: &'static str,
    reason: String,
    fix: Option<String>,
}

/// Where `core_pattern` and its limit stand.
const KERNEL: &str = "/proc/sys/kernel";
/// The collector's own, unless its configuration says otherwise.
const PRIORITY: u8 = 50;

/// Asks the machine and prints what it can do, why not, and the fix.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    if args.self_test {
        return self_test::run(args.json);
    }
    let mut rows: Vec<Row> = capability::all().into_iter().map(row).collect();
    rows.extend(probe::trial().into_iter().map(probe_row));
    rows.push(keep_row(&Sysctl::default(), Path::new(KERNEL)));
    rows.extend(recorder_rows(&backtrail_recorder::capabilities()));
    rows.push(priority_row(prioritized()));
    // The last: from here on all that this process uses stays in memory.
    rows.push(memory_row(realtime::lock_memory()));
    let mut output = Output::new();
    if args.json {
        output.json("backtrail-doctor/1", &Report { capabilities: rows })?;
        return output.finish();
    }
    for row in &rows {
        let sign = match row.state {
            "works" => "yes",
            "missing" => "no ",
            _ => "?  ",
        };
        writeln!(output, "{sign}  {}: {}", row.name, row.reason)?;
        if let Some(fix) = &row.fix {
            writeln!(output, "       fix: {fix}")?;
        }
    }
    output.finish()
}

fn row(capability: Capability) -> Row {
    let (state, reason) = match capability.state {
        State::Works(found) => ("works", found),
        State::Missing(why) => ("missing", why),
        State::Untried(why) => ("untried", why),
    };
    Row {
        name: capability.name.to_owned(),
        state,
        reason,
        fix: capability.fix,
    }
}

/// A way of hearing of crashes. One that works is enough: the collector takes the first of them.
fn probe_row((kind, result): (AttachKind, Result<(), String>)) -> Row {
    Row {
        name: format!("crash probe by {kind}"),
        state: if result.is_ok() { "works" } else { "missing" },
        fix: result
            .as_ref()
            .err()
            .map(|reason| probe_fix(kind, reason, effective_capabilities())),
        reason: result.err().unwrap_or_else(|| "attached, and let go".to_owned()),
    }
}

/// Returns the fix for a kind of probe that failed for this reason.
///
/// `capabilities` has one bit for each capability of the process (`linux/capability.h`).
fn probe_fix(kind: AttachKind, reason: &str, capabilities: u64) -> String {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    const CAP_BPF: u64 = 1 << 39;
    let lacks = |capability: u64| capabilities & (CAP_SYS_ADMIN | capability) == 0;
    if lacks(CAP_PERFMON) || kind != AttachKind::PerfTracepoint && lacks(CAP_BPF) {
        return match kind {
            AttachKind::PerfTracepoint => "run as root, or give CAP_PERFMON".to_owned(),
            _ => "run as root, or give CAP_BPF and CAP_PERFMON".to_owned(),
        };
    }
    if lacks(0) && reason.contains("tracefs") {
        return "run as root, or give CAP_DAC_READ_SEARCH and mount tracefs on /sys/kernel/tracing"
            .to_owned();
    }
    let option = match kind {
        AttachKind::BtfTracepoint | AttachKind::RawTracepoint => {
            "CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"
        }
        AttachKind::Fentry => "CONFIG_FUNCTION_TRACER, CONFIG_DYNAMIC_FTRACE and CONFIG_DEBUG_INFO_BTF",
        AttachKind::Kprobe => "CONFIG_KPROBE_EVENTS and CONFIG_DEBUG_INFO_BTF",
        AttachKind::Tracepoint | AttachKind::PerfTracepoint => "CONFIG_EVENT_TRACING",
    };
    format!("a kernel built with {option}; not needed while another kind works")
}

/// `CapEff` of this process; none, if it cannot be read.
fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

/// Whether the kernel would hand a crashing process to the collector, and to whom it does so now.
fn keep_row(sysctl: &Sysctl, kernel: &Path) -> Row {
    let row = |state, reason, fix: Option<&str>| Row {
        name: "keeping a crashing process".to_owned(),
        state,
        reason,
        fix: fix.map(str::to_owned),
    };
    let path = kernel.join("core_pattern");
    let pattern = match sysctl.pattern() {
        Ok(pattern) => pattern,
        Err(error) => return row("missing", error.to_string(), None),
    };
    let limit = std::fs::read_to_string(kernel.join("core_pipe_limit")).unwrap_or_default();
    let stands = format!("core_pattern is {pattern:?}, core_pipe_limit {}", limit.trim());
    let owner = sysctl.installed_by();
    // Opened and closed again: only what is written counts.
    if let Err(error) = std::fs::File::options().write(true).open(&path) {
        let runs = owner.is_some_and(|owner| owner.is_occupied());
        return row(
            if runs { "works" } else { "missing" },
            match runs {
                true => format!("a running collector does so: {stands}"),
                false => format!("{} cannot be written: {error}; {stands}", path.display()),
            },
            (!runs).then_some("run the collector as root on the host, not in a container"),
        );
    }
    match owner {
        Some(owner) if owner.is_occupied() => {
            row("works", format!("a running collector does so: {stands}"), None)
        }
        Some(_) => row(
            "works",
            format!("core_pattern can be set, and belongs to a collector that was killed: {stands}"),
            Some("`backtrail collect --restore`, or start the collector again"),
        ),
        None => row("works", format!("core_pattern can be set: {stands}"), None),
    }
}

/// Tries the priority on a thread that ends at once.
fn prioritized() -> io::Result<()> {
    let tried = std::thread::Builder::new().spawn(|| realtime::prioritize(Tid(0), PRIORITY))?;
    tried
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it ended")))
}

fn priority_row(result: io::Result<()>) -> Row {
    trial_row(
        "real-time priority",
        result,
        format!("a thread can have priority {PRIORITY}"),
        "run as root, or give CAP_SYS_NICE; in a container, real-time time too (without it crashes are read later)",
    )
}

fn memory_row(result: io::Result<()>) -> Row {
    trial_row(
        "locked memory",
        result,
        "what is used can be kept in memory".to_owned(),
        "run as root, or give CAP_IPC_LOCK (LimitMEMLOCK=infinity)",
    )
}

fn trial_row(name: &str, result: io::Result<()>, works: String, fix: &str) -> Row {
    Row {
        name: name.to_owned(),
        state: if result.is_ok() { "works" } else { "missing" },
        fix: result.is_err().then(|| fix.to_owned()),
        reason: result.err().map_or(works, |error| error.to_string()),
    }
}

/// Requirements of the software recorder: starting a program, stepping, attaching.
fn recorder_rows(found: &Capabilities) -> Vec<Row> {
    let row = |name: &str, result: &Result<(), String>, works: &str, fix: Option<&str>| Row {
        name: name.to_owned(),
        state: if result.is_ok() { "works" } else { "missing" },
        reason: result.clone().err().unwrap_or_else(|| works.to_owned()),
        fix: fix.map(str::to_owned),
    };
    let attach = match found.ptrace_scope {
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}"),
        None => "no security module restricts whom ptrace may attach to".to_owned(),
    };
    vec![
        row(
            "software recorder",
            &found.trace,
            "a program can be started under ptrace",
            None,
        ),
        row(
            "single-stepping",
            &found.step,
            "a step runs one instruction",
            None,
        ),
        row(
            "recording a running process",
            &found.trace,
            &attach,
            found.attach_fix(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_a_crashing_process_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let (at, run) = (directory.path(), directory.path().join("run"));
        let row = |pattern: &str| {
            std::fs::write(at.join("core_pattern"), pattern).unwrap();
            keep_row(&Sysctl::at(at), at)
        };
        std::fs::write(at.join("core_pipe_limit"), "16\n").unwrap();
        let told = row("core\n");
        assert_eq!((told.state, told.fix), ("works", None));
        assert!(
            told.reason.contains("\"core\", core_pipe_limit 16"),
            "{}",
            told.reason
        );
        let ours = format!("|{}/handler core-handler %P\n", run.display());
        assert!(row(&ours).reason.contains("was killed"));
        let _tenancy = backtrail_collector::Runtime::new(&run).occupy().unwrap();
        assert!(row(&ours).reason.contains("a running collector"));
        std::fs::remove_file(at.join("core_pattern")).unwrap();
        assert_eq!(keep_row(&Sysctl::at(at), at).state, "missing");
    }

    #[test]
    fn a_fix_asks_for_what_is_lacking() {
        for kind in AttachKind::ALL {
            assert!(probe_fix(kind, "", 0).starts_with("run as root"), "{kind}");
            assert!(
                probe_fix(kind, "", u64::MAX).starts_with("a kernel built with"),
                "{kind}"
            );
        }
        let perfmon = 1 << 38;
        assert!(probe_fix(AttachKind::Kprobe, "", perfmon).contains("CAP_BPF"));
        let kind = AttachKind::PerfTracepoint;
        assert!(probe_fix(kind, "", perfmon).starts_with("a kernel"));
        assert!(probe_fix(kind, "cannot be read in tracefs", perfmon).contains("CAP_DAC_READ_SEARCH"));
    }
}
