//! The machine: mounts, kernel modules, kernel information, and restart.

use nix::fcntl::{OFlag, open};
use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::MsFlags;
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::stat::Mode;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

/// The file systems that every test needs.
const MOUNTED: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tracefs", "/sys/kernel/tracing"),
    ("bpf", "/sys/fs/bpf"),
    ("cgroup2", "/sys/fs/cgroup"),
    ("tmpfs", "/tmp"),
    ("tmpfs", "/run"),
    ("tmpfs", "/var"),
];

/// Mounts the file systems.
pub fn mount() -> Result<(), String> {
    for &(kind, place) in MOUNTED {
        fs::create_dir_all(place).map_err(|error| format!("cannot make {place}: {error}"))?;
        nix::mount::mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>)
            .map_err(|error| format!("cannot mount {kind} at {place}: {error}"))?;
    }
    Ok(())
}

/// Loads a kernel module.
pub fn load(path: &str) -> Result<(), String> {
    let file = open(path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|error| format!("cannot open {path}: {error}"))?;
    finit_module(file, c"", ModuleInitFlags::empty()).map_err(|error| format!("cannot load {path}: {error}"))
}

/// The kernel's version.
pub fn described() -> String {
    fs::read_to_string("/proc/version")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Seconds since power on.
pub fn uptime() -> String {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

/// Returns the kernel's messages about its clock: seconds since power on, and text.
pub fn clock() -> Vec<String> {
    let log = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/kmsg");
    let Ok(mut log) = log else { return Vec::new() };
    let mut said = Vec::new();
    let mut record = [0; 8192];
    // Each read returns one record.
    while let Ok(length) = log.read(&mut record) {
        let text = String::from_utf8_lossy(&record[..length]);
        let Some((fields, message)) = text.split_once(';') else {
            continue;
        };
        let micros = fields
            .split(',')
            .nth(2)
            .and_then(|micros| micros.parse::<f64>().ok());
        if let (Some(micros), Some(line)) = (micros, message.lines().next())
            && line.starts_with("tsc: ")
        {
            said.push(format!("{:.1} s: {line}", micros / 1e6));
        }
    }
    said
}

/// Restarts the machine, which the emulator treats as its end.
pub fn end() -> ExitCode {
    match reboot(RebootMode::RB_AUTOBOOT) {
        Ok(never) => match never {},
        Err(error) => {
            println!("vm-init: the machine does not end: {error}");
            ExitCode::FAILURE
        }
    }
}
