//! Parses `/proc/PID/maps` and `/proc/PID/smaps` (proc_pid_maps(5), proc_pid_smaps(5)).

use crate::{RawTid, status};
use std::fs;

/// A mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// The start address.
    pub start: u64,
    /// The end address (exclusive).
    pub end: u64,
    /// Whether it may be read.
    pub readable: bool,
    /// Whether it may be written.
    pub writable: bool,
    /// Whether it may be executed.
    pub executable: bool,
    /// Whether it is a shared mapping (`MAP_SHARED`).
    pub shared: bool,
    /// The file offset in bytes.
    pub offset: u64,
    /// The major and minor number of the file system's device.
    pub device: (u32, u32),
    /// The inode number, or 0 without a file.
    pub inode: u64,
    /// The file path, a name in brackets, or an empty string.
    pub path: String,
    /// From `smaps`: whether some page is anonymous, either new or modified.
    pub modified: bool,
    /// From `smaps`: whether this private mapping is writable, or once was (`VM_ACCOUNT`).
    pub was_writable: bool,
    /// From `smaps`: whether the mapping is excluded from cores (`MADV_DONTDUMP`, or device
    /// memory).
    pub undumpable: bool,
}

impl Map {
    /// Returns the size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns whether the mapping has a file, possibly a deleted one.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/')
    }
}

/// Returns the mappings of a process, empty if it has ended.
#[must_use]
pub fn maps(pid: RawTid) -> Vec<Map> {
    parse(&of_memory(pid, "maps"))
}

/// Returns the mappings of a process with the fields that cores need.
#[must_use]
pub fn smaps(pid: RawTid) -> Vec<Map> {
    parse(&of_memory(pid, "smaps"))
}

/// Reads a file about process memory, through another thread if the first thread has ended.
fn of_memory(pid: RawTid, name: &str) -> Vec<u8> {
    let read = |tid: RawTid| fs::read(format!("/proc/{tid}/{name}")).unwrap_or_default();
    let found = read(pid);
    match found.is_empty() {
        true => read(status::thread_with_memory(pid)),
        false => found,
    }
}

/// Parses the text of `maps` or `smaps`.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Map> {
    let text = String::from_utf8_lossy(text);
    let mut found: Vec<Map> = Vec::new();
    for line in text.lines() {
        if let Some(map) = header(line) {
            found.push(map);
        } else if let (Some(map), Some((key, value))) = (found.last_mut(), line.split_once(':')) {
            match key {
                "Anonymous" => map.modified = value.trim() != "0 kB",
                "VmFlags" => {
                    let has = |wanted| value.split(' ').any(|flag| flag == wanted);
                    map.undumpable = has("dd") || has("io");
                    map.was_writable = has("ac");
                }
                _ => {}
            }
        }
    }
    found
}

/// Parses `START-END PERMS OFFSET DEV INODE PATH`.
fn header(line: &str) -> Option<Map> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.trim_start().split_once(' ')?;
        rest = after;
        Some(field)
    };
    let (start, end) = field()?.split_once('-')?;
    let permissions = field()?;
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let device = (
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode = field()?.parse().ok()?;
    Some(Map {
        start: hex(start)?,
        end: hex(end)?,
        readable: permissions.contains('r'),
        writable: permissions.contains('w'),
        executable: permissions.contains('x'),
        shared: permissions.contains('s'),
        offset,
        device,
        inode,
        path: rest.trim_start().replace("\\012", "\n"),
        ..Map::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines_of_every_kind_are_parsed() {
        let text =
            b"555555554000-555555558000 r-xp 00002000 fd:01 1234                       /tmp/a b (deleted)\n\
Size:                 16 kB\n\
Anonymous:             4 kB\n\
VmFlags: rd ex mr mw me dw ac sd\n\
7ffff7ff9000-7ffff7ffd000 r--p 00000000 00:00 0                          [vvar]\n\
VmFlags: rd mr pf io de dd sd\n\
7ffffffde000-7ffffffff000 rw-s 00000000 00:00 0 \n";
        let maps = parse(text);
        assert_eq!(maps.len(), 3);
        assert_eq!(maps[0].path, "/tmp/a b (deleted)");
        assert!(maps[0].executable && !maps[0].writable && maps[0].modified && maps[0].is_file());
        assert!(maps[0].was_writable && !maps[1].was_writable);
        assert_eq!(
            (maps[0].offset, maps[0].size(), maps[0].inode),
            (0x2000, 0x4000, 1234)
        );
        assert_eq!(maps[0].device, (0xfd, 1));
        assert!(maps[1].undumpable && !maps[1].is_file());
        assert!(maps[2].shared && maps[2].path.is_empty());
    }

    #[test]
    fn own_maps_contain_this_function() {
        let here = own_function as *const () as u64;
        let pid = std::process::id() as RawTid;
        assert!(
            maps(pid)
                .iter()
                .any(|map| map.executable && (map.start..map.end).contains(&here))
        );
    }

    fn own_function() {}
}
