//! Tests eBPF on user functions with a two-instruction program. The crash probe tests its own
//! requirements.
//!
//! Layouts: `union bpf_attr` in `include/uapi/linux/bpf.h`, command `BPF_PROG_LOAD`.

use super::Capability;
use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;

const BPF_PROG_LOAD: u32 = 5;
const PROG_TYPE_KPROBE: u32 = 2;

/// `mov r0, 0; exit`, as an array of `struct bpf_insn`.
static RETURN_ZERO: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];

/// The start of `union bpf_attr` for `BPF_PROG_LOAD`. The rest is zero.
#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    rest: [u64; 12],
}

/// Loads the program for kprobes and uprobes, which share a program type.
fn load() -> io::Result<OwnedFd> {
    static LICENSE: &CStr = c"GPL";
    let attributes = ProgLoad {
        prog_type: PROG_TYPE_KPROBE,
        insn_cnt: RETURN_ZERO.len() as u32,
        insns: RETURN_ZERO.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..ProgLoad::default()
    };
    let pointer: *const ProgLoad = &attributes;
    // SAFETY: `pointer` points to a live value of the given size with the layout of `bpf_attr`. The
    // addresses in it point to statics that outlive the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, pointer, size_of::<ProgLoad>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn refused(name: &'static str, error: &io::Error) -> Capability {
    let fix = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Some("run as root, or give CAP_BPF and CAP_PERFMON"),
        _ => None,
    };
    Capability::missing(name, format!("the kernel refuses it: {error}"), fix)
}

pub(super) fn all() -> Vec<Capability> {
    vec![uprobe()]
}

fn uprobe() -> Capability {
    const NAME: &str = "eBPF uprobe (function triggers)";
    match load() {
        Err(error) => refused(NAME, &error),
        Ok(_) if Path::new("/sys/bus/event_source/devices/uprobe").exists() => {
            Capability::works(NAME, "programs load, and the uprobe PMU exists")
        }
        Ok(_) => Capability::missing(NAME, "the kernel was built without the uprobe PMU", None),
    }
}
