//! The vDSO: the code that the kernel maps into all processes.
//!
//! No file has it, so that its names travel with a profile. Source: vdso(7).

use crate::elf_sections::{ElfSections, LoadedSegment};
use crate::unwind_table::UnwindTable;
use backtrail_pt::{BuildId, FileOffset};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, SymbolKind};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::OnceLock;

/// The most bytes of a vDSO. That of Linux has two pages.
const MAX_BYTES: u64 = 1 << 20;

/// A function of the vDSO.
#[derive(Clone, Debug, PartialEq, Eq)]
struct VdsoFunction {
    address: u64,
    size: u64,
    /// Weak names are the aliases without `__vdso_`.
    is_weak: bool,
    name: String,
}

/// The vDSO of this process, which is that of all processes of 64 bits of this machine.
#[derive(Debug)]
pub struct Vdso {
    image: Vec<u8>,
    build_id: Option<BuildId>,
    segments: Vec<LoadedSegment>,
    /// The functions in the order of addresses, one each.
    functions: Vec<VdsoFunction>,
}

impl Vdso {
    /// The name of the vDSO in the mappings of a process.
    pub const MODULE: &str = "[vdso]";

    /// Returns the vDSO of this machine. `None`: the kernel maps none.
    #[must_use]
    pub fn of_this_machine() -> Option<&'static Self> {
        static KNOWN: OnceLock<Option<Vdso>> = OnceLock::new();
        KNOWN.get_or_init(|| Self::of_elf(image()?)).as_ref()
    }

    /// Reads the image of a vDSO.
    fn of_elf(image: Vec<u8>) -> Option<Self> {
        let sections = ElfSections::parse(&*image)?;
        Some(Self {
            build_id: sections.build_id().and_then(BuildId::new),
            segments: sections.segments(),
            functions: functions(&image),
            image,
        })
    }

    /// Returns the build id.
    #[must_use]
    pub fn build_id(&self) -> Option<&BuildId> {
        self.build_id.as_ref()
    }

    /// Builds the table that unwinds its stacks.
    pub(crate) fn table(&self) -> Option<UnwindTable> {
        UnwindTable::of_elf(&*self.image)
    }

    /// Returns the name of the function at an offset of the image. Code between the functions that
    /// have symbols has none.
    #[must_use]
    pub fn function_at(&self, offset: FileOffset) -> Option<&str> {
        let address = self.segments.iter().find_map(|segment| {
            let inside = offset.0.checked_sub(segment.offset)?;
            segment
                .address
                .checked_add(inside)
                .filter(|_| inside < segment.size)
        })?;
        let after = self
            .functions
            .partition_point(|function| function.address <= address);
        let function = self.functions.get(after.checked_sub(1)?)?;
        let is_inside = address - function.address < function.size;
        is_inside.then_some(function.name.as_str())
    }
}

/// Returns the functions with a size. Of several names for an address, the one that is not weak is
/// kept, as in perf.
fn functions(image: &[u8]) -> Vec<VdsoFunction> {
    let Ok(elf) = ElfFile64::<Endianness>::parse(image) else {
        return Vec::new();
    };
    let symbols = elf
        .dynamic_symbols()
        .chain(elf.symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
    let mut functions: Vec<_> = symbols
        .filter_map(|symbol| {
            Some(VdsoFunction {
                address: symbol.address(),
                size: symbol.size(),
                is_weak: symbol.is_weak(),
                name: symbol.name().ok().filter(|name| !name.is_empty())?.to_owned(),
            })
        })
        .collect();
    functions.sort_by(|a, b| (a.address, a.is_weak, &a.name).cmp(&(b.address, b.is_weak, &b.name)));
    functions.dedup_by_key(|function| function.address);
    functions
}

/// Returns the bytes of this process's vDSO.
fn image() -> Option<Vec<u8>> {
    let own = i32::try_from(std::process::id()).ok()?;
    let maps = backtrail_process::maps::maps(own);
    let map = maps.iter().find(|map| map.path == Vdso::MODULE)?;
    let size = Some(map.size()).filter(|&size| size <= MAX_BYTES)?;
    let mut image = vec![0; usize::try_from(size).ok()?];
    let mut memory = File::open("/proc/self/mem").ok()?;
    memory.seek(SeekFrom::Start(map.start)).ok()?;
    memory.read_exact(&mut image).ok()?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_vdso_has_a_build_id_a_table_and_names() {
        let vdso = Vdso::of_this_machine().unwrap();
        assert!(vdso.build_id().is_some());
        assert!(vdso.table().is_some_and(|table| !table.is_empty()));
        let first = vdso
            .functions
            .iter()
            .find(|function| function.name.ends_with("clock_gettime"))
            .unwrap();
        assert!(!first.is_weak, "{first:?}");
        // The image of Linux is mapped as it is: offsets are addresses.
        let at = |address| vdso.function_at(FileOffset(address));
        assert_eq!(at(first.address), Some(first.name.as_str()));
        assert_eq!(at(first.address + first.size - 1), Some(first.name.as_str()));
        assert_ne!(at(first.address + first.size), Some(first.name.as_str()));
        assert_eq!(at(0), None);
        assert_eq!(at(u64::MAX), None);
    }

    #[test]
    fn every_part_of_an_image_is_read_or_refused() {
        let image = image().unwrap();
        for length in (0..image.len()).step_by(97) {
            if let Some(vdso) = Vdso::of_elf(image[..length].to_vec()) {
                let _ = vdso.function_at(FileOffset(length as u64));
            }
        }
    }
}
