//! The small core: stacks, and the pages that registers and stacks point to.

use backtrail_bundle::core::{CoreContents, Memory, Segment};
use backtrail_pt::Avma;
use std::collections::BTreeSet;

/// Bytes in a page of x86-64.
const PAGE: u64 = 4096;
/// The red zone under the stack pointer (System V ABI for x86-64, 3.2.2).
const RED_ZONE: u64 = 128;
/// Bytes of each stack.
const STACK: u64 = 256 << 10;
/// Bytes of the stack of the thread that crashed.
const CRASHED_STACK: u64 = 8 << 20;
/// Bytes of each stack that are searched for addresses.
const LOOKED_AT: usize = 4 << 10;
/// The same for the thread that crashed.
const CRASHED_LOOKED_AT: usize = 64 << 10;
/// Maximum number of pages that are saved because of a pointer to them.
const POINTED_AT: usize = 16 << 10;

/// Returns the segments of `contents`, split so that only the wanted pages are saved.
pub(super) fn segments(contents: &CoreContents, memory: &mut impl Memory) -> Vec<Segment> {
    let mut pages = BTreeSet::new();
    let readable = |address: u64| {
        let index = contents
            .segments
            .partition_point(|segment| segment.start.0 <= address);
        let segment = contents.segments.get(index.checked_sub(1)?)?;
        (segment.readable && address - segment.start.0 < segment.size).then_some(segment)
    };
    let mut stacks = Vec::new();
    for (index, thread) in contents.threads.iter().enumerate() {
        let (size, looked_at) = if index == 0 {
            (CRASHED_STACK, CRASHED_LOOKED_AT)
        } else {
            (STACK, LOOKED_AT)
        };
        let top = thread.registers.rsp;
        if let Some(segment) = readable(top) {
            let start = top.saturating_sub(RED_ZONE).max(segment.start.0) / PAGE;
            let end = top.saturating_add(size).min(segment.start.0 + segment.size);
            stacks.push(start..end.div_ceil(PAGE));
        }
        // Thread-local storage is at the thread pointer and below.
        let registers = thread.registers.to_array();
        let mut words = vec![0; looked_at];
        let got = memory.read(Avma(top), &mut words);
        let on_stack = words.get(..got).unwrap_or_default().chunks_exact(8);
        let on_stack = on_stack.filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        let below = [thread.registers.fs_base.wrapping_sub(PAGE)];
        for address in registers.into_iter().chain(below).chain(on_stack) {
            if pages.len() >= POINTED_AT {
                break;
            }
            if readable(address).is_some() {
                pages.insert(address / PAGE);
            }
        }
    }
    pages.extend(stacks.into_iter().flatten());
    contents
        .segments
        .iter()
        .flat_map(|segment| cut(segment, &pages))
        .collect()
}

/// Splits a segment into segments that are saved and segments that are not.
fn cut(segment: &Segment, pages: &BTreeSet<u64>) -> Vec<Segment> {
    let (start, end) = (segment.start.0, segment.start.0 + segment.size);
    // The kernel saves the first page of an ELF file, for its build id.
    let first_page = segment.saved == PAGE && segment.size > PAGE;
    let mut out: Vec<Segment> = Vec::new();
    let mut add = |from: u64, to: u64, saved: bool| {
        if from >= to {
            return;
        }
        match out.last_mut() {
            Some(last) if (last.saved != 0) == saved => {
                last.size += to - from;
                last.saved = if saved { last.size } else { 0 };
            }
            _ => out.push(Segment {
                start: Avma(from),
                size: to - from,
                saved: if saved { to - from } else { 0 },
                ..*segment
            }),
        }
    };
    let mut at = start;
    let first = first_page.then_some(start / PAGE);
    let wanted = pages.range(start / PAGE..end.div_ceil(PAGE)).copied();
    for page in first
        .into_iter()
        .chain(wanted.filter(|page| Some(*page) != first))
    {
        let (from, to) = ((page * PAGE).max(start), ((page + 1) * PAGE).min(end));
        add(at, from, false);
        add(from, to, true);
        at = to;
    }
    add(at, end, false);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_bundle::core::{CoreThread, Registers};

    #[test]
    fn only_stacks_and_pointed_to_pages_are_saved() {
        let segment = |start, size, saved| Segment {
            start: Avma(start),
            size,
            saved,
            readable: true,
            writable: true,
            executable: false,
        };
        let thread = CoreThread {
            registers: Registers {
                rsp: 0x7000_2010,
                rdi: 0x5000_3008,
                rsi: 3,
                ..Registers::default()
            },
            ..CoreThread::default()
        };
        let contents = CoreContents {
            threads: vec![thread],
            segments: vec![
                segment(0x40_0000, 0x4000, 0x1000),
                segment(0x5000_0000, 0x10_0000, 0x10_0000),
                segment(0x7000_0000, 0x4000, 0x4000),
            ],
            ..CoreContents::default()
        };
        // A word on the stack points into the second segment.
        let mut memory = |address: Avma, out: &mut [u8]| {
            assert_eq!(address, Avma(0x7000_2010));
            out[8..16].copy_from_slice(&0x5000_7fffu64.to_le_bytes());
            16
        };
        let found: Vec<(u64, u64, u64)> = segments(&contents, &mut memory)
            .iter()
            .map(|segment| (segment.start.0, segment.size, segment.saved))
            .collect();
        assert_eq!(
            found,
            [
                (0x40_0000, 0x1000, 0x1000),
                (0x40_1000, 0x3000, 0),
                (0x5000_0000, 0x3000, 0),
                (0x5000_3000, 0x1000, 0x1000),
                (0x5000_4000, 0x3000, 0),
                (0x5000_7000, 0x1000, 0x1000),
                (0x5000_8000, 0xf_8000, 0),
                (0x7000_0000, 0x1000, 0),
                (0x7000_1000, 0x3000, 0x3000),
            ]
        );
    }
}
