//! `/proc/PID/maps` and `/proc/PID/smaps` (proc_pid_maps(5), proc_pid_smaps(5)).

use crate::{RawTid, status};
use std::fs;

/// One mapping of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    /// The first address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Written to it, others see it.
    pub shared: bool,
    /// File offset, in bytes.
    pub offset: u64,
    /// Major and minor number of the file system's device.
    pub device: (u32, u32),
    /// 0: no file.
    pub inode: u64,
    /// The file, a name in brackets, or empty.
    pub path: String,
    /// From `smaps`: some page is private memory, new or modified.
    pub modified: bool,
    /// From `smaps`: the program wants it in no core (`MADV_DONTDUMP`), or it is device memory.
    pub undumpable: bool,
}

impl Map {
    /// In bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Whether a file lies behind it, which the kernel may have unlinked.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with('/')
    }
}

/// The mappings of a process; none when it is gone.
#[must_use]
pub fn maps(pid: RawTid) -> Vec<Map> {
    parse(&of_memory(pid, "maps"))
}

/// The mappings of a process with what a core has to know of them.
#[must_use]
pub fn smaps(pid: RawTid) -> Vec<Map> {
    parse(&of_memory(pid, "smaps"))
}

/// A list of what a process has in memory; where its first thread has ended, another has it.
fn of_memory(pid: RawTid, name: &str) -> Vec<u8> {
    let read = |tid: RawTid| fs::read(format!("/proc/{tid}/{name}")).unwrap_or_default();
    let found = read(pid);
    match found.is_empty() {
        true => read(status::with_memory(pid)),
        false => found,
    }
}

/// Reads the text of `maps` or `smaps`.
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
                "VmFlags" => map.undumpable = value.split(' ').any(|flag| flag == "dd" || flag == "io"),
                _ => {}
            }
        }
    }
    found
}

/// `START-END PERMS OFFSET DEV INODE PATH`.
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
    fn lines_of_every_kind_are_read() {
        let text =
            b"555555554000-555555558000 r-xp 00002000 fd:01 1234                       /tmp/a b (deleted)\n\
Size:                 16 kB\n\
Anonymous:             4 kB\n\
VmFlags: rd ex mr mw me dw sd\n\
7ffff7ff9000-7ffff7ffd000 r--p 00000000 00:00 0                          [vvar]\n\
VmFlags: rd mr pf io de dd sd\n\
7ffffffde000-7ffffffff000 rw-s 00000000 00:00 0 \n";
        let maps = parse(text);
        assert_eq!(maps.len(), 3);
        assert_eq!(maps[0].path, "/tmp/a b (deleted)");
        assert!(maps[0].executable && !maps[0].writable && maps[0].modified && maps[0].is_file());
        assert_eq!(
            (maps[0].offset, maps[0].size(), maps[0].inode),
            (0x2000, 0x4000, 1234)
        );
        assert_eq!(maps[0].device, (0xfd, 1));
        assert!(maps[1].undumpable && !maps[1].is_file());
        assert!(maps[2].shared && maps[2].path.is_empty());
    }

    #[test]
    fn our_own_maps_hold_this_function() {
        let here = lines_our_own as *const () as u64;
        let pid = std::process::id() as RawTid;
        assert!(
            maps(pid)
                .iter()
                .any(|map| map.executable && (map.start..map.end).contains(&here))
        );
    }

    fn lines_our_own() {}
}
