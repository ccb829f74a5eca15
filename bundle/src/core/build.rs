//! Compares a file with the one that the process had mapped, by what the core kept of it.
//!
//! The kernel saves the first page of each mapped ELF file (core(5), bit 4 of `coredump_filter`).
//! It has the headers and, as linkers lay files out, the build id.

use super::{Core, MappedFile};
use crate::elf::{Elf, Load};
use crate::module_file::build_id_in;
use crate::{PAGE_SIZE, SharedBytes};
use backtrail_pt::{Avma, BuildId, Svma};
use object::elf::{ELFCLASS64, ELFDATA2LSB, ELFMAG, EM_X86_64, PF_X, PT_DYNAMIC, PT_LOAD, PT_NOTE, PT_PHDR};

/// `sizeof(Elf64_Ehdr)`.
const HEADER: usize = 64;
/// `sizeof(Elf64_Phdr)`.
const PROGRAM_HEADER: usize = 56;
/// The most note segments that are read, and the most bytes of each.
const MAX_NOTE_SEGMENTS: usize = 16;
const MAX_NOTES: u64 = 64 << 10;
/// The most entries of a dynamic section that are compared.
const MAX_DYNAMIC: usize = 1 << 10;
/// The fields of an ELF header that `strip` changes: `e_shoff`, and `e_shnum` with `e_shstrndx`.
const CHANGED_BY_STRIP: [std::ops::Range<usize>; 2] = [40..48, 60..64];

/// The build of a mapped ELF file, as far as a core states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MappedBuild {
    /// The core does not have the file's headers.
    Unknown,
    /// The file has no build id.
    WithoutId,
    /// The build id.
    Id(BuildId),
}

/// The relation of a file to the one that the process had mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileBuild {
    /// The same build.
    Same,
    /// Another build. Both are described in words.
    Other {
        /// The mapped one.
        mapped: String,
        /// The given one.
        found: String,
    },
    /// The core has too little of the mapped file to compare.
    Unverified,
}

