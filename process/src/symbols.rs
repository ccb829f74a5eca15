//! Finds functions of a mapped file by their names, in its symbol tables.

use crate::RawTid;
use crate::code_image;
use crate::load_segments::LoadSegments;
use crate::maps::Map;
use object::LittleEndian;
use object::elf::{FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC};
use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::fs::File;

/// Returns the functions in an executable mapping that `wanted` accepts by their symbol names, each
/// with its address in the process. A file that cannot be read has none.
pub fn functions<T>(pid: RawTid, map: &Map, wanted: impl Fn(&str) -> Option<T>) -> Vec<(u64, T)> {
    let Some(file) = code_image::open(pid, map) else {
        return Vec::new();
    };
    let bias = LoadSegments::read(&file).and_then(|segments| segments.bias(map.start, map.offset));
    let (Some(bias), Some(found)) = (bias, in_file(&file, wanted)) else {
        return Vec::new();
    };
    let placed = found
        .into_iter()
        .map(|(stated, function)| (stated.wrapping_add(bias), function));
    placed
        .filter(|(address, _)| (map.start..map.end).contains(address))
        .collect()
}

/// Returns the wanted functions of an ELF file, each with its stated address. `None`: the file has
/// no readable section headers.
fn in_file<T>(file: &File, wanted: impl Fn(&str) -> Option<T>) -> Option<Vec<(u64, T)>> {
    let data = ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &data).ok()?;
    let mut found = Vec::new();
    for kind in [SHT_DYNSYM, SHT_SYMTAB] {
        let Ok(symbols) = sections.symbols(endian, &data, kind) else {
            continue;
        };
        // One read of all names is much faster than one for each.
        let section = sections.section(symbols.string_section()).ok();
        let names = section.and_then(|section| section.data(endian, &data).ok());
        let names = names.unwrap_or_default();
        for symbol in symbols.iter() {
            let is_defined = symbol.st_shndx(endian) != SHN_UNDEF && symbol.st_value(endian) != 0;
            if symbol.st_type() != STT_FUNC || !is_defined {
                continue;
            }
            let function = name_at(names, symbol.st_name(endian)).and_then(&wanted);
            found.extend(function.map(|function| (symbol.st_value(endian), function)));
        }
    }
    Some(found)
}

/// Returns the name at an offset of a string table.
fn name_at(names: &[u8], offset: u32) -> Option<&str> {
    let rest = names.get(usize::try_from(offset).ok()?..)?;
    let len = memchr::memchr(0, rest)?;
    std::str::from_utf8(rest.get(..len)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    #[test]
    fn allocator_of_the_c_library_is_found() {
        let pid = std::process::id() as RawTid;
        let address = libc::malloc as *const () as u64;
        let mapped = maps::maps(pid);
        let map = mapped.iter().find(|map| (map.start..map.end).contains(&address));
        let found = functions(pid, map.unwrap(), |name| (name == "malloc").then_some(()));
        assert!(found.contains(&(address, ())), "{found:x?}");
        assert!(functions(pid, map.unwrap(), |_| None::<()>).is_empty());
    }

    #[test]
    fn names_end_within_the_table() {
        assert_eq!(name_at(b"\0free\0calloc", 1), Some("free"));
        assert_eq!(name_at(b"\0free\0calloc", 6), None);
        assert_eq!(name_at(b"\0free\0", u32::MAX), None);
        assert_eq!(name_at(b"\xff\0", 0), None);
    }
}
