//! Finds the row of an address in one section of call frame information.

use super::header::SortedIndex;
use super::row::UnwindRow;
use crate::code::CodeRanges;
use crate::dwarf::{Budget, Slice};
use gimli::{BaseAddresses, CieOrFde, CommonInformationEntry, UnwindContext, UnwindSection};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::OnceLock;

/// An `.eh_frame` or `.debug_frame` section.
pub(super) struct Table<'d, S> {
    section: S,
    bytes: &'d [u8],
    bases: BaseAddresses,
    /// The linker's index, if there is one.
    sorted: Option<SortedIndex<'d>>,
    /// The entries by covered code, sorted. Built if the linker's index has no entry.
    entries: OnceLock<Vec<(Range<u64>, usize)>>,
    code: CodeRanges,
}

impl<'d, S: UnwindSection<Slice<'d>>> Table<'d, S>
where
    S::Offset: gimli::UnwindOffset<usize>,
{
    pub fn new(
        section: S,
        bytes: &'d [u8],
        bases: BaseAddresses,
        sorted: Option<SortedIndex<'d>>,
        code: CodeRanges,
    ) -> Self {
        Self {
            section,
            bytes,
            bases,
            sorted,
            entries: OnceLock::new(),
            code,
        }
    }

    /// Returns the row that covers `at`. Returns `None` if there is none, or if the budget is used
    /// up.
    pub fn row(&self, at: u64, budget: &Budget) -> Option<UnwindRow> {
        let sorted = self.sorted.as_ref().and_then(|index| index.entry(at));
        let sorted = sorted
            .zip(self.bases.eh_frame.section)
            .and_then(|(entry, start)| usize::try_from(entry.checked_sub(start)?).ok());
        let found = sorted.and_then(|entry| self.row_of(entry, at, budget));
        found.or_else(|| self.row_of(self.entry(at, budget)?, at, budget))
    }

    /// Returns the row that covers `at` in the entry at an offset.
    fn row_of(&self, entry: usize, at: u64, budget: &Budget) -> Option<UnwindRow> {
        budget.spend(self.length(entry)?)?;
        let common = |section: &S, bases: &BaseAddresses, offset: S::Offset| {
            let at = gimli::UnwindOffset::into(offset);
            let length = self
                .length(at)
                .ok_or(gimli::Error::OffsetOutOfBounds(at as u64))?;
            budget.spend(length).ok_or(gimli::Error::TooManyIterations)?;
            section.cie_from_offset(bases, offset)
        };
        let entry = self
            .section
            .fde_from_offset(&self.bases, entry.into(), common)
            .ok()
            .filter(|entry| entry.contains(at) && entry.cie().address_size() == 8)?;
        let mut context = UnwindContext::new();
        let row = entry
            .unwind_info_for_address(&self.section, &self.bases, &mut context, at)
            .ok()?;
        UnwindRow::new(row, &entry, &self.section)
    }

    /// Returns the size of the entry at an offset, stated in its first field.
    fn length(&self, entry: usize) -> Option<usize> {
        let rest = self.bytes.get(entry..)?;
        let short = u32::from_le_bytes(*rest.first_chunk()?);
        let length = match short {
            u32::MAX => u64::from_le_bytes(*rest.get(4..)?.first_chunk()?),
            short => short.into(),
        };
        usize::try_from(length)
            .ok()
            .filter(|length| *length <= rest.len())
    }

    /// Returns the offset of the entry that covers `at`.
    fn entry(&self, at: u64, budget: &Budget) -> Option<usize> {
        let entries = self.entries.get_or_init(|| self.list(budget));
        let next = entries.partition_point(|(code, _)| code.start <= at);
        let (code, entry) = entries.get(next.checked_sub(1)?)?;
        code.contains(&at).then_some(*entry)
    }

    /// Lists all entries of the section. A damaged entry ends the list, because the next one cannot
    /// be found.
    fn list(&self, budget: &Budget) -> Vec<(Range<u64>, usize)> {
        let mut list = Vec::new();
        let mut common: FxHashMap<usize, Option<CommonInformationEntry<Slice<'d>>>> = FxHashMap::default();
        let mut all = self.section.entries(&self.bases);
        while let Ok(Some(entry)) = all.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let get = |section: &S, bases: &BaseAddresses, offset: S::Offset| {
                let at = gimli::UnwindOffset::into(offset);
                let known = common.entry(at).or_insert_with(|| {
                    budget.spend(self.length(at)?)?;
                    section.cie_from_offset(bases, offset).ok()
                });
                known.clone().ok_or(gimli::Error::NotCiePointer(at as u64))
            };
            let Ok(entry) = partial.parse(get) else { continue };
            let code = entry.initial_address()..entry.end_address();
            // Entries of discarded code start outside of code. `__restore_rt` starts one byte
            // early.
            if !code.is_empty() && (self.code.contains(code.start) || self.code.contains(code.start + 1)) {
                list.push((code, entry.offset()));
            }
        }
        list.sort_by_key(|(code, _)| (code.start, code.end));
        list
    }
}
