//! The bytes of the files that symbols come from: the module, its debug file, and the file both share.

use crate::split::SplitFile;
use crate::{DebugSearch, Error};
use object::read::elf::ElfFile64;
use object::{Architecture, CompressionFormat, LittleEndian, Object, ObjectKind, ObjectSection};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shared bytes of a whole file: a `Vec<u8>`, a memory map, a slice of a bundle.
pub type FileBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A parsed ELF file that borrows its bytes.
pub(crate) type Elf<'d> = ElfFile64<'d, LittleEndian, &'d [u8]>;

/// No genuine debug section is compressed further; a header that claims more is not believed.
const MAX_INFLATION: u64 = 256;
/// Nor are all sections of a file together, which may share their bytes: they inflate to so many times its size,
const MAX_TOTAL_INFLATION: u64 = 32;
/// or to this, if that is more.
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

    /// The content of a debug section; empty when there is none.
    pub fn section<'d>(&'d self, elf: &Elf<'d>, name: &str) -> &'d [u8] {
        if let Some((_, data)) = self.inflated.iter().find(|(inflated, _)| inflated == name) {
            return data;
        }
        plain_section(elf, name).unwrap_or_default()
    }

    /// The contents of all sections of a name: an object file has one for each type that it describes.
    pub fn sections<'d>(&'d self, elf: &Elf<'d>, name: &str) -> Vec<&'d [u8]> {
        let inflated = self.inflated.iter().filter(|(inflated, _)| inflated == name);
        let plain = elf.sections().filter(|section| section.name() == Ok(name));
        let plain = plain.filter_map(|section| {
            let data = section.compressed_data().ok()?;
            (data.format == CompressionFormat::None).then_some(data.data)
        });
        inflated.map(|(_, data)| data.as_slice()).chain(plain).collect()
    }

    /// The bytes of all debug sections together.
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

/// Every file whose bytes the tables point into.
pub(crate) struct Sources {
    /// The module itself.
    pub module: Source,
    /// Its separate debug file.
    pub debug: Option<Source>,
    /// What `dwz` moved out of several debug files (`.gnu_debugaltlink`).
    pub supplementary: Option<Source>,
    /// What was split off the DWARF.
    pub split: Vec<SplitFile>,
    /// A debug file was named, and this is why it is not here.
    pub missing: Option<String>,
}

impl Sources {
    /// Reads the module's headers and finds the files that belong to it.
    pub fn gather(bytes: FileBytes, search: &DebugSearch) -> Result<Self, Error> {
        let module = Source::load(bytes)?;
        let mut sources = Self {
            module,
            debug: None,
            supplementary: None,
            split: Vec::new(),
            missing: None,
        };
        let elf = sources.module.elf()?;
        // Files made by `dwz` are relocatable; no module is.
        if !matches!(elf.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return Err(Error::Unsupported(
                "an ELF file that is not linked (an object or core file)",
            ));
        }
        if !has_dwarf(&elf) {
            match find_debug(&elf, search) {
                Ok(found) => sources.debug = found,
                Err(missing) => sources.missing = Some(missing),
            }
        }
        let holder = sources.debug.as_ref().unwrap_or(&sources.module);
        if let Some((path, id)) = holder.elf()?.gnu_debugaltlink().ok().flatten() {
            let found = find_by_id(id, search).or_else(|| find_supplementary(path, id, search));
            if found.is_none() {
                let path = String::from_utf8_lossy(path);
                sources.missing = Some(format!("the supplementary debug file {path} was not found"));
            }
            sources.supplementary = found;
        }
        let id = elf.build_id().ok().flatten().and_then(backtrail_pt::BuildId::new);
        sources.split = crate::split::find(sources.dwarf_holder(), id.as_ref(), search);
        Ok(sources)
    }

    /// The file with the DWARF, if it is not the module itself.
    pub fn dwarf_holder(&self) -> &Source {
        self.debug.as_ref().unwrap_or(&self.module)
    }
}

/// Maps the regular file at `path` into memory.
pub(crate) fn map_file(path: &Path, limit: u64) -> Result<FileBytes, Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let metadata = path.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(std::io::Error::other("it is not a regular file")));
    }
    if metadata.len() > limit {
        return Err(Error::TooLarge {
            path: path.to_owned(),
            size: metadata.len(),
            limit,
        });
    }
    let file = File::open(path).map_err(failed)?;
    // SAFETY: the map is private and only read. Another process that truncates the file meanwhile
    // makes the access fault, as for every debugger that maps programs; it cannot break aliasing
    // within this process, which never writes the file.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(failed)?;
    Ok(Arc::new(map))
}