/// A program header in memory or in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Core {
    /// Returns the build id of the ELF file whose first page is at `base`, if the core has it.
    #[must_use]
    pub fn mapped_build_id(&self, base: Avma) -> Option<BuildId> {
        match self.mapped_build(base) {
            MappedBuild::Id(id) => Some(id),
            MappedBuild::Unknown | MappedBuild::WithoutId => None,
        }
    }

    /// Returns what the core says about the build of the ELF file whose first page is at `base`.
    #[must_use]
    pub fn mapped_build(&self, base: Avma) -> MappedBuild {
        let Some(headers) = self.headers_at(base) else {
            return MappedBuild::Unknown;
        };
        let Some(bias) = bias_of(&headers, base) else {
            return MappedBuild::Unknown;
        };
        let notes = headers.iter().filter(|header| header.kind == PT_NOTE.0);
        let mut complete = true;
        for note in notes.take(MAX_NOTE_SEGMENTS) {
            let mut bytes = vec![0; usize::try_from(note.size.min(MAX_NOTES)).unwrap_or(0)];
            let at = Avma(note.address.wrapping_add(bias));
            complete &= self.memory(at, &mut bytes) == bytes.len();
            // Properties are aligned to 8 bytes, and other notes to 4.
            if let Some(id) = build_id_in(&bytes, 4).or_else(|| build_id_in(&bytes, 8)) {
                return MappedBuild::Id(id);
            }
        }
        match complete {
            true => MappedBuild::WithoutId,
            false => MappedBuild::Unknown,
        }
    }

    /// Compares a file with the one whose first page was mapped at `base`. `mappings` are those
    /// that the core lists for it.
    #[must_use]
    pub fn compare_file(&self, base: Avma, mappings: &[MappedFile], file: &SharedBytes) -> FileBuild {
        let Ok(elf) = Elf::parse(file, "file") else {
            // The process may have mapped a file of data.
            return match self.headers_at(base) {
                Some(_) => {
                    let mapped = match self.mapped_build(base) {
                        MappedBuild::Id(id) => format!("build id {id}"),
                        MappedBuild::WithoutId | MappedBuild::Unknown => "an ELF file".to_owned(),
                    };
                    other(&mapped, "no ELF header for x86-64")
                }
                None => FileBuild::Unverified,
            };
        };
        let found = elf.build_id();
        let describe = |id: &Option<BuildId>| match id {
            Some(id) => format!("build id {id}"),
            None => "no build id".to_owned(),
        };
        match self.mapped_build(base) {
            MappedBuild::Id(id) if found.as_ref() == Some(&id) => FileBuild::Same,
            MappedBuild::Id(id) => other(&format!("build id {id}"), &describe(&found)),
            MappedBuild::WithoutId if found.is_some() => other("no build id", &describe(&found)),
            MappedBuild::WithoutId => match self.has_first_page_of(base, file) {
                true => FileBuild::Same,
                false => other("no build id", "no build id, but other contents"),
            },
            // The build id is beyond the saved page, which has the headers.
            MappedBuild::Unknown
                if self.headers_at(base).is_some() && !self.has_first_page_of(base, file) =>
            {
                other("other contents in its first page", &describe(&found))
            }
            MappedBuild::Unknown => self.compare_layout(base, mappings, &elf, file),
        }
    }

    /// Returns whether the saved part of the first page is that of `file`.
    fn has_first_page_of(&self, base: Avma, file: &SharedBytes) -> bool {
        let mut mapped = vec![0; PAGE_SIZE as usize];
        let saved = self.memory(base, &mut mapped);
        let mut page = file.get(..saved.min(file.len())).unwrap_or_default().to_vec();
        page.resize(saved, 0);
        mapped.truncate(saved);
        for field in CHANGED_BY_STRIP {
            for bytes in [&mut mapped, &mut page] {
                bytes.get_mut(field.clone()).unwrap_or_default().fill(0);
            }
        }
        saved >= HEADER && mapped == page
    }

    /// Finds a contradiction between a file and its mappings, the auxiliary vector and the dynamic
    /// section, which the process had written to.
    fn compare_layout(
        &self,
        base: Avma,
        mappings: &[MappedFile],
        elf: &Elf<'_>,
        file: &SharedBytes,
    ) -> FileBuild {
        let lowest = elf.loads().map(|load| load.svma).min().unwrap_or(Svma(0));
        let load_bias = base.0.wrapping_sub(page(lowest.0));
        if elf.loads().any(|load| !fits_mappings(&load, load_bias, mappings)) {
            return other(
                "a file with other segments",
                "segments that do not fit its mappings",
            );
        }
        let headers = file
            .get(..HEADER)
            .and_then(|header| program_headers(header, |at, out| copy_from(file, at, out)));
        let Some(headers) = headers else {
            return FileBuild::Unverified;
        };
        let bias = bias_of(&headers, base).unwrap_or_default();
        if self.contradicts_entry(&headers, bias, file) {
            return other(
                "a program with another entry point",
                "an entry point that does not fit",
            );
        }
        match self.contradicts_dynamic(&headers, bias, file) {
            true => other(
                "a file with another dynamic section",
                "a dynamic section that differs",
            ),
            false => FileBuild::Unverified,
        }
    }

    /// Returns whether the file is the program (its headers are at `AT_PHDR`), and its entry point
    /// is not that of `AT_ENTRY`.
    fn contradicts_entry(&self, headers: &[Header], bias: u64, file: &SharedBytes) -> bool {
        const AT_PHDR: u64 = 3;
        const AT_ENTRY: u64 = 9;
        let value = |wanted| {
            let auxv = &self.contents().auxv;
            auxv.iter()
                .find(|(kind, _)| *kind == wanted)
                .map(|&(_, value)| value)
        };
        let table = headers.iter().find(|header| header.kind == PT_PHDR.0);
        let is_program = table.is_some_and(|table| value(AT_PHDR) == Some(table.address.wrapping_add(bias)));
        let entry = long(file, 24).map(|entry| entry.wrapping_add(bias));
        is_program && value(AT_ENTRY).is_some_and(|stated| Some(stated) != entry)
    }

    /// Returns whether an entry of the dynamic section in memory cannot come from that of the file.
    /// The dynamic linker changes entries only by adding the bias, and sets `DT_DEBUG`.
    fn contradicts_dynamic(&self, headers: &[Header], bias: u64, file: &SharedBytes) -> bool {
        const DT_DEBUG: u64 = 21;
        const ENTRY: usize = 16;
        let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC.0) else {
            return false;
        };
        let size = usize::try_from(dynamic.size)
            .unwrap_or(0)
            .min(MAX_DYNAMIC * ENTRY);
        let (mut mapped, mut stored) = (vec![0; size], vec![0; size]);
        let saved = self.memory(Avma(dynamic.address.wrapping_add(bias)), &mut mapped);
        if saved < size || copy_from(file, dynamic.offset, &mut stored) < size {
            return false;
        }
        let pairs = mapped.chunks_exact(ENTRY).zip(stored.chunks_exact(ENTRY));
        for (mapped, stored) in pairs {
            let (tag, value) = (long(mapped, 0), long(mapped, 8));
            let (stored_tag, stored_value) = (long(stored, 0), long(stored, 8));
            let moved = stored_value.map(|value| value.wrapping_add(bias));
            let is_free = tag == Some(DT_DEBUG);
            if tag != stored_tag || !(is_free || value == stored_value || value == moved) {
                return true;
            }
            if tag == Some(0) {
                break;
            }
        }
        false
    }

    /// Returns the program headers of the ELF file in memory at `base`.
    fn headers_at(&self, base: Avma) -> Option<Vec<Header>> {
        let mut header = [0; HEADER];
        if self.memory(base, &mut header) < HEADER {
            return None;
        }
        program_headers(&header, |at, out| self.memory(Avma(base.0.wrapping_add(at)), out))
    }
}

