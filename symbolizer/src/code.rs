//! Finds the executable code of a file.

use crate::source::Elf;
use object::read::elf::ProgramHeader;
use object::{LittleEndian, Object, ObjectSection, SectionFlags, elf};
use std::ops::Range;
use std::sync::Arc;

/// The address ranges of the executable sections, or of executable segments if there are no
/// sections.
///
/// Symbols and DWARF at other addresses describe code that the linker discarded. It leaves 0 or
/// another marker in place of the address.
#[derive(Clone, Default)]
pub(crate) struct CodeRanges(Arc<[Range<u64>]>);

impl CodeRanges {
    pub fn of(elf: &Elf) -> Self {
        let executable = |flags| matches!(flags, SectionFlags::Elf { sh_flags, .. } if sh_flags.0 & elf::SHF_EXECINSTR.0 != 0);
        let extent = |start: u64, size: u64| start..start.saturating_add(size);
        let mut code: Vec<_> = if elf.elf_section_table().is_empty() {
            let segments = elf.elf_program_headers().iter();
            let segments = segments.filter(|segment| segment.p_flags(LittleEndian).0 & elf::PF_X.0 != 0);
            segments
                .map(|segment| extent(segment.p_vaddr(LittleEndian), segment.p_memsz(LittleEndian)))
                .collect()
        } else {
            let sections = elf.sections().filter(|section| executable(section.flags()));
            sections
                .map(|section| extent(section.address(), section.size()))
                .collect()
        };
        code.sort_by_key(|range| range.start);
        Self(code.into())
    }

    #[cfg(test)]
    pub fn from_range(range: Range<u64>) -> Self {
        Self([range].into())
    }

    /// Returns the section that contains `at`.
    pub fn around(&self, at: u64) -> Option<&Range<u64>> {
        let next = self.0.partition_point(|range| range.start <= at);
        self.0
            .get(next.checked_sub(1)?)
            .filter(|range| range.contains(&at))
    }

    pub fn contains(&self, at: u64) -> bool {
        self.around(at).is_some()
    }
}
