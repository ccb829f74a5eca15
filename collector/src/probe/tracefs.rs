//! Opens tracepoints as perf events.

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

/// Returns the id of a tracepoint, for `perf_event_attr.config`.
pub(super) fn id(category: &str, name: &str) -> Result<u64, String> {
    let id = backtrail_perf::tracefs::tracepoint_id(category, name);
    id.map_err(|error| format!("the tracepoint's number cannot be read in tracefs: {error}"))
}

/// Takes ownership of the descriptor that a system call returned.
fn owned(fd: i64) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a perf event for all processes on one processor.
pub(super) fn open(attributes: &mut sys::perf_event_attr, cpu: u32) -> io::Result<OwnedFd> {
    attributes.size = size_of::<sys::perf_event_attr>() as u32;
    // SAFETY: `attributes` lives through the call and contains its own size.
    let fd =
        unsafe { perf::perf_event_open(attributes, -1, cpu as i32, -1, sys::PERF_FLAG_FD_CLOEXEC.into()) };
    owned(fd.into())
}

/// Returns the online processors, from `/sys/devices/system/cpu/online`.
pub(super) fn online() -> Vec<u32> {
    parse_list(&fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default())
}

/// Parses a list such as `0-3,6`. Parts that are not numbers are skipped.
fn parse_list(text: &str) -> Vec<u32> {
    /// Maximum of `CONFIG_NR_CPUS`.
    const MAX_CPUS: u32 = 8192;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok().filter(|last: &u32| *last < MAX_CPUS)?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// Attaches an eBPF program to a tracepoint on all processors, until the descriptor is closed.
pub(super) fn attach_program(category: &str, name: &str, program: BorrowedFd<'_>) -> Result<OwnedFd, String> {
    let mut attributes = sys::perf_event_attr {
        type_: sys::PERF_TYPE_TRACEPOINT,
        config: id(category, name)?,
        ..Default::default()
    };
    let cpu = online().first().copied().unwrap_or(0);
    let event = open(&mut attributes, cpu)
        .map_err(|error| format!("the kernel does not open the tracepoint's event: {error}"))?;
    // SAFETY: both descriptors are open; the call takes the second as a number.
    let set = unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program.as_raw_fd() as u32) };
    if set < 0 {
        let error = io::Error::last_os_error();
        return Err(format!(
            "the kernel does not call the program at the tracepoint: {error}"
        ));
    }
    // SAFETY: the descriptor is open.
    if unsafe { perf::ioctls::ENABLE(event.as_raw_fd(), 0) } < 0 {
        let error = io::Error::last_os_error();
        return Err(format!(
            "the kernel does not enable the tracepoint's event: {error}"
        ));
    }
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_parsed() {
        assert_eq!(parse_list("0-2,5\n"), [0, 1, 2, 5]);
        assert!(parse_list("").is_empty());
        assert_eq!(parse_list("x,1-4294967295,7"), [7]);
    }
}
