//! The memory of a held process, for its core.

use super::open::OpenProcess;
use backtrail_bundle::core::{Memory, Segment};
use backtrail_process::maps::Map;
use backtrail_pt::Avma;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes in a page of x86-64.
pub(super) const PAGE: u64 = 4096;
/// How many page states are read at once.
const WINDOW: u64 = 64 << 10;
/// Maximum number of segments of a core in addition to the process's mappings.
const MAX_CUTS: usize = 64 << 10;

/// The source of a page that is not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageSource {
    /// None: the page is zero until it is touched.
    Anonymous,
    /// This machine: the kernel, a local file system, or shared memory.
    Local,
    /// A server that may not answer. Only pages in memory are read.
    Remote,
}

/// Reads `/proc/PID/mem`, and determines from `/proc/PID/pagemap` which pages are in memory
/// (proc_pid_pagemap(5)).
pub(super) struct ProcessMemory<'a> {
    memory: &'a File,
    page_map: Option<&'a File>,
    /// Sorted by address. Adjacent areas with the same source are merged.
    areas: Vec<(Range<u64>, PageSource)>,
    /// The pages whose state is known, and whether each is in memory or swapped out.
    window: Range<u64>,
    present: Vec<bool>,
    /// Buffer for the states that the kernel reports.
    states: Vec<u8>,
}

impl<'a> ProcessMemory<'a> {
    /// Returns the memory of an opened process. `None`: it could not be opened.
    pub(super) fn of(process: &'a OpenProcess) -> Option<Self> {
        let memory = process.memory.as_ref().ok()?;
        Some(Self::new(
            memory,
            process.page_map.as_ref(),
            &process.maps,
            &process.local,
        ))
    }

    fn new(memory: &'a File, page_map: Option<&'a File>, maps: &[Map], local: &HashSet<(u32, u32)>) -> Self {
        let mut areas: Vec<(Range<u64>, PageSource)> = Vec::new();
        for map in maps {
            let kind = match map.inode {
                0 if !map.shared && !is_special(&map.path) => PageSource::Anonymous,
                0 => PageSource::Local,
                _ if local.contains(&map.device) => PageSource::Local,
                _ => PageSource::Remote,
            };
            match areas.last_mut() {
                Some((last, known)) if last.end == map.start && *known == kind => last.end = map.end,
                _ => areas.push((map.start..map.end, kind)),
            }
        }
        Self {
            memory,
            page_map,
            areas,
            window: 0..0,
            present: Vec::new(),
            states: Vec::new(),
        }
    }

    /// Returns the area that contains an address.
    fn area(&self, address: u64) -> Option<(Range<u64>, PageSource)> {
        let after = self.areas.partition_point(|(area, _)| area.start <= address);
        let (area, kind) = self.areas.get(after.checked_sub(1)?)?;
        area.contains(&address).then(|| (area.clone(), *kind))
    }

    /// Returns whether a page is in memory or swapped out, or `otherwise` if that is unknown.
    fn is_present(&mut self, page: u64, otherwise: bool) -> bool {
        if !self.window.contains(&page) {
            self.look(page);
        }
        let index = page
            .checked_sub(self.window.start)
            .and_then(|index| usize::try_from(index).ok());
        index
            .and_then(|index| self.present.get(index).copied())
            .unwrap_or(otherwise)
    }

    /// Reads the states of the pages from `page` to the end of its area, within the window size.
    fn look(&mut self, page: u64) {
        const SWAPPED_OR_PRESENT: u64 = 1 << 62 | 1 << 63;
        self.window = 0..0;
        self.present.clear();
        let Some(page_map) = self.page_map else { return };
        let area = self.area(page.saturating_mul(PAGE));
        let pages = area.map_or(1, |(area, _)| area.end.div_ceil(PAGE).saturating_sub(page));
        let size = pages.clamp(1, WINDOW) as usize * 8;
        if self.states.len() < size {
            self.states.resize(size, 0);
        }
        let room = self.states.get_mut(..size).unwrap_or_default();
        let got = page_map.read_at(room, page.saturating_mul(8)).unwrap_or(0);
        let words = self.states.get(..got).unwrap_or_default().chunks_exact(8);
        self.present.extend(words.map(|word| {
            let word = <[u8; 8]>::try_from(word).map_or(u64::MAX, u64::from_le_bytes);
            word & SWAPPED_OR_PRESENT != 0
        }));
        self.window = page..page.saturating_add(self.present.len() as u64);
    }

    /// Returns the runs of pages in a range that can be read without waiting.
    pub(super) fn present_runs(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = ((at / PAGE + 1) * PAGE).min(range.end);
            if self.is_present(at / PAGE, false) {
                let count = runs.len();
                match runs.last_mut() {
                    Some(last) if last.end == at => last.end = end,
                    _ if count >= MAX_CUTS => return runs,
                    _ => runs.push(at..end),
                }
            }
            at = end;
        }
        runs
    }

    /// Returns whether every page of an address's area can be read without waiting.
    pub(super) fn is_local(&self, address: u64) -> bool {
        self.area(address)
            .is_none_or(|(_, kind)| kind != PageSource::Remote)
    }

    /// Splits the segments so that only pages in memory are saved of files whose file system may
    /// not answer. Returns how many bytes are left out.
    pub(super) fn leave_out_remote(&mut self, segments: &mut Vec<Segment>) -> u64 {
        let mut cut = Vec::with_capacity(segments.len());
        let mut left_out = 0;
        for segment in segments.drain(..) {
            if segment.saved == 0 || self.is_local(segment.start.0) || cut.len() > MAX_CUTS {
                cut.push(segment);
                continue;
            }
            let end = segment.start.0.saturating_add(segment.size);
            let wanted = segment.start.0..segment.start.0.saturating_add(segment.saved).min(end);
            let mut at = wanted.start;
            let mut push = |from: u64, to: u64, is_saved: bool| {
                if from < to {
                    cut.push(Segment {
                        start: Avma(from),
                        size: to - from,
                        saved: if is_saved { to - from } else { 0 },
                        ..segment
                    });
                }
            };
            for run in self.present_runs(wanted.clone()) {
                left_out += run.start - at;
                push(at, run.start, false);
                push(run.start, run.end, true);
                at = run.end;
            }
            left_out += wanted.end.saturating_sub(at);
            push(at, end, false);
        }
        *segments = cut;
        left_out
    }
}

