//! Captures of real processors, and a minimal loader for their ELF files.

pub mod agreed;

use backtrail_decoder::{Image, Section};
use backtrail_pt::Avma;
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use std::path::PathBuf;
use std::sync::Arc;

/// Reads a file of the captures; `None`, with a message, if there are no captures.
pub fn capture(path: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data"));
    if !root.is_dir() {
        eprintln!("skipped: no captures at {}", root.display());
        return None;
    }
    Some(std::fs::read(root.join(path)).unwrap())
}

/// Adds the loadable segments of an ELF file. If `base` is given, the lowest page is moved there.
pub fn add_elf(image: &mut Image, bytes: &[u8], base: Option<u64>) {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).unwrap();
    let endian = header.endian().unwrap();
    let loads: Vec<_> = header
        .program_headers(endian, bytes)
        .unwrap()
        .iter()
        .filter(|segment| segment.p_type(endian) == elf::PT_LOAD)
        .collect();
    let lowest = loads
        .iter()
        .map(|load| load.p_vaddr(endian) & !0xfff)
        .min()
        .unwrap();
    let bias = base.map_or(0, |base| base.wrapping_sub(lowest));
    for load in loads {
        let data = load.data(endian, bytes).unwrap();
        let start = Avma(load.p_vaddr(endian).wrapping_add(bias));
        image.add(Section {
            start,
            bytes: Arc::new(data.to_vec()),
        });
    }
}
