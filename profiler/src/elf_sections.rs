//! The sections of an ELF file of 64 bits, without its symbols.
//!
//! `object`'s own file type reads all symbols at once. They have many megabytes in programs that
//! are not stripped, and unwind tables need none.

use object::Endianness;
use object::elf::{ELF_NOTE_GNU, EM_X86_64, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, SectionHeader64};
use object::read::ReadRef;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, SectionTable};

type Header = FileHeader64<Endianness>;

/// The sections of a file.
pub(crate) struct ElfSections<'d, R: ReadRef<'d>> {
    header: &'d Header,
    endian: Endianness,
    data: R,
    sections: SectionTable<'d, Header, R>,
}

/// A part of a file that the loader maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadedSegment {
    /// The address of the first byte.
    pub address: u64,
    /// The bytes in the file.
    pub size: u64,
    /// The file offset of the first byte.
    pub offset: u64,
}

impl<'d, R: ReadRef<'d>> ElfSections<'d, R> {
    /// Reads the headers of a file. `None`: they are malformed.
    pub fn parse(data: R) -> Option<Self> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        Some(Self {
            header,
            endian,
            data,
            sections,
        })
    }

    /// Returns whether the code is of x86-64.
    pub fn is_x86_64(&self) -> bool {
        self.header.e_machine(self.endian) == EM_X86_64
    }

    /// Returns whether there is a section of this name.
    pub fn has(&self, name: &str) -> bool {
        self.section(name).is_some()
    }

    /// Returns the address of a section.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.section(name).map(|section| section.sh_addr(self.endian))
    }

    /// Returns the bytes of a section. `None`: it is missing, outside of the file, or has more than
    /// `limit` bytes.
    pub fn bytes(&self, name: &str, limit: u64) -> Option<&'d [u8]> {
        let section = self
            .section(name)
            .filter(|section| section.sh_size(self.endian) <= limit)?;
        section.data(self.endian, self.data).ok()
    }

    /// Returns the segments that are loaded.
    pub fn segments(&self) -> Vec<LoadedSegment> {
        let headers = self.header.program_headers(self.endian, self.data);
        let headers = headers.unwrap_or_default().iter();
        let loaded = headers.filter(|header| header.p_type(self.endian) == PT_LOAD);
        let segments = loaded.map(|header| LoadedSegment {
            address: header.p_vaddr(self.endian),
            size: header.p_filesz(self.endian),
            offset: header.p_offset(self.endian),
        });
        segments.collect()
    }

    /// Returns the build id: in a section, or in a segment of a file without sections.
    pub fn build_id(&self) -> Option<&'d [u8]> {
        let find = |mut notes: NoteIterator<'d, Header>| {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == ELF_NOTE_GNU && note.n_type(self.endian) == NT_GNU_BUILD_ID {
                    return Some(note.desc());
                }
            }
            None
        };
        if self.sections.is_empty() {
            let headers = self.header.program_headers(self.endian, self.data).ok()?;
            let mut notes = headers
                .iter()
                .filter_map(|header| header.notes(self.endian, self.data).ok()?);
            return notes.find_map(find);
        }
        let mut notes = self
            .sections
            .iter()
            .filter_map(|section| section.notes(self.endian, self.data).ok()?);
        notes.find_map(find)
    }

    fn section(&self, name: &str) -> Option<&'d SectionHeader64<Endianness>> {
        let (_, section) = self.sections.section_by_name(self.endian, name.as_bytes())?;
        Some(section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::read::elf::ElfFile64;
    use object::{Object, ObjectSection, ObjectSegment};
    use std::cell::Cell;

    #[test]
    fn headers_are_those_of_the_whole_file() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let whole = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
        let sections = ElfSections::parse(&*bytes).unwrap();
        assert!(sections.is_x86_64());
        for name in [".eh_frame", ".text"] {
            let section = whole.section_by_name(name).unwrap();
            assert_eq!(sections.address(name), Some(section.address()));
            assert_eq!(sections.bytes(name, section.size()), section.data().ok());
            assert_eq!(sections.bytes(name, section.size() - 1), None);
        }
        assert!(sections.has(".text") && !sections.has(".no"));
        let segments = whole.segments().map(|segment| LoadedSegment {
            address: segment.address(),
            size: segment.file_range().1,
            offset: segment.file_range().0,
        });
        assert_eq!(sections.segments(), segments.collect::<Vec<_>>());
        assert_eq!(sections.build_id(), whole.build_id().unwrap());
        assert!(sections.build_id().is_some());
        assert!(ElfSections::parse(&b"\x7fELF\x02\x01\x01"[..]).is_none());
    }

    /// A file that counts the bytes that are read of it.
    #[derive(Clone, Copy)]
    struct Counted<'d>(&'d [u8], &'d Cell<u64>);

    impl<'d> ReadRef<'d> for Counted<'d> {
        fn len(self) -> Result<u64, ()> {
            Ok(self.0.len() as u64)
        }

        fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
            self.1.set(self.1.get() + size);
            self.0.read_bytes_at(offset, size)
        }

        fn read_bytes_at_until(self, range: std::ops::Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
            let found = self.0.read_bytes_at_until(range, delimiter)?;
            self.1.set(self.1.get() + found.len() as u64);
            Ok(found)
        }
    }

    #[test]
    fn symbols_are_not_read() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let read = Cell::new(0);
        let sections = ElfSections::parse(Counted(&bytes, &read)).unwrap();
        assert!(sections.build_id().is_some() && sections.has(".text"));
        assert!(read.get() < 1 << 16, "{}", read.get());
        read.set(0);
        ElfFile64::<Endianness, _>::parse(Counted(&bytes, &read)).unwrap();
        assert!(read.get() > 1 << 18, "{}", read.get());
    }
}
