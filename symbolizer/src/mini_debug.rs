//! The symbols that a stripped file has in a packed section (`.gnu_debugdata`).
//!
//! Fedora and its relatives ship all programs so. The section is an ELF file, packed by xz, whose
//! `.symtab` has the functions that `.dynsym` lacks. Source: GDB manual, "MiniDebugInfo".

use crate::source::{Elf, Source};
use lzma_rust2::XzReader;
use std::io::Read;
use std::sync::Arc;

/// The name of the section.
const SECTION: &str = ".gnu_debugdata";
/// The most unpacked bytes. The section of a browser's library has 20 MB.
const MAX_BYTES: u64 = 128 << 20;
/// The largest accepted compression ratio.
const MAX_RATIO: u64 = 256;
/// The memory of the unpacking in KiB.
const MEMORY: u32 = 64 << 10;

/// Unpacks the section of a file without `.symtab`. `None`: there is none, or it is damaged.
pub(crate) fn find(module: &Source, elf: &Elf<'_>) -> Option<Source> {
    if !elf.elf_symbol_table().is_empty() {
        return None;
    }
    let packed = module.section(elf, SECTION);
    if packed.is_empty() {
        return None;
    }
    let limit = (packed.len() as u64).saturating_mul(MAX_RATIO).min(MAX_BYTES);
    let mut bytes = Vec::new();
    let reader = XzReader::new_mem_limit(packed, true, MEMORY);
    reader.take(limit + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > limit {
        return None;
    }
    Source::load(Arc::new(bytes)).ok()
}