fn other(mapped: &str, found: &str) -> FileBuild {
    FileBuild::Other {
        mapped: mapped.to_owned(),
        found: found.to_owned(),
    }
}

/// Parses the program headers. `read` copies bytes at an offset in the file, and returns their
/// number.
fn program_headers(header: &[u8], read: impl Fn(u64, &mut [u8]) -> usize) -> Option<Vec<Header>> {
    let is_ours = header.starts_with(&ELFMAG)
        && header.get(4..6) == Some(&[ELFCLASS64.0, ELFDATA2LSB.0])
        && half(header, 18) == Some(EM_X86_64.0)
        && half(header, 54) == Some(PROGRAM_HEADER as u16);
    let (offset, count) = (long(header, 32)?, half(header, 56)?);
    let mut table = vec![0; usize::from(count) * PROGRAM_HEADER];
    if !is_ours || read(offset, &mut table) < table.len() {
        return None;
    }
    let headers = table.chunks_exact(PROGRAM_HEADER).map(|entry| {
        Some(Header {
            kind: u32::from_le_bytes(entry.get(..4)?.try_into().ok()?),
            offset: long(entry, 8)?,
            address: long(entry, 16)?,
            size: long(entry, 32)?,
        })
    });
    headers.collect()
}

/// Returns actual minus stated addresses of a file whose lowest page is at `base`.
fn bias_of(headers: &[Header], base: Avma) -> Option<u64> {
    let loads = headers.iter().filter(|header| header.kind == PT_LOAD.0);
    let lowest = loads.map(|load| load.address).min()?;
    Some(base.0.wrapping_sub(page(lowest)))
}

/// Returns whether the first page of a segment is mapped where the file's headers say.
///
/// Programs may replace their code by anonymous memory, so a segment of code may be absent.
fn fits_mappings(load: &Load, bias: u64, mappings: &[MappedFile]) -> bool {
    let (address, offset) = (page(load.svma.0.wrapping_add(bias)), page(load.offset.0));
    let covering = |mapping: &&MappedFile| (mapping.start.0..mapping.end.0).contains(&address);
    match mappings.iter().find(covering) {
        Some(mapping) => mapping.offset.0.wrapping_add(address - mapping.start.0) == offset,
        None => load.file_size == 0 || load.flags & PF_X.0 != 0,
    }
}

fn page(address: u64) -> u64 {
    address & !(PAGE_SIZE - 1)
}

