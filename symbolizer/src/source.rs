//! One ELF file that symbols come from, with its compressed debug sections inflated.

use crate::Error;
use object::read::elf::ElfFile64;
use object::{Architecture, CompressionFormat, LittleEndian, Object, ObjectSection};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Shared bytes of a whole file: a `Vec<u8>`, a memory map, a slice of a bundle.
pub type FileBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A parsed ELF file that borrows its bytes.
pub(crate) type Elf<'d> = ElfFile64<'d, LittleEndian, &'d [u8]>;

/// The largest accepted compression ratio of a debug section.
const MAX_INFLATION: u64 = 256;
/// The largest accepted ratio of all sections together to the file's size. Sections may share
/// bytes.
const MAX_TOTAL_INFLATION: u64 = 32;
/// The total size up to which sections are always inflated.
const FREE_INFLATION: u64 = 64 << 20;

/// One file, with its compressed debug sections inflated.
pub(crate) struct Source {
    bytes: FileBytes,
    inflated: Vec<(String, Vec<u8>)>,
}

impl Source {
    pub fn load(bytes: FileBytes) -> Result<Self, Error> {
        let inflated = inflate(&parse((*bytes).as_ref())?);
        Ok(Self { bytes, inflated })
    }

    pub fn elf(&self) -> Result<Elf<'_>, Error> {
        parse((*self.bytes).as_ref())
    }

    /// Returns the contents of a debug section. It is empty if there is none.
    pub fn section<'d>(&'d self, elf: &Elf<'d>, name: &str) -> &'d [u8] {
        if let Some((_, data)) = self.inflated.iter().find(|(inflated, _)| inflated == name) {
            return data;
        }
        plain_section(elf, name).unwrap_or_default()
    }

    /// Returns the contents of all sections with a name. An object file may have one for each type.
    pub fn sections<'d>(&'d self, elf: &Elf<'d>, name: &str) -> Vec<&'d [u8]> {
        let inflated = self.inflated.iter().filter(|(inflated, _)| inflated == name);
        let plain = elf.sections().filter(|section| section.name() == Ok(name));
        let plain = plain.filter_map(|section| {
            let data = section.compressed_data().ok()?;
            (data.format == CompressionFormat::None).then_some(data.data)
        });
        inflated.map(|(_, data)| data.as_slice()).chain(plain).collect()
    }

    /// Returns the total size of all debug sections.
    pub fn dwarf_size(&self, elf: &Elf) -> u64 {
        let inflated: usize = self.inflated.iter().map(|(_, data)| data.len()).sum();
        let debug = elf
            .sections()
            .filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")));
        let plain: usize = debug
            .filter_map(|section| section.data().ok())
            .map(<[u8]>::len)
            .sum();
        (inflated as u64).saturating_add(plain as u64)
    }
}

/// A split DWARF file.
pub(crate) struct SplitFile {
    /// The file's bytes.
    pub source: Source,
    /// Whether the file is a package of several units.
    pub package: bool,
}

/// Maps the regular file at `path` into memory.
///
/// # Errors
/// Fails if the file cannot be read, or is longer than `limit` bytes.
pub fn map_file(path: &Path, limit: u64) -> Result<FileBytes, Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("not a regular file")));
    }
    if metadata.len() > limit {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            size: metadata.len(),
            limit,
        });
    }
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the map is private and only read. If another process truncates the file, an access
    // raises SIGBUS, as for every debugger that maps programs. No code in this process writes to
    // the map, so aliasing rules hold.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(Arc::new(map))
}

fn parse(data: &[u8]) -> Result<Elf<'_>, Error> {
    if !data.starts_with(b"\x7fELF") {
        return Err(Error::NotElf);
    }
    // The class and byte order are checked first, so that foreign ELF files are not reported as
    // damaged.
    if data.get(4..6).is_some_and(|class| class != [2, 1]) {
        return Err(Error::Unsupported("an ELF file that is not 64-bit little-endian"));
    }
    let elf = Elf::parse(data)?;
    if elf.architecture() != Architecture::X86_64 {
        return Err(Error::Unsupported("an ELF file for another processor"));
    }
    Ok(elf)
}

pub(crate) fn has_dwarf(elf: &Elf) -> bool {
    elf.section_by_name(".debug_info")
        .is_some_and(|section| section.size() > 0 && section.file_range().is_some())
}

fn plain_section<'d>(elf: &Elf<'d>, name: &str) -> Option<&'d [u8]> {
    let data = elf.section_by_name(name)?.compressed_data().ok()?;
    // Sections that could not be inflated are ignored.
    (data.format == CompressionFormat::None).then_some(data.data)
}

/// Inflates the compressed debug sections (`SHF_COMPRESSED`, and GNU's older `.zdebug_*`).
fn inflate(elf: &Elf) -> Vec<(String, Vec<u8>)> {
    let mut inflated = Vec::new();
    let size = elf.data().len() as u64;
    let mut left = size.saturating_mul(MAX_TOTAL_INFLATION).max(FREE_INFLATION);
    for section in elf.sections() {
        let Ok(name) = section.name() else { continue };
        let name = match name.strip_prefix(".zdebug_") {
            Some(rest) => format!(".debug_{rest}"),
            None if name.starts_with(".debug_") => name.to_owned(),
            None => continue,
        };
        let Ok(data) = section.compressed_data() else {
            continue;
        };
        let believed = (data.data.len() as u64).saturating_mul(MAX_INFLATION);
        if data.format == CompressionFormat::None || data.uncompressed_size > believed {
            continue;
        }
        let Some(after) = left.checked_sub(data.uncompressed_size) else {
            continue;
        };
        left = after;
        if let Ok(content) = data.decompress() {
            inflated.push((name, content.into_owned()));
        }
    }
    inflated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_malformed_and_foreign_elf_is_unsupported() {
        let refused = |data: &'static [u8]| parse(data).err().unwrap();
        assert!(refused(b"").is_malformed());
        assert!(refused(b"#!/bin/sh\n").is_malformed());
        assert!(!refused(b"\x7fELF\x01\x01\x01").is_malformed());
    }
}
