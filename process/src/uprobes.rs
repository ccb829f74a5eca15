//! The code of a program below the breakpoints of uprobes.
//!
//! For a uprobe, the kernel writes a breakpoint into a private copy of the page of each process,
//! and executes the replaced instruction elsewhere. Recent kernels replace a NOP of five bytes by a
//! call (`arch/x86/kernel/uprobes.c`). The program's own code is in the file.

use crate::code_image::open;
use crate::maps::{self, Map};
use crate::{PAGE, RawTid, status};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The name of the memory in which the kernel executes replaced instructions.
const AREA: &str = "[uprobes]";
/// The breakpoint instruction.
const INT3: u8 = 0xcc;
/// The first byte of a call.
const CALL: u8 = 0xe8;
/// The NOP that can become a call.
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];

/// Returns whether a uprobe was hit in a process with these mappings.
#[must_use]
pub fn were_hit(maps: &[Map]) -> bool {
    maps.iter().any(|map| map.path == AREA)
}

/// Replaces the breakpoints of uprobes in `code`, which was read from address `page` of a process,
/// by the bytes of the file. `map` is the mapping of the page.
///
/// Code that the program may have changed itself stays.
pub fn remove_breakpoints(pid: RawTid, map: &Map, page: u64, code: &mut [u8]) {
    let may_have = map.is_file() && !map.shared && !map.writable && code.contains(&INT3);
    if !may_have || !is_private_copy(pid, page) {
        return;
    }
    let Some(offset) = page.checked_sub(map.start).map(|at| at + map.offset) else {
        return;
    };
    let Some(file) = open(pid, map) else { return };
    let mut in_file = vec![0; code.len()];
    let read = file.read_at(&mut in_file, offset).unwrap_or(0);
    // Memory past the end of the file is zero, as in the mapping.
    let restored = restored(code, &in_file).filter(|_| read > 0);
    let Some(restored) = restored.filter(|restored| restored != code) else {
        return;
    };
    let current = maps::smaps(pid);
    let mut of_page = current.iter().filter(|map| (map.start..map.end).contains(&page));
    let was_writable = of_page.next().is_none_or(|map| map.was_writable);
    if !was_writable || were_hit(&current) {
        code.copy_from_slice(&restored);
    }
}

/// Returns `code` with the bytes of the file instead of breakpoints. `None`: the code differs from
/// the file in other ways too.
fn restored(code: &[u8], in_file: &[u8]) -> Option<Vec<u8>> {
    let mut restored = code.to_vec();
    let mut at = 0;
    while at < code.len() {
        let (now, before) = (code.get(at..)?, in_file.get(at..)?);
        let len = match (now, before) {
            ([INT3 | CALL, ..], before) if before.starts_with(&NOP5) => NOP5.len(),
            ([one, ..], [other, ..]) if one == other || *one == INT3 => 1,
            _ => return None,
        };
        restored
            .get_mut(at..at + len)?
            .copy_from_slice(before.get(..len)?);
        at += len;
    }
    Some(restored)
}

/// Returns whether a page of a private mapping is no longer that of the file.
fn is_private_copy(pid: RawTid, page: u64) -> bool {
    /// The page is of a file, or of shared memory (`PM_FILE`, proc_pid_pagemap(5)).
    const OF_FILE: u64 = 1 << 61;
    let mut entry = [0; 8];
    File::open(format!("/proc/{}/pagemap", status::thread_with_memory(pid)))
        .and_then(|pages| pages.read_exact_at(&mut entry, page / PAGE * 8))
        .is_ok_and(|()| u64::from_ne_bytes(entry) & OF_FILE == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: [u8; 9] = [0x55, 0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xc3, 0xcc];

    #[test]
    fn breakpoints_and_calls_of_uprobes_are_removed() {
        let entry = [0xcc, 0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xcc, 0xcc];
        assert_eq!(restored(&entry, &FILE).unwrap(), FILE);
        let call = [0x55, 0x90, 0xe8, 1, 2, 3, 4, 0xc3, 0xcc];
        assert_eq!(restored(&call, &FILE).unwrap(), FILE);
        // While the kernel writes the call, its first byte is a breakpoint.
        let written = [0x55, 0x90, 0xcc, 1, 2, 3, 4, 0xc3, 0xcc];
        assert_eq!(restored(&written, &FILE).unwrap(), FILE);
    }

    #[test]
    fn code_that_differs_in_other_ways_stays() {
        let changed = [0xcc, 0x91, 0x0f, 0x1f, 0x44, 0, 0, 0xc3, 0xcc];
        assert_eq!(restored(&changed, &FILE), None);
        let call = [0xe8, 1, 2, 3, 4, 0, 0, 0xc3, 0xcc];
        assert_eq!(restored(&call, &FILE), None);
    }

    #[test]
    fn area_of_uprobes_is_recognized() {
        let with = b"7fffffffe000-7ffffffff000 --xp 00000000 00:00 0                          [uprobes]\n";
        let without = b"7fffffffe000-7ffffffff000 r-xp 00000000 00:00 0                          [vdso]\n";
        assert!(were_hit(&maps::parse(with)));
        assert!(!were_hit(&maps::parse(without)));
    }

    #[test]
    fn own_code_is_no_private_copy_and_stays() {
        let pid = std::process::id() as RawTid;
        let here = were_hit as *const () as u64 & !(PAGE - 1);
        let maps = maps::maps(pid);
        let map = maps
            .iter()
            .find(|map| (map.start..map.end).contains(&here))
            .unwrap();
        assert!(!is_private_copy(pid, here));
        let mut code = vec![0xcc; PAGE as usize];
        remove_breakpoints(pid, map, here, &mut code);
        assert!(code.iter().all(|byte| *byte == 0xcc));
    }
}