fn copy_from(file: &SharedBytes, at: u64, out: &mut [u8]) -> usize {
    let rest = usize::try_from(at)
        .ok()
        .and_then(|at| file.get(at..))
        .unwrap_or_default();
    let count = rest.len().min(out.len());
    if let (Some(to), Some(from)) = (out.get_mut(..count), rest.get(..count)) {
        to.copy_from_slice(from);
    }
    count
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::{CoreContents, CoreThread, Segment, write};
    use super::*;
    use backtrail_pt::FileOffset;

    const BASE: Avma = Avma(0x5555_5555_4000);

    /// Returns a core whose saved memory is `page` at [`BASE`], and its list of files.
    fn core_with(page: &[u8], files: Vec<MappedFile>) -> Core {
        let size = page.len() as u64;
        let segment = Segment {
            start: BASE,
            size,
            saved: size,
            readable: true,
            ..Segment::default()
        };
        let contents = CoreContents {
            threads: vec![CoreThread::default()],
            files,
            segments: vec![segment],
            ..CoreContents::default()
        };
        let mut file = std::io::Cursor::new(Vec::new());
        let memory = |at: Avma, out: &mut [u8]| {
            let rest = page.get((at - BASE) as usize..).unwrap_or_default();
            let count = rest.len().min(out.len());
            out[..count].copy_from_slice(&rest[..count]);
            count
        };
        write(&mut file, &contents, memory).unwrap();
        Core::parse(file.into_inner().into(), "core").unwrap()
    }

    /// Returns this program: its bytes and its build id.
    fn program() -> (SharedBytes, BuildId) {
        let bytes = SharedBytes::map_file(&std::env::current_exe().unwrap()).unwrap();
        let id = Elf::parse(&bytes, "program").unwrap().build_id().unwrap();
        (bytes, id)
    }

    /// Changes the type of the build id's note.
    fn without_id(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let note = [4u8, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0];
        let at = bytes
            .windows(note.len())
            .position(|window| window == note)
            .unwrap();
        bytes[at + 8] = 99;
        bytes
    }

    #[test]
    fn build_ids_in_the_first_page_are_compared() {
        let (bytes, id) = program();
        let core = core_with(&bytes[..0x1000], Vec::new());
        assert_eq!(core.mapped_build(BASE), MappedBuild::Id(id.clone()));
        assert_eq!(core.compare_file(BASE, &[], &bytes), FileBuild::Same);
        let other = without_id(&bytes).into();
        let FileBuild::Other { mapped, found } = core.compare_file(BASE, &[], &other) else {
            panic!("not refused");
        };
        assert_eq!(
            (mapped, found.as_str()),
            (format!("build id {id}"), "no build id")
        );
        for no_program in [&b""[..], b"\x7fELF", b"#!/bin/sh"] {
            let compared = core.compare_file(BASE, &[], &no_program.to_vec().into());
            assert!(matches!(compared, FileBuild::Other { .. }));
        }
    }

    #[test]
    fn files_without_id_are_compared_by_their_page() {
        let (bytes, _) = program();
        let plain = without_id(&bytes);
        let core = core_with(&plain[..0x1000], Vec::new());
        assert_eq!(core.mapped_build(BASE), MappedBuild::WithoutId);
        let mut stripped = plain.clone();
        for field in CHANGED_BY_STRIP {
            stripped[field].fill(0);
        }
        assert_eq!(core.compare_file(BASE, &[], &plain.into()), FileBuild::Same);
        let mut changed = stripped.clone();
        changed[0xff0] ^= 1;
        assert_eq!(core.compare_file(BASE, &[], &stripped.into()), FileBuild::Same);
        for other in [changed.into(), bytes] {
            let compared = core.compare_file(BASE, &[], &other);
            assert!(matches!(compared, FileBuild::Other { .. }), "{compared:?}");
        }
    }

    #[test]
    fn files_without_headers_are_compared_by_their_segments() {
        let (bytes, _) = program();
        let elf = Elf::parse(&bytes, "program").unwrap();
        let lowest = elf.lowest_load().unwrap();
        let mappings = |shift: u64| -> Vec<MappedFile> {
            let mapping = |load: Load| {
                let at = |svma: u64| Avma(svma - page(lowest.0) + BASE.0);
                MappedFile {
                    start: at(page(load.svma.0)),
                    end: at((load.svma.0 + load.file_size).next_multiple_of(PAGE_SIZE)),
                    offset: FileOffset(page(load.offset.0) + shift),
                    path: "/program".to_owned(),
                }
            };
            elf.loads().map(mapping).collect()
        };
        // Another page is saved than the first one.
        let core = core_with(&[0; 64], Vec::new());
        let data = b"no ELF file".to_vec().into();
        assert_eq!(
            core.compare_file(BASE, &mappings(0), &data),
            FileBuild::Unverified
        );
        assert_eq!(core.mapped_build(BASE), MappedBuild::Unknown);
        assert_eq!(
            core.compare_file(BASE, &mappings(0), &bytes),
            FileBuild::Unverified
        );
        let compared = core.compare_file(BASE, &mappings(0x1000), &bytes);
        assert!(matches!(compared, FileBuild::Other { .. }), "{compared:?}");
        let compared = core.compare_file(BASE, &[], &bytes);
        assert!(matches!(compared, FileBuild::Other { .. }), "{compared:?}");
    }
}
