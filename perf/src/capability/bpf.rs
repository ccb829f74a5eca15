//! eBPF attach types, each tried with a two-instruction program where that needs no compiler.
//!
//! Layouts: `union bpf_attr` in `include/uapi/linux/bpf.h`, commands `BPF_PROG_LOAD` and
//! `BPF_RAW_TRACEPOINT_OPEN`. The types that name a kernel function by its BTF id (BTF
//! tracepoint, fentry, LSM) want a BTF reader: their ground is reported, they are not tried.

use super::{Capability, State};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

const BPF_PROG_LOAD: u32 = 5;
const BPF_RAW_TRACEPOINT_OPEN: u32 = 17;
const PROG_TYPE_KPROBE: u32 = 2;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;

/// `mov r0, 0; exit`, as `struct bpf_insn` lays them out.
static RETURN_ZERO: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];

/// The head of `union bpf_attr` for `BPF_PROG_LOAD`; the rest is zero.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    rest: [u64; 12],
}

/// The head of `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
#[derive(Default)]
struct RawTracepoint {
    name: u64,
    prog_fd: u32,
    padding: u32,
    cookie: u64,
}

fn bpf<T>(command: u32, attributes: &T) -> io::Result<OwnedFd> {
    let attributes: *const T = attributes;
    // SAFETY: `attributes` points at a live value of the size given, laid out as `bpf_attr`; the
    // addresses in it point at statics that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn load(prog_type: u32) -> io::Result<OwnedFd> {
    static LICENSE: &CStr = c"GPL";
    bpf(
        BPF_PROG_LOAD,
        &ProgLoad {
            prog_type,
            insn_cnt: RETURN_ZERO.len() as u32,
            insns: RETURN_ZERO.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
            ..ProgLoad::default()
        },
    )
}

fn refused(name: &'static str, error: &io::Error) -> Capability {
    let fix = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Some("run as root, or give CAP_BPF and CAP_PERFMON"),
        _ => None,
    };
    Capability::missing(name, format!("the kernel refuses it: {error}"), fix)
}

pub(super) fn all() -> Vec<Capability> {
    let pmu = |name: &str| Path::new("/sys/bus/event_source/devices").join(name).exists();
    let probe = |name: &'static str, device: &str| match load(PROG_TYPE_KPROBE) {
        Err(error) => refused(name, &error),
        Ok(_) if pmu(device) => {
            Capability::works(name, format!("programs load, and the {device} PMU is there"))
        }
        Ok(_) => Capability::missing(
            name,
            format!("the kernel has no {device} PMU: it was built without"),
            None,
        ),
    };
    vec![
        raw_tracepoint(),
        probe("eBPF kprobe", "kprobe"),
        probe("eBPF uprobe", "uprobe"),
        btf(),
    ]
}

fn raw_tracepoint() -> Capability {
    const NAME: &str = "eBPF raw tracepoint (crash probe)";
    static TRACEPOINT: &CStr = c"signal_deliver";
    let attached = load(PROG_TYPE_RAW_TRACEPOINT).and_then(|program| {
        let attributes = RawTracepoint {
            name: TRACEPOINT.as_ptr() as u64,
            prog_fd: program.as_raw_fd() as u32,
            ..RawTracepoint::default()
        };
        bpf(BPF_RAW_TRACEPOINT_OPEN, &attributes)
    });
    match attached {
        Ok(_) => Capability::works(NAME, "attached to signal_deliver, and let go"),
        Err(error) => refused(NAME, &error),
    }
}

fn btf() -> Capability {
    const NAME: &str = "eBPF BTF tracepoint, fentry, LSM";
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        let why = "the kernel's BTF is there; these attach by BTF id, which only a loader can try";
        return Capability {
            name: NAME,
            state: State::Untried(why.to_owned()),
            fix: None,
        };
    }
    Capability::missing(NAME, "the kernel has no BTF (/sys/kernel/btf/vmlinux)", None)
}
