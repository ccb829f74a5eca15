//! Finds `.eh_frame` and the linker's sorted index of it, `.eh_frame_hdr`.

use crate::source::Elf;
use gimli::constants::{DW_EH_PE_datarel, DW_EH_PE_pcrel, DW_EH_PE_sdata4, DW_EH_PE_udata4};
use object::read::elf::ProgramHeader;
use object::{LittleEndian, Object, ObjectSection, elf};

/// The contents of `.eh_frame`.
pub(super) struct EhFrameSection<'d> {
    pub bytes: &'d [u8],
    /// The stated address.
    pub address: u64,
    pub index: Option<SortedIndex<'d>>,
}

/// Finds `.eh_frame` by its section. If sections are stripped, uses the program header of its
/// index.
pub(super) fn find<'d>(elf: &Elf<'d>) -> Option<EhFrameSection<'d>> {
    let segment = elf
        .elf_program_headers()
        .iter()
        .find(|segment| segment.p_type(LittleEndian) == elf::PT_GNU_EH_FRAME);
    let header = segment.and_then(|segment| {
        let bytes = segment.data(LittleEndian, elf.data()).ok()?;
        Header::parse(bytes, segment.p_vaddr(LittleEndian))
    });
    let section = elf.section_by_name(".eh_frame").and_then(|section| {
        let bytes = section.data().ok().filter(|bytes| !bytes.is_empty())?;
        Some((bytes, section.address()))
    });
    let (bytes, address) = match (section, &header) {
        (Some(section), _) => section,
        (None, Some(header)) => (loaded_from(elf, header.eh_frame)?, header.eh_frame),
        (None, None) => return None,
    };
    Some(EhFrameSection {
        bytes,
        address,
        index: header
            .filter(|header| header.eh_frame == address)
            .and_then(|header| header.index),
    })
}

/// Returns the bytes loaded from `at` to the end of its segment.
fn loaded_from<'d>(elf: &Elf<'d>, at: u64) -> Option<&'d [u8]> {
    let mut loads = elf
        .elf_program_headers()
        .iter()
        .filter(|segment| segment.p_type(LittleEndian) == elf::PT_LOAD);
    loads.find_map(|segment| {
        let offset = at.checked_sub(segment.p_vaddr(LittleEndian))?;
        let bytes = segment.data(LittleEndian, elf.data()).ok()?;
        bytes
            .get(usize::try_from(offset).ok()?..)
            .filter(|bytes| !bytes.is_empty())
    })
}

struct Header<'d> {
    /// The address of `.eh_frame`.
    eh_frame: u64,
    index: Option<SortedIndex<'d>>,
}

impl<'d> Header<'d> {
    /// Parses the encodings that all linkers write. Headers with other encodings are ignored.
    fn parse(bytes: &'d [u8], address: u64) -> Option<Self> {
        let (start, rest) = bytes.split_first_chunk::<8>()?;
        let [version, pointer, count, table, offset @ ..] = *start;
        if version != 1 || pointer != (DW_EH_PE_pcrel | DW_EH_PE_sdata4).0 {
            return None;
        }
        let from = address.wrapping_add(4);
        let eh_frame = from.wrapping_add_signed(i32::from_le_bytes(offset).into());
        let sorted = count == DW_EH_PE_udata4.0 && table == (DW_EH_PE_datarel | DW_EH_PE_sdata4).0;
        let index = sorted
            .then(|| {
                let (count, entries) = rest.split_first_chunk::<4>()?;
                let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
                let (entries, _) = entries.as_chunks::<8>();
                Some(SortedIndex {
                    entries: entries.get(..count)?,
                    address,
                })
            })
            .flatten();
        Some(Self { eh_frame, index })
    }
}

/// The binary search table. For each entry of `.eh_frame`, it has the first code address and the
/// entry's own address, both relative to `.eh_frame_hdr`.
pub(super) struct SortedIndex<'d> {
    entries: &'d [[u8; 8]],
    address: u64,
}

impl SortedIndex<'_> {
    /// Returns the address of the entry that should cover `at`.
    pub fn entry(&self, at: u64) -> Option<u64> {
        let half = |entry: &[u8; 8], high: bool| {
            let [a, b, c, d, e, f, g, h] = *entry;
            let half = if high { [e, f, g, h] } else { [a, b, c, d] };
            self.address.wrapping_add_signed(i32::from_le_bytes(half).into())
        };
        let next = self.entries.partition_point(|entry| half(entry, false) <= at);
        let entry = self.entries.get(next.checked_sub(1)?)?;
        Some(half(entry, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_searched_and_bounded() {
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        bytes.extend((0x100i32 - 4).to_le_bytes());
        bytes.extend(2u32.to_le_bytes());
        for (code, entry) in [(-0x800i32, 0x110i32), (-0x700, 0x130)] {
            bytes.extend(code.to_le_bytes());
            bytes.extend(entry.to_le_bytes());
        }
        let header = Header::parse(&bytes, 0x2000).unwrap();
        assert_eq!(header.eh_frame, 0x2100);
        let index = header.index.unwrap();
        assert_eq!(index.entry(0x17ff), None);
        assert_eq!(index.entry(0x1800), Some(0x2110));
        assert_eq!(index.entry(0x1900), Some(0x2130));
        assert_eq!(index.entry(u64::MAX), Some(0x2130));
        bytes[8] = 3;
        assert!(
            Header::parse(&bytes, 0x2000).unwrap().index.is_none(),
            "more than there are"
        );
        assert!((0..8).all(|end| Header::parse(&bytes[..end], 0).is_none()));
    }
}
