//! The program code that a block was translated from.

use crate::PAGE;

/// Ranges of code, in the order of translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::translate) struct SourceBytes {
    /// The start address of each range, and its end in `bytes`.
    runs: Vec<(u64, u32)>,
    bytes: Vec<u8>,
}

impl SourceBytes {
    /// Builds an empty value with capacity for most blocks.
    pub(super) fn new() -> Self {
        Self {
            runs: Vec::with_capacity(4),
            bytes: Vec::with_capacity(128),
        }
    }

    /// Adds an instruction, unless it is already present.
    pub(super) fn add(&mut self, ip: u64, instruction: &[u8]) {
        if self.has(ip) {
            return;
        }
        let from = self.bytes.len();
        self.bytes.extend_from_slice(instruction);
        let end = self.bytes.len() as u32;
        let start = |before: Option<&(u64, u32)>| before.map_or(0, |(_, end)| *end) as usize;
        match self.runs.as_mut_slice() {
            [earlier @ .., last] if last.0 + (from - start(earlier.last())) as u64 == ip => last.1 = end,
            _ => self.runs.push((ip, end)),
        }
    }

    /// Adds a range.
    pub(in crate::translate) fn push_run(&mut self, start: u64, run: &[u8]) {
        self.bytes.extend_from_slice(run);
        self.runs.push((start, self.bytes.len() as u32));
    }

    /// Returns the ranges with their start addresses.
    pub(in crate::translate) fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut from = 0;
        self.runs.iter().map(move |(start, end)| {
            let to = *end as usize;
            (
                *start,
                self.bytes
                    .get(std::mem::replace(&mut from, to)..to)
                    .unwrap_or_default(),
            )
        })
    }

    /// Returns whether a range contains the address.
    pub(super) fn has(&self, address: u64) -> bool {
        let mut from = 0;
        self.runs.iter().any(|(start, end)| {
            let len = u64::from(end - std::mem::replace(&mut from, *end));
            address.wrapping_sub(*start) < len
        })
    }

    /// Returns the page numbers of the ranges.
    pub(in crate::translate) fn pages(&self) -> impl Iterator<Item = u64> {
        self.runs().flat_map(|(start, run)| {
            let last = start + (run.len() as u64).saturating_sub(1);
            start / PAGE..=last / PAGE
        })
    }

    /// Copies the bytes from an address to the end of its range, and returns their number.
    pub(in crate::translate) fn read(&self, address: u64, out: &mut [u8]) -> usize {
        let found = self.runs().find_map(|(start, run)| {
            let offset = usize::try_from(address.checked_sub(start)?).ok()?;
            run.get(offset..).filter(|rest| !rest.is_empty())
        });
        let found = found.unwrap_or_default();
        let len = found.len().min(out.len());
        out.iter_mut().zip(found).for_each(|(to, byte)| *to = *byte);
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_instructions_form_one_range() {
        let mut source = SourceBytes::default();
        source.add(0x1ffe, &[1, 2]);
        source.add(0x2000, &[3]);
        source.add(0x1ffe, &[1, 2]);
        source.add(0x5000, &[4]);
        let runs: Vec<_> = source.runs().collect();
        assert_eq!(runs, [(0x1ffe, &[1, 2, 3][..]), (0x5000, &[4][..])]);
        assert_eq!(source.pages().collect::<Vec<_>>(), [1, 2, 5]);
        let mut out = [0; 8];
        assert_eq!((source.read(0x1fff, &mut out), &out[..2]), (2, &[2, 3][..]));
        assert_eq!(source.read(0x2001, &mut out), 0);
    }
}
