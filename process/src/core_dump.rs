//! Determines the contents of a core by the rules of the kernel (core(5)).

use crate::code_image::within;
use crate::maps::{self, Map};
use crate::{RawTid, memory, status};
use backtrail_bundle::core::{CoreContents, MappedFile, ProcessInfo, Segment};
use backtrail_pt::{Avma, FileOffset};

/// The bits of `coredump_filter`.
mod filter {
    pub(super) const ANONYMOUS_PRIVATE: u32 = 1 << 0;
    pub(super) const ANONYMOUS_SHARED: u32 = 1 << 1;
    pub(super) const FILE_PRIVATE: u32 = 1 << 2;
    pub(super) const FILE_SHARED: u32 = 1 << 3;
    pub(super) const ELF_HEADERS: u32 = 1 << 4;
}

/// Describes the core of a stopped process, without its threads. The areas in `added`, each a start
/// and a size, are left out.
#[must_use]
pub fn describe(pid: RawTid, added: &[(u64, u64)]) -> CoreContents {
    let filter = status::core_filter(pid);
    let mut maps = maps::smaps(pid);
    maps.retain(|map| !within(added, map.start));
    let [ppid, uid, gid] = status::parent_and_owner(pid);
    CoreContents {
        process: ProcessInfo {
            pid: pid as u32,
            ppid,
            uid,
            gid,
            name: status::thread_name(pid, pid).unwrap_or_default(),
            arguments: status::command_line(pid).join(" "),
        },
        threads: Vec::new(),
        auxv: status::auxiliary_vector(pid),
        files: maps.iter().filter(|map| map.is_file()).map(mapped_file).collect(),
        segments: maps
            .iter()
            .filter(|map| map.path != "[vsyscall]")
            .map(|map| Segment {
                start: Avma(map.start),
                size: map.size(),
                saved: saved(map, filter, pid),
                readable: map.readable,
                writable: map.writable,
                executable: map.executable,
            })
            .collect(),
    }
}

/// Returns the number of memory bytes in a core with these contents.
#[must_use]
pub fn size(contents: &CoreContents) -> u64 {
    contents
        .segments
        .iter()
        .fold(0, |size, segment| size.saturating_add(segment.saved))
}

fn mapped_file(map: &Map) -> MappedFile {
    MappedFile {
        start: Avma(map.start),
        end: Avma(map.end),
        offset: FileOffset(map.offset),
        path: map.path.clone(),
    }
}

/// Returns the number of bytes to save of a mapping, by the rules of the kernel's `vma_dump_size`.
fn saved(map: &Map, filter: u32, pid: RawTid) -> u64 {
    let wanted = |bit: u32| filter & bit != 0;
    let whole = if map.path == "[vdso]" {
        true
    } else if map.undumpable {
        false
    } else if map.shared {
        wanted(if map.is_file() {
            filter::FILE_SHARED
        } else {
            filter::ANONYMOUS_SHARED
        })
    } else if map.modified || !map.is_file() {
        wanted(filter::ANONYMOUS_PRIVATE)
    } else {
        wanted(filter::FILE_PRIVATE)
    };
    if whole {
        return map.size();
    }
    let headers = wanted(filter::ELF_HEADERS) && map.is_file() && map.offset == 0 && map.readable;
    if headers && starts_as_elf(pid, map.start) {
        crate::PAGE
    } else {
        0
    }
}

fn starts_as_elf(pid: RawTid, address: u64) -> bool {
    let mut magic = [0; 4];
    memory::read(pid, address, &mut magic) == magic.len() && magic == *b"\x7fELF"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coredump_filter_selects_saved_mappings() {
        let pid = std::process::id() as RawTid;
        let map = |path: &str, inode, shared, modified| Map {
            end: 0x3000,
            path: path.to_owned(),
            inode,
            shared,
            modified,
            readable: true,
            ..Map::default()
        };
        let usual = |map: Map| saved(&map, 0x33, pid);
        assert_eq!(usual(map("", 0, false, true)), 0x3000);
        assert_eq!(usual(map("[heap]", 0, false, false)), 0x3000);
        assert_eq!(usual(map("/lib/x", 7, false, true)), 0x3000, "modified data");
        assert_eq!(usual(map("/lib/x", 7, false, false)), 0, "in the file");
        assert_eq!(usual(map("/dev/shm/x", 7, true, false)), 0);
        assert_eq!(
            usual(Map {
                undumpable: true,
                ..map("", 0, false, true)
            }),
            0
        );
        assert_eq!(saved(&map("", 0, false, true), 0, pid), 0);
    }
}