/// Returns whether a mapping is a special one of the kernel.
fn is_special(path: &str) -> bool {
    path.starts_with("[v") || path.starts_with("[uprobes")
}

impl Memory for ProcessMemory<'_> {
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
        let mut done = 0;
        while done < out.len() {
            let at = address.0.saturating_add(done as u64);
            let mut end = at.saturating_add((out.len() - done) as u64);
            if let Some((area, kind)) = self.area(at) {
                end = end.min(area.end);
                if kind == PageSource::Remote {
                    if !self.is_present(at / PAGE, false) {
                        break;
                    }
                    end = end.min((at / PAGE + 1) * PAGE);
                }
            }
            let wanted = usize::try_from(end - at).unwrap_or(usize::MAX);
            let Some(room) = out.get_mut(done..).and_then(|rest| rest.get_mut(..wanted)) else {
                break;
            };
            match self.memory.read_at(room, at) {
                Ok(0) | Err(_) => break,
                Ok(got) => done += got,
            }
        }
        done
    }

    fn zeros(&mut self, address: Avma, size: u64) -> u64 {
        let Some((area, PageSource::Anonymous)) = self.area(address.0) else {
            return 0;
        };
        let end = area.end.min(address.0.saturating_add(size));
        let mut at = address.0;
        while at < end && !self.is_present(at / PAGE, true) {
            at = (at / PAGE + 1) * PAGE;
        }
        at.min(end) - address.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_process::{RawTid, maps};

    fn our_own() -> (File, File, Vec<Map>) {
        let pid = std::process::id() as RawTid;
        let open = |name| File::open(format!("/proc/self/{name}")).unwrap();
        (open("mem"), open("pagemap"), maps::maps(pid))
    }

    #[test]
    fn untouched_pages_are_zero_without_reading() {
        let size = 64 * PAGE as usize;
        let mut area = memmap2::MmapMut::map_anon(size).unwrap();
        area[10 * PAGE as usize + 3] = 7;
        let start = area.as_ptr() as u64;
        let (memory, page_map, maps) = our_own();
        let mut memory = ProcessMemory::new(&memory, Some(&page_map), &maps, &HashSet::new());
        // Another test's thread may map more after it, but not less.
        assert_eq!(memory.zeros(Avma(start), 64 * PAGE), 10 * PAGE);
        assert_eq!(memory.zeros(Avma(start + 10 * PAGE), PAGE), 0);
        assert_eq!(memory.zeros(Avma(start + 11 * PAGE + 8), PAGE), PAGE);
        let mut bytes = [0; 4];
        assert_eq!(memory.read(Avma(start + 10 * PAGE), &mut bytes), 4);
        assert_eq!(bytes, [0, 0, 0, 7]);
        assert_eq!(memory.read(Avma(16), &mut bytes), 0);
    }

    #[test]
    fn pages_of_remote_files_are_read_only_when_present() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * PAGE).unwrap();
        // SAFETY: no other process has this file, and nothing truncates it.
        let mapped = unsafe { memmap2::Mmap::map(&file) }.unwrap();
        mapped.advise(memmap2::Advice::Random).unwrap();
        let start = mapped.as_ptr() as u64;
        assert_eq!(mapped[5 * PAGE as usize], 0);
        let (memory, page_map, maps) = our_own();
        // No device counts as local.
        let mut memory = ProcessMemory::new(&memory, Some(&page_map), &maps, &HashSet::new());
        assert!(!memory.is_local(start));
        assert!(memory.is_present((start + 5 * PAGE) / PAGE, false));
        let runs = memory.present_runs(start..start + 16 * PAGE);
        assert!(!runs.is_empty(), "{runs:?}");
        let absent = (0..16).find(|page| !memory.is_present(start / PAGE + page, true));
        let Some(absent) = absent else {
            return eprintln!("left out: this kernel maps neighbors of a touched page too");
        };
        let mut bytes = [0; 8];
        assert_eq!(memory.read(Avma(start + absent * PAGE), &mut bytes), 0);
        let segment = Segment {
            start: Avma(start),
            size: 16 * PAGE,
            saved: 16 * PAGE,
            readable: true,
            ..Segment::default()
        };
        let mut segments = vec![segment];
        let left_out = memory.leave_out_remote(&mut segments);
        let saved: u64 = segments.iter().map(|segment| segment.saved).sum();
        assert!(
            left_out > 0 && saved + left_out == 16 * PAGE,
            "{left_out} {saved}"
        );
        assert_eq!(
            segments.iter().map(|segment| segment.size).sum::<u64>(),
            16 * PAGE
        );
        assert!(
            segments
                .iter()
                .all(|segment| segment.saved == 0 || segment.saved == segment.size)
        );
    }
}
