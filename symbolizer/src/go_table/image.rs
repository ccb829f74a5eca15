//! The bytes and words of a file by address, as the dynamic linker leaves them.

use super::bytes::u64_at;
use crate::source::Elf;
use object::LittleEndian;
use object::elf::{DT_RELA, DT_RELASZ, PF_X, PT_DYNAMIC, PT_LOAD, R_X86_64_RELATIVE};
use object::read::elf::{Dyn, ProgramHeader};

/// The size of an entry of a relocation table (ELF specification, `Elf64_Rela`).
const RELOCATION: usize = 24;

/// A loaded segment.
struct Segment<'d> {
    start: u64,
    bytes: &'d [u8],
    executable: bool,
}

/// The loaded segments of a file.
pub(super) struct Image<'d> {
    /// The segments, ordered by address.
    segments: Vec<Segment<'d>>,
    /// The places that hold addresses of the file itself, and these addresses, ordered by place.
    /// A linker may leave zeros in the places.
    relocated: Vec<(u64, u64)>,
}

impl<'d> Image<'d> {
    pub fn of(elf: &Elf<'d>) -> Self {
        let headers = elf.elf_program_headers().iter();
        let loaded = headers.filter(|header| header.p_type(LittleEndian) == PT_LOAD);
        let mut segments: Vec<_> = loaded
            .filter_map(|header| {
                Some(Segment {
                    start: header.p_vaddr(LittleEndian),
                    bytes: header.data(LittleEndian, elf.data()).ok()?,
                    executable: header.p_flags(LittleEndian).0 & PF_X.0 != 0,
                })
            })
            .collect();
        // Genuine segments share pages at most.
        let mut left = elf.data().len().saturating_mul(2);
        segments.retain(|segment| {
            let after = left.checked_sub(segment.bytes.len());
            left = after.unwrap_or(left);
            after.is_some()
        });
        segments.sort_by_key(|segment| segment.start);
        let mut image = Self {
            segments,
            relocated: Vec::new(),
        };
        image.relocated = image.relative_relocations(elf).unwrap_or_default();
        image
    }

    /// Returns the bytes from `at` to the end of the segment.
    pub fn from(&self, at: u64) -> Option<&'d [u8]> {
        let next = self.segments.partition_point(|segment| segment.start <= at);
        let segment = self.segments.get(next.checked_sub(1)?)?;
        segment.bytes.get(usize::try_from(at - segment.start).ok()?..)
    }

    /// Returns the word at an address, after relocation.
    pub fn word(&self, at: u64) -> Option<u64> {
        let place = self.relocated.binary_search_by_key(&at, |(place, _)| *place);
        match place.ok().and_then(|number| self.relocated.get(number)) {
            Some((_, value)) => Some(*value),
            None => u64_at(self.from(at)?, 0),
        }
    }

    /// Returns the places of aligned words that equal `value`, outside of code.
    pub fn places_of(&self, value: u64) -> impl Iterator<Item = u64> {
        let data = self.segments.iter().filter(|segment| !segment.executable);
        let in_file = data.flat_map(move |segment| {
            let needle = value.to_le_bytes();
            let found = memchr::memmem::find_iter(segment.bytes, &needle);
            let places = found.map(|at| segment.start.wrapping_add(at as u64));
            places.collect::<Vec<_>>()
        });
        let relocated = self.relocated.iter().filter(move |(_, to)| *to == value);
        let places = in_file.chain(relocated.map(|(place, _)| *place));
        places.filter(|place| place.is_multiple_of(8))
    }

    fn relative_relocations(&self, elf: &Elf<'d>) -> Option<Vec<(u64, u64)>> {
        let mut headers = elf.elf_program_headers().iter();
        let dynamic = headers.find(|header| header.p_type(LittleEndian) == PT_DYNAMIC)?;
        let entries = dynamic.dynamic(LittleEndian, elf.data()).ok()??;
        let value = |tag| {
            let mut entries = entries.iter();
            let entry = entries.find(|entry| entry.d_tag(LittleEndian) == tag)?;
            Some(entry.d_val(LittleEndian))
        };
        let table = self.from(value(DT_RELA)?)?;
        let size = usize::try_from(value(DT_RELASZ)?).ok()?;
        let entries = table.get(..size)?.chunks_exact(RELOCATION);
        let mut relocated: Vec<_> = entries
            .filter_map(|entry| {
                let kind = u64_at(entry, 8)?;
                let is_relative = kind == u64::from(R_X86_64_RELATIVE.0);
                is_relative.then_some((u64_at(entry, 0)?, u64_at(entry, 16)?))
            })
            .collect();
        relocated.sort_unstable();
        relocated.dedup_by_key(|(place, _)| *place);
        Some(relocated)
    }

    #[cfg(test)]
    pub fn made(segments: Vec<(u64, &'d [u8])>, relocated: Vec<(u64, u64)>) -> Self {
        let segment = |(start, bytes)| Segment {
            start,
            bytes,
            executable: false,
        };
        Self {
            segments: segments.into_iter().map(segment).collect(),
            relocated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relocated_words_replace_those_of_the_file() {
        let mut bytes = vec![0; 32];
        bytes[8] = 9;
        bytes[17] = 9;
        let image = Image::made(vec![(0x1000, &bytes)], vec![(0x1000, 0x40), (0x1018, 9)]);
        assert_eq!((image.word(0x1000), image.word(0x1008)), (Some(0x40), Some(9)));
        assert_eq!((image.word(0xfff), image.word(0x1019)), (None, None));
        // The word at 0x1011 is not aligned.
        assert_eq!(image.places_of(9).collect::<Vec<_>>(), [0x1008, 0x1018]);
    }
}
