//! Tests hardware and software events by `perf_event_open(2)` on this process.

use super::Capability;
use perf_event_open_sys::bindings as sys;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const PMUS: &str = "/sys/bus/event_source/devices";

/// Opens a disabled event for the calling thread on any processor.
fn open(attributes: &mut sys::perf_event_attr) -> io::Result<OwnedFd> {
    attributes.size = size_of::<sys::perf_event_attr>() as u32;
    attributes.set_disabled(1);
    attributes.set_exclude_kernel(1);
    attributes.set_exclude_hv(1);
    // SAFETY: `attributes` lives through the call and contains its own size. The call only reads
    // it.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(attributes, 0, -1, -1, sys::PERF_FLAG_FD_CLOEXEC.into())
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns how an unprivileged user gets permission to open events, if permission is missing.
fn permission_fix(error: &io::Error) -> Option<&'static str> {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
        .then_some("run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=1`")
}

/// Reports an event of the processor's PMU that the kernel refuses.
fn refused(name: &'static str, what: &str, error: &io::Error) -> Capability {
    // The errors of perf_event_open(2) for events that no driver supports.
    let unknown = matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP)
    );
    if !unknown {
        return Capability::missing(name, format!("{what}: {error}"), permission_fix(error));
    }
    let why = if has_cpu_flag("hypervisor") {
        "the kernel has no driver for it; this is a virtual machine, and its host does not expose such counters"
    } else {
        "the kernel has no driver for it on this processor"
    };
    Capability::missing(
        name,
        format!("{what}: {why}"),
        Some("not needed: sampling uses the clock"),
    )
}

pub(super) fn intel_pt() -> Capability {
    const NAME: &str = "Intel Processor Trace";
    let text = match fs::read_to_string(format!("{PMUS}/intel_pt/type")) {
        Ok(text) => text,
        Err(_) => {
            let why = if has_cpu_flag("hypervisor") {
                "the kernel has no intel_pt PMU; this is a virtual machine, and its host does not expose PT"
            } else {
                "the kernel has no intel_pt PMU: the processor lacks PT, or the firmware or kernel disables it"
            };
            return Capability::missing(
                NAME,
                why,
                Some(
                    "record in software: `backtrail record --source software`, or `backtrail record --daemon` for services; `backtrail collect` saves other crashes without history",
                ),
            );
        }
    };
    let Ok(kind) = text.trim().parse() else {
        return Capability::missing(NAME, "the type of the intel_pt PMU is not a number", None);
    };
    let mut attributes = sys::perf_event_attr {
        type_: kind,
        ..Default::default()
    };
    match open(&mut attributes) {
        Ok(_) => Capability::works(NAME, "the intel_pt PMU opens"),
        Err(error) => Capability::missing(
            NAME,
            format!("the intel_pt PMU does not open: {error}"),
            permission_fix(&error),
        ),
    }
}

pub(super) fn branch_stack() -> Capability {
    const NAME: &str = "branch stack (LBR)";
    let mut attributes = sys::perf_event_attr {
        type_: sys::PERF_TYPE_HARDWARE,
        config: sys::PERF_COUNT_HW_CPU_CYCLES.into(),
        sample_type: sys::PERF_SAMPLE_BRANCH_STACK.into(),
        branch_sample_type: u64::from(sys::PERF_SAMPLE_BRANCH_ANY) | u64::from(sys::PERF_SAMPLE_BRANCH_USER),
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1_000_000;
    match open(&mut attributes) {
        Ok(_) => Capability::works(NAME, "cycles with a branch stack open"),
        Err(error) => refused(NAME, "cycles with a branch stack do not open", &error),
    }
}

pub(super) fn hardware_counter() -> Capability {
    const NAME: &str = "hardware counters";
    let mut attributes = sys::perf_event_attr {
        type_: sys::PERF_TYPE_HARDWARE,
        config: sys::PERF_COUNT_HW_INSTRUCTIONS.into(),
        ..Default::default()
    };
    match open(&mut attributes) {
        Ok(_) => Capability::works(NAME, "the instruction counter opens"),
        Err(error) => refused(NAME, "the instruction counter does not open", &error),
    }
}

pub(super) fn software_event() -> Capability {
    const NAME: &str = "sampling by clock";
    let mut attributes = sys::perf_event_attr {
        type_: sys::PERF_TYPE_SOFTWARE,
        config: sys::PERF_COUNT_SW_CPU_CLOCK.into(),
        ..Default::default()
    };
    match open(&mut attributes) {
        Ok(_) => Capability::works(NAME, "cpu-clock opens"),
        Err(error) => Capability::missing(
            NAME,
            format!("cpu-clock does not open: {error}"),
            permission_fix(&error),
        ),
    }
}

fn has_cpu_flag(flag: &str) -> bool {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|word| word == flag))
}
