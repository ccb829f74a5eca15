//! The memory that a process shares with other processes, by its mappings and system calls.

use crate::PAGE;
use crate::ptrace::RawTid;
use backtrail_bundle::core::Registers;
use backtrail_bundle::manifest::SharedMemory;
use backtrail_process::maps::{self, Map};
use backtrail_pt::Avma;

/// The maximum number of ranges. A process with more has unknown ones.
const MAX_RANGES: usize = 256;

/// All memory that a process has shared at any time, or unknown memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharedRanges(Option<Vec<SharedMemory>>);

impl SharedRanges {
    /// Returns no memory.
    pub(crate) const fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// Returns the memory that a copy of the process shares.
    pub(crate) fn inherited(&self) -> Self {
        let ranges = self.0.iter().flatten().map(|range| SharedMemory {
            is_unseen: true,
            ..*range
        });
        match self.0 {
            Some(_) => Self(Some(ranges.collect())),
            None => Self(None),
        }
    }

    /// Adds the shared mappings that exist, but not the memory that the recorder `added`.
    pub(crate) fn add_mappings(&mut self, maps: &[Map], added: &[(u64, u64)]) {
        let is_added = |map: &Map| {
            let holds =
                |(start, size): &(u64, u64)| *start <= map.start && map.end <= start.saturating_add(*size);
            added.iter().any(holds)
        };
        for map in maps.iter().filter(|map| map.shared && !is_added(map)) {
            self.add(map.start, map.size(), true);
        }
    }

    /// Adds the memory that a successful system call of process `pid` has shared.
    pub(crate) fn add_call(&mut self, pid: RawTid, call: u64, before: &Registers, result: u64) {
        match call as libc::c_long {
            libc::SYS_mmap if shares(before.r10) => self.add(result, before.rsi, false),
            libc::SYS_mremap if self.has(before.rdi, before.rsi) => self.add(result, before.rdx, false),
            libc::SYS_shmat => {
                let maps = maps::maps(pid);
                match maps.iter().find(|map| map.start == result) {
                    Some(map) => self.add(result, map.size(), false),
                    None => self.0 = None,
                }
            }
            _ => {}
        }
    }

    /// Returns the ranges for the bundle. `lacks_logs`: the value logs of some threads are lost.
    pub(crate) fn into_manifest(self, lacks_logs: bool) -> Option<Vec<SharedMemory>> {
        match lacks_logs {
            true => self.inherited().0,
            false => self.0,
        }
    }

    fn has(&self, address: u64, size: u64) -> bool {
        // An old size of zero copies a mapping.
        let end = address.saturating_add(size.max(1));
        let mut ranges = self.0.iter().flatten();
        ranges.any(|range| range.start.0 < end && address < range.start.0.saturating_add(range.size))
    }

    fn add(&mut self, address: u64, size: u64, is_unseen: bool) {
        let Some(ranges) = &mut self.0 else {
            return;
        };
        let size = size.checked_next_multiple_of(PAGE).unwrap_or(size);
        let end = address.saturating_add(size);
        let is_known = ranges.iter().any(|range| {
            range.is_unseen == is_unseen
                && range.start.0 <= address
                && end <= range.start.0.saturating_add(range.size)
        });
        if is_known {
            return;
        }
        ranges.push(SharedMemory {
            start: Avma(address),
            size,
            is_unseen,
        });
        if ranges.len() > MAX_RANGES {
            self.0 = None;
        }
    }
}

/// Returns whether the flags of `mmap` share memory. `MAP_SHARED_VALIDATE` shares it too. A file
/// that is only read counts as well, because other processes may write it.
const fn shares(flags: u64) -> bool {
    let kind = flags as libc::c_int & libc::MAP_TYPE;
    kind == libc::MAP_SHARED || kind == libc::MAP_SHARED_VALIDATE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: libc::c_long, rdi: u64, rsi: u64, rdx: u64, r10: u64) -> (u64, Registers) {
        let before = Registers {
            rdi,
            rsi,
            rdx,
            r10,
            ..Registers::default()
        };
        (number as u64, before)
    }

    fn shared(start: u64, size: u64, is_unseen: bool) -> SharedMemory {
        SharedMemory {
            start: Avma(start),
            size,
            is_unseen,
        }
    }

    #[test]
    fn only_mappings_with_the_flag_are_shared() {
        let mut ranges = SharedRanges::none();
        // PROT_READ of a file: MAP_PRIVATE, then MAP_SHARED and MAP_SHARED_VALIDATE
        for (flags, address) in [(2, 0x1000), (1, 0x8000), (3, 0xa000)] {
            let (number, before) = call(libc::SYS_mmap, 0, 100, 1, flags);
            ranges.add_call(1, number, &before, address);
        }
        let expected = vec![shared(0x8000, 0x1000, false), shared(0xa000, 0x1000, false)];
        assert_eq!(ranges.into_manifest(false), Some(expected));
    }

    #[test]
    fn moved_mappings_stay_shared() {
        let mut ranges = SharedRanges::none();
        let (number, before) = call(libc::SYS_mmap, 0, 0x2000, 3, 0x21);
        ranges.add_call(1, number, &before, 0x8000);
        // A private mapping, a part of the shared one, and a copy of it.
        for (from, size, to) in [
            (0x4000, 0x1000, 0x5000),
            (0x9000, 0x1000, 0x20000),
            (0x8000, 0, 0x30000),
        ] {
            let (number, before) = call(libc::SYS_mremap, from, size, 0x1000, 1);
            ranges.add_call(1, number, &before, to);
        }
        let starts: Vec<u64> = ranges.0.iter().flatten().map(|range| range.start.0).collect();
        assert_eq!(starts, [0x8000, 0x20000, 0x30000]);
    }

    #[test]
    fn mappings_before_the_recording_are_unseen() {
        let map = |start, shared| Map {
            start,
            end: start + 0x1000,
            shared,
            ..Map::default()
        };
        let mut ranges = SharedRanges::none();
        let maps = [map(0x1000, false), map(0x2000, true), map(0x9000, true)];
        ranges.add_mappings(&maps, &[(0x8000, 0x4000)]);
        assert_eq!(ranges.0, Some(vec![shared(0x2000, 0x1000, true)]));
    }

    #[test]
    fn copies_share_what_their_parents_share() {
        let mut ranges = SharedRanges::none();
        ranges.add(0x1000, 0x1000, false);
        let expected = Some(vec![shared(0x1000, 0x1000, true)]);
        assert_eq!(ranges.inherited().0, expected);
        assert_eq!(ranges.into_manifest(true), expected);
        assert_eq!(SharedRanges::default().inherited().0, None);
    }

    #[test]
    fn too_many_ranges_are_unknown() {
        let mut ranges = SharedRanges::none();
        for _ in 0..2 {
            for number in 0..MAX_RANGES as u64 {
                ranges.add(number * 0x10000, 0x1000, false);
            }
            assert!(ranges.0.is_some());
        }
        ranges.add(u64::MAX, u64::MAX, false);
        assert_eq!(ranges.0, None);
        ranges.add(0x1000, 0x1000, false);
        assert_eq!(ranges.0, None);
    }

    #[test]
    fn unknown_attached_segments_make_all_memory_unknown() {
        let mut ranges = SharedRanges::none();
        let (number, before) = call(libc::SYS_shmat, 7, 0, 0, 0);
        // No mapping begins there.
        ranges.add_call(std::process::id() as RawTid, number, &before, 1);
        assert_eq!(ranges.0, None);
    }
}
