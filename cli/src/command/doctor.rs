//! `backtrail doctor`.

mod self_test;

use crate::args::Doctor;
use crate::exit::Failure;
use crate::output::Output;
use backtrail_collector::pattern::Sysctl;
use backtrail_collector::probe::{self, AttachKind};
use backtrail_collector::realtime;
use backtrail_perf::capability::{self, Capability, CapabilityState};
use backtrail_pt::Tid;
use backtrail_recorder::Capabilities;
use serde::Serialize;
use std::io::{self, Write};
use std::path::Path;

#[derive(Serialize)]
struct DoctorReport {
    summary: String,
    capabilities: Vec<CapabilityRow>,
}

#[derive(Serialize)]
struct CapabilityRow {
    name: String,
    state: &'static str,
    reason: String,
    fix: Option<String>,
}

/// The directory of `core_pattern` and its limit.
const KERNEL: &str = "/proc/sys/kernel";
/// The collector's default priority.
const PRIORITY: u8 = 50;

/// Checks the machine, and prints what works, why the rest does not, and how to fix it.
pub fn run(args: &Doctor) -> Result<(), Failure> {
    if args.self_test {
        return self_test::run(args.json);
    }
    let mut rows: Vec<CapabilityRow> = capability::all().into_iter().map(row).collect();
    rows.extend(probe::try_kinds().into_iter().map(probe_row));
    rows.push(core_pattern_row(&Sysctl::default(), Path::new(KERNEL)));
    rows.extend(recorder_rows(&backtrail_recorder::capabilities()));
    #[cfg(feature = "profiler")]
    rows.push(profiler_row(&backtrail_profiler::stack_support()));
    rows.push(priority_row(try_priority()));
    // This check comes last, because it locks all later memory of this process.
    rows.push(memory_row(realtime::lock_memory()));
    let mut output = Output::new();
    let summary = summary(&rows);
    if args.json {
        let report = DoctorReport {
            summary,
            capabilities: rows,
        };
        output.json("backtrail-doctor/1", &report)?;
        return output.finish();
    }
    writeln!(output, "{summary}\n")?;
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

/// Returns what the machine can do, in one line.
fn summary(rows: &[CapabilityRow]) -> String {
    let works = |name: &str| {
        rows.iter()
            .any(|row| row.name.starts_with(name) && row.state == "works")
    };
    let recorder = if works("Intel Processor Trace") {
        "record programs with Intel PT"
    } else {
        "record programs in software (no Intel PT)"
    };
    let uses = [
        (
            recorder,
            works("Intel Processor Trace") || works("software recorder"),
        ),
        (
            "save crashes of services",
            works("crash probe") && works("holding a crashing process"),
        ),
        ("sample profiles", works("profiler") || works("sampling by clock")),
    ];
    let list = |wanted: bool| {
        let names = uses
            .iter()
            .filter(|(_, can)| *can == wanted)
            .map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    match (list(true).as_str(), list(false).as_str()) {
        (can, "") => format!("This machine can: {can}."),
        ("", cannot) => format!("This machine cannot: {cannot}."),
        (can, cannot) => format!("This machine can: {can}. It cannot: {cannot}."),
    }
}

fn row(capability: Capability) -> CapabilityRow {
    let (state, reason) = match capability.state {
        CapabilityState::Works(found) => ("works", found),
        CapabilityState::Missing(reason) => ("missing", reason),
        CapabilityState::Untried(reason) => ("untried", reason),
    };
    CapabilityRow {
        name: capability.name.to_owned(),
        state,
        reason,
        fix: capability.fix,
    }
}

/// Reports one kind of crash probe. The collector uses the first kind that works.
fn probe_row((kind, result): (AttachKind, Result<(), String>)) -> CapabilityRow {
    CapabilityRow {
        name: format!("crash probe by {kind}"),
        state: if result.is_ok() { "works" } else { "missing" },
        fix: result
            .as_ref()
            .err()
            .map(|reason| probe_fix(kind, reason, effective_capabilities())),
        reason: result.err().unwrap_or_else(|| "attached and detached".to_owned()),
    }
}

/// Returns how to make this kind of probe work, given the reason of its failure and the process's
/// capabilities (`linux/capability.h`).
fn probe_fix(kind: AttachKind, reason: &str, capabilities: u64) -> String {
    const CAP_SYS_ADMIN: u64 = 1 << 21;
    const CAP_PERFMON: u64 = 1 << 38;
    const CAP_BPF: u64 = 1 << 39;
    let lacks = |capability: u64| capabilities & (CAP_SYS_ADMIN | capability) == 0;
    if lacks(CAP_PERFMON) || kind != AttachKind::PerfTracepoint && lacks(CAP_BPF) {
        return match kind {
            AttachKind::PerfTracepoint => "run as root, or grant CAP_PERFMON".to_owned(),
            _ => "run as root, or grant CAP_BPF and CAP_PERFMON".to_owned(),
        };
    }
    if lacks(0) && reason.contains("tracefs") {
        return "run as root, or grant CAP_DAC_READ_SEARCH and mount tracefs on /sys/kernel/tracing"
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
    format!("a kernel built with {option}; not needed if another crash probe works")
}

/// Returns `CapEff` of this process, or 0 if it cannot be read.
fn effective_capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .unwrap_or(0)
}

/// Reports whether the kernel can pass a crashing process to the collector, and which program it
/// passes it to now.
fn core_pattern_row(sysctl: &Sysctl, kernel: &Path) -> CapabilityRow {
    let row = |state, reason, fix: Option<&str>| CapabilityRow {
        name: "holding a crashing process".to_owned(),
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
    let current = format!("core_pattern is {pattern:?}, core_pipe_limit {}", limit.trim());
    let owner = sysctl.installed_by();
    // The file is only opened: nothing is written.
    if let Err(error) = std::fs::File::options().write(true).open(&path) {
        let runs = owner.is_some_and(|owner| owner.is_locked());
        return row(
            if runs { "works" } else { "missing" },
            match runs {
                true => format!("a running collector does so: {current}"),
                false => format!("{} cannot be written: {error}; {current}", path.display()),
            },
            (!runs).then_some("run the collector as root on the host, not in a container"),
        );
    }
    match owner {
        Some(owner) if owner.is_locked() => {
            row("works", format!("a running collector does so: {current}"), None)
        }
        Some(_) => row(
            "works",
            format!("core_pattern can be set, and belongs to a collector that no longer runs: {current}"),
            Some("`backtrail collect --restore`, or start the collector again"),
        ),
        None => row("works", format!("core_pattern can be set: {current}"), None),
    }
}

/// Reports which programs the profiler can sample, and which part of their stacks.
#[cfg(feature = "profiler")]
fn profiler_row(support: &Result<backtrail_profiler::StackSupport, String>) -> CapabilityRow {
    let row = |state, reason: String, fix: Option<&str>| CapabilityRow {
        name: "profiler".to_owned(),
        state,
        reason,
        fix: fix.map(str::to_owned),
    };
    let fix = "run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=-1`";
    match support {
        Err(reason) => row("missing", reason.clone(), Some(fix)),
        Ok(support) => {
            let kernel = match support.kernel {
                true => "stacks of programs and of the kernel",
                false => "stacks of programs",
            };
            let processes = match support.all {
                true => "all processes",
                false => "processes of this user only",
            };
            let walk = match &support.no_ebpf {
                None => "in the kernel by eBPF".to_owned(),
                Some(reason) => format!("by copies of stacks, not by eBPF: {reason}"),
            };
            let read = match &support.no_priority {
                None => "with real-time priority".to_owned(),
                Some(reason) => {
                    format!("without real-time priority ({reason}), so a busy machine may lose some")
                }
            };
            let reason = format!(
                "samples {processes} with {kernel}; walks programs without frame pointers by .eh_frame {walk}; \
                 reads samples {read}"
            );
            let is_complete = support.kernel && support.all;
            row("works", reason, (!is_complete).then_some(fix))
        }
    }
}

/// Tries the priority on a thread that exits at once.
fn try_priority() -> io::Result<()> {
    let thread = std::thread::Builder::new().spawn(|| realtime::prioritize(Tid(0), PRIORITY))?;
    thread
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
}

fn priority_row(result: io::Result<()>) -> CapabilityRow {
    trial_row(
        "real-time priority",
        result,
        format!("a thread can have priority {PRIORITY}"),
        "run as root, or grant CAP_SYS_NICE; in a container, also allow real-time scheduling (without it, crashes are read later)",
    )
}

fn memory_row(result: io::Result<()>) -> CapabilityRow {
    trial_row(
        "locked memory",
        result,
        "used memory can be locked".to_owned(),
        "run as root, or grant CAP_IPC_LOCK (LimitMEMLOCK=infinity)",
    )
}

fn trial_row(name: &str, result: io::Result<()>, works: String, fix: &str) -> CapabilityRow {
    CapabilityRow {
        name: name.to_owned(),
        state: if result.is_ok() { "works" } else { "missing" },
        fix: result.is_err().then(|| fix.to_owned()),
        reason: result.err().map_or(works, |error| error.to_string()),
    }
}

/// Reports what the software recorder needs: starting a program under ptrace, stepping, attaching.
fn recorder_rows(found: &Capabilities) -> Vec<CapabilityRow> {
    let row = |name: &str, result: &Result<(), String>, works: &str, fix: Option<&str>| CapabilityRow {
        name: name.to_owned(),
        state: if result.is_ok() { "works" } else { "missing" },
        reason: result.clone().err().unwrap_or_else(|| works.to_owned()),
        fix: fix.map(str::to_owned),
    };
    let attach = match found.ptrace_scope {
        Some(scope) => format!("kernel.yama.ptrace_scope is {scope}"),
        None => "no security module restricts attaching by ptrace".to_owned(),
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
    fn current_crash_handler_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let (at, run) = (directory.path(), directory.path().join("run"));
        let row = |pattern: &str| {
            std::fs::write(at.join("core_pattern"), pattern).unwrap();
            core_pattern_row(&Sysctl::at(at), at)
        };
        std::fs::write(at.join("core_pipe_limit"), "16\n").unwrap();
        let handler = row("core\n");
        assert_eq!((handler.state, handler.fix), ("works", None));
        assert!(
            handler.reason.contains("\"core\", core_pipe_limit 16"),
            "{}",
            handler.reason
        );
        let ours = format!("|{}/handler core-handler %P\n", run.display());
        assert!(row(&ours).reason.contains("no longer runs"));
        let _lock = backtrail_collector::Runtime::new(&run).lock().unwrap();
        assert!(row(&ours).reason.contains("a running collector"));
        std::fs::remove_file(at.join("core_pattern")).unwrap();
        assert_eq!(core_pattern_row(&Sysctl::at(at), at).state, "missing");
    }

    #[test]
    fn fix_names_what_is_missing() {
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