fn parse(data: &[u8]) -> Result<Elf<'_>, Error> {
    // The class and byte order come first, so that a foreign ELF file is not called damaged.
    if data.starts_with(b"\x7fELF") && data.get(4..6).is_some_and(|class| class != [2, 1]) {
        return Err(Error::Unsupported("an ELF file that is not 64-bit little-endian"));
    }
    let elf = Elf::parse(data)?;
    if elf.architecture() != Architecture::X86_64 {
        return Err(Error::Unsupported("an ELF file for another processor"));
    }
    Ok(elf)
}

fn has_dwarf(elf: &Elf) -> bool {
    elf.section_by_name(".debug_info")
        .is_some_and(|section| section.size() > 0 && section.file_range().is_some())
}

fn plain_section<'d>(elf: &Elf<'d>, name: &str) -> Option<&'d [u8]> {
    let data = elf.section_by_name(name)?.compressed_data().ok()?;
    // What could not be inflated is of no use.
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

/// `Ok(None)`: none is named. `Err`: one is named, and why it is not here.
fn find_debug(elf: &Elf, search: &DebugSearch) -> Result<Option<Source>, String> {
    let id = elf.build_id().ok().flatten();
    if let Some(found) = id.and_then(|id| find_by_id(id, search)) {
        return Ok(Some(found));
    }
    let Some((name, crc)) = elf.gnu_debuglink().ok().flatten() else {
        return Ok(None);
    };
    let shown = String::from_utf8_lossy(name);
    let Some(name) = file_name(name) else {
        return Err(format!("the debug file name {shown:?} is not a plain file name"));
    };
    for directory in &search.beside {
        for path in [directory.join(name), directory.join(".debug").join(name)] {
            let Ok(bytes) = map_file(&path, search.max_file_size) else {
                continue;
            };
            if crc32((*bytes).as_ref()) != crc {
                continue;
            }
            if let Ok(source) = Source::load(bytes) {
                return Ok(Some(source));
            }
        }
    }
    Err(format!("the debug file {shown} was not found"))
}

/// `ROOT/.build-id/xx/yyyy.debug`, whose own build id must be the same.
fn find_by_id(id: &[u8], search: &DebugSearch) -> Option<Source> {
    let id = backtrail_pt::BuildId::new(id)?;
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    search.roots.iter().find_map(|root| {
        let path = root.join(".build-id").join(first).join(format!("{rest}.debug"));
        load_with_id(&path, id.as_bytes(), search)
    })
}

/// `.gnu_debugaltlink` names a path on the build machine; its file name is looked up in each
/// `ROOT/.dwz`, and one directory down, where Debian keeps one directory an architecture.
fn find_supplementary(path: &[u8], id: &[u8], search: &DebugSearch) -> Option<Source> {
    let path = PathBuf::from(std::str::from_utf8(path).ok()?);
    let name = file_name(path.file_name()?.as_encoded_bytes())?;
    let architecture = path.parent().and_then(Path::file_name);
    let below_roots = search.roots.iter().map(|root| root.join(".dwz"));
    below_roots
        .chain(search.beside.iter().cloned())
        .find_map(|directory| {
            let nested = architecture.map(|architecture| directory.join(architecture).join(name));
            let mut candidates = [Some(directory.join(name)), nested].into_iter().flatten();
            candidates.find_map(|candidate| load_with_id(&candidate, id, search))
        })
}

fn load_with_id(path: &Path, id: &[u8], search: &DebugSearch) -> Option<Source> {
    let source = Source::load(map_file(path, search.max_file_size).ok()?).ok()?;
    let same = source.elf().ok()?.build_id().ok().flatten() == Some(id);
    same.then_some(source)
}

/// A name of one component: no way out of the directory it is looked up in.
fn file_name(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    plain.then_some(name)
}

/// The checksum of `.gnu_debuglink`: CRC-32 as in zlib (GDB manual, "Separate Debug Files").
fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    0xedb8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !data
        .iter()
        .fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b"] {
            assert_eq!(file_name(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(file_name(b"foo.debug"), Some("foo.debug"));
    }

    #[test]
    fn what_is_no_elf_file_is_malformed_and_foreign_is_not() {
        let refused = |data: &'static [u8]| parse(data).err().unwrap();
        assert!(refused(b"").is_malformed());
        assert!(refused(b"#!/bin/sh\n").is_malformed());
        assert!(!refused(b"\x7fELF\x01\x01\x01").is_malformed());
    }
}
