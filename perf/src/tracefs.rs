//! Tracepoints, which tracefs lists.
//!
//! If tracefs is not mounted, it is mounted temporarily without a path (`fsopen(2)`, `fsmount(2)`).
//! Other processes do not see this mount.

use crate::Error;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The usual mount points.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// Returns the id of a tracepoint, for `perf_event_attr.config`, such as that of `sched` and
/// `sched_switch`.
///
/// # Errors
///
/// [`Error::File`] with the path below tracefs if there is no such tracepoint, or the user may not
/// read tracefs.
pub fn tracepoint_id(group: &str, name: &str) -> Result<u64, Error> {
    read(group, name, "id")?.trim().parse().map_err(|_| Error::File {
        path: path_of(group, name, "id"),
        problem: "the tracepoint has no number".to_owned(),
    })
}

/// Returns the offset of a field of `size` bytes in the payload of a tracepoint.
///
/// # Errors
///
/// [`Error::File`] if there is no such tracepoint, or it has no such field.
pub fn field_offset(group: &str, name: &str, field: &str, size: usize) -> Result<usize, Error> {
    parse_offset(&read(group, name, "format")?, field, size).ok_or_else(|| Error::File {
        path: path_of(group, name, "format"),
        problem: format!("the tracepoint has no field '{field}' of {size} bytes"),
    })
}

/// Parses a `format` file, which has lines such as
/// `field:pid_t pid; offset:24; size:4; signed:1;`, with tabs.
fn parse_offset(format: &str, field: &str, size: usize) -> Option<usize> {
    let offset = |line: &str| {
        let mut parts = line.trim().split(';').map(str::trim);
        let declaration = parts.next()?.strip_prefix("field:")?;
        let is_field = declaration.split_whitespace().next_back() == Some(field);
        let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
        let is_as_long = parts.next()?.strip_prefix("size:")?.parse() == Ok(size);
        (is_field && is_as_long).then_some(offset)
    };
    format.lines().find_map(offset)
}

fn path_of(group: &str, name: &str, file: &str) -> PathBuf {
    Path::new("events").join(group).join(name).join(file)
}

fn read(group: &str, name: &str, file: &str) -> Result<String, Error> {
    let path = path_of(group, name, file);
    let is_word = |word: &str| !word.is_empty() && !word.contains(['/', '.', '\0']);
    if !is_word(group) || !is_word(name) {
        return Err(Error::File {
            path,
            problem: "this is no name of a tracepoint".to_owned(),
        });
    }
    let mut mounted = MOUNT_POINTS
        .iter()
        .filter_map(|mount| fs::read_to_string(Path::new(mount).join(&path)).ok());
    match mounted.next() {
        Some(text) => Ok(text),
        None => read_unmounted(&path).map_err(|error| Error::File {
            problem: match error.kind() {
                io::ErrorKind::NotFound => "the kernel has no such tracepoint".to_owned(),
                _ => format!("tracefs cannot be read: {error}"),
            },
            path,
        }),
    }
}

/// Reads a file of tracefs through a private mount.
fn read_unmounted(path: &Path) -> io::Result<String> {
    const FSOPEN_CLOEXEC: u32 = 1;
    const FSMOUNT_CLOEXEC: u32 = 1;
    const FSCONFIG_CMD_CREATE: u32 = 6;
    const NONE: usize = 0;
    // SAFETY: the name is a C string that outlives the call.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, c"tracefs".as_ptr(), FSOPEN_CLOEXEC) })?;
    // SAFETY: this command takes neither key nor value.
    let made = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            NONE,
            NONE,
            0,
        )
    };
    if made < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call takes numbers only.
    let mount = owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    // SAFETY: the path is a C string that outlives the call.
    let file = owned(i64::from(unsafe {
        libc::openat(mount.as_raw_fd(), path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC)
    }))?;
    let mut text = String::new();
    File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

/// Takes ownership of the descriptor that a system call returned.
fn owned(fd: i64) -> io::Result<OwnedFd> {
    match i32::try_from(fd) {
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_fields_are_parsed() {
        let format = "name: sched_waking\nID: 300\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n";
        assert_eq!(parse_offset(format, "pid", 4), Some(24));
        assert_eq!(parse_offset(format, "common_type", 4), None);
        assert_eq!(parse_offset(format, "prio", 4), None);
    }

    #[test]
    fn names_are_no_paths() {
        for (group, name) in [("..", "x"), ("sched", "../sched/sched_switch"), ("", "x")] {
            assert!(tracepoint_id(group, name).is_err());
        }
    }
}
