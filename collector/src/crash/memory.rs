//! The memory of a process that is kept, for its core.

use backtrail_bundle::core::Memory;
use backtrail_process::maps::Map;
use backtrail_process::{RawTid, status};
use backtrail_pt::Avma;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes in a page of x86-64.
const PAGE: u64 = 4096;
/// How many pages' state is asked for at once.
const WINDOW: u64 = 64 << 10;

/// Reads through `/proc/PID/mem`, and knows by `/proc/PID/pagemap` which pages were never touched (proc_pid_pagemap(5)).
pub(super) struct ProcessMemory {
    mem: File,
    pagemap: Option<File>,
    /// Private memory behind which no file is: untouched pages are zeros.
    anonymous: Vec<Range<u64>>,
    /// The pages whose state is known, and for each whether it is there or swapped out.
    window: Range<u64>,
    present: Vec<bool>,
}

impl ProcessMemory {
    pub(super) fn open(pid: RawTid, maps: &[Map]) -> io::Result<Self> {
        let mut anonymous: Vec<Range<u64>> = Vec::new();
        for map in maps
            .iter()
            .filter(|map| map.inode == 0 && !map.shared && !is_special(&map.path))
        {
            match anonymous.last_mut() {
                Some(last) if last.end == map.start => last.end = map.end,
                _ => anonymous.push(map.start..map.end),
            }
        }
        Ok(Self {
            mem: File::open(format!("/proc/{}/mem", status::with_memory(pid)))?,
            pagemap: File::open(format!("/proc/{}/pagemap", status::with_memory(pid))).ok(),
            anonymous,
            window: 0..0,
            present: Vec::new(),
        })
    }

    /// Whether a page is there or swapped out; where that is not known, it is.
    fn is_present(&mut self, page: u64) -> bool {
        if !self.window.contains(&page) {
            self.look(page);
        }
        let index = page
            .checked_sub(self.window.start)
            .and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.present.get(index).copied())
            .unwrap_or(true)
    }

    /// Asks for the state of the pages from `page` on.
    fn look(&mut self, page: u64) {
        const SWAPPED_OR_PRESENT: u64 = 1 << 62 | 1 << 63;
        self.window = 0..0;
        self.present.clear();
        let Some(pagemap) = &self.pagemap else { return };
        let mut states = vec![0; WINDOW as usize * 8];
        let got = pagemap.read_at(&mut states, page * 8).unwrap_or(0);
        let words = states.get(..got).unwrap_or_default().chunks_exact(8);
        self.present.extend(words.map(|word| {
            let word = <[u8; 8]>::try_from(word).map_or(u64::MAX, u64::from_le_bytes);
            word & SWAPPED_OR_PRESENT != 0
        }));
        self.window = page..page + self.present.len() as u64;
    }
}

/// What the kernel itself has put there.
fn is_special(path: &str) -> bool {
    path.starts_with("[v") || path.starts_with("[uprobes")
}

impl Memory for ProcessMemory {
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.mem.read_at(rest, address.0 + done as u64) {
                Ok(0) | Err(_) => break,
                Ok(got) => done += got,
            }
        }
        done
    }

    fn zeros(&mut self, address: Avma, size: u64) -> u64 {
        let Some(area) = self.anonymous.iter().find(|area| area.contains(&address.0)) else {
            return 0;
        };
        let end = area.end.min(address.0.saturating_add(size));
        let mut at = address.0;
        while at < end && !self.is_present(at / PAGE) {
            at = (at / PAGE + 1) * PAGE;
        }
        at.min(end) - address.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_process::maps;

    #[test]
    fn untouched_pages_are_zeros_unread() {
        let size = 64 * PAGE as usize;
        let mut area = memmap2::MmapMut::map_anon(size).unwrap();
        area[10 * PAGE as usize + 3] = 7;
        let start = area.as_ptr() as u64;
        let pid = std::process::id() as RawTid;
        let mut memory = ProcessMemory::open(pid, &maps::maps(pid)).unwrap();
        // Another test's thread may map more right behind; never less is ours.
        assert_eq!(memory.zeros(Avma(start), 64 * PAGE), 10 * PAGE);
        assert_eq!(memory.zeros(Avma(start + 10 * PAGE), PAGE), 0);
        assert_eq!(memory.zeros(Avma(start + 11 * PAGE + 8), PAGE), PAGE);
        let mut bytes = [0; 4];
        assert_eq!(memory.read(Avma(start + 10 * PAGE), &mut bytes), 4);
        assert_eq!(bytes, [0, 0, 0, 7]);
        assert_eq!(memory.read(Avma(16), &mut bytes), 0);
    }
}
