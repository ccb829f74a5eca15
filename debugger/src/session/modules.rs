//! The modules of a process: from a bundle's description, or from a core's file map.

use backtrail_bundle::manifest::Module;
use backtrail_bundle::{Bundle, PAGE_SIZE, SharedBytes};
use backtrail_decoder::{Image, Section};
use backtrail_pt::{Avma, Svma};
use backtrail_symbolizer::{DebugSearch, SymbolFile, Symbolizer};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A `PT_LOAD` segment of a module's file.
struct Load {
    at: Svma,
    size: u64,
}

fn loads(bytes: &[u8]) -> Vec<Load> {
    let Ok(header) = FileHeader64::<LittleEndian>::parse(bytes) else {
        return Vec::new();
    };
    let Ok(segments) = header.program_headers(LittleEndian, bytes) else {
        return Vec::new();
    };
    let loads = segments
        .iter()
        .filter(|segment| segment.p_type(LittleEndian) == PT_LOAD);
    loads
        .map(|segment| Load {
            at: Svma(segment.p_vaddr(LittleEndian)),
            size: segment.p_memsz(LittleEndian),
        })
        .collect()
}

fn lowest(loads: &[Load]) -> Option<Svma> {
    loads.iter().map(|load| load.at).min()
}

/// Maps the modules of a bundle's process; what has no symbols is told in `notes`.
pub(super) fn of_bundle(
    bundle: &Bundle,
    modules: &[Module],
    search: &DebugSearch,
    notes: &mut Vec<String>,
) -> Symbolizer {
    let mut symbols = Symbolizer::new();
    for module in modules {
        let bytes = module.file.as_ref().and_then(|file| bundle.bytes(file).ok());
        let segments = bytes.as_deref().map(loads).unwrap_or_default();
        let bias = lowest(&segments).map_or(module.base.0, |lowest| module.bias(lowest));
        let ranges: Vec<Range<Avma>> = if module.mappings.is_empty() {
            segments
                .iter()
                .map(|load| load.at.to_avma(bias)..load.at.to_avma(bias) + load.size)
                .collect()
        } else {
            module
                .mappings
                .iter()
                .map(|mapping| mapping.start..mapping.start + mapping.size)
                .collect()
        };
        let file = bytes.and_then(|bytes| open(bytes, &module.path, search, notes));
        add(&mut symbols, ranges, bias, &module.path, file);
    }
    symbols
}

fn add(
    symbols: &mut Symbolizer,
    ranges: Vec<Range<Avma>>,
    bias: u64,
    name: &str,
    file: Option<Arc<SymbolFile>>,
) {
    let name: Arc<str> = name.into();
    for range in ranges {
        symbols.add_module(range, bias, Arc::clone(&name), file.clone());
    }
}

fn open(
    bytes: SharedBytes,
    name: &str,
    search: &DebugSearch,
    notes: &mut Vec<String>,
) -> Option<Arc<SymbolFile>> {
    match SymbolFile::from_bytes(Arc::new(bytes), search) {
        Ok(file) => Some(Arc::new(file)),
        Err(error) => {
            notes.push(format!("{name} has no symbols: {error}"));
            None
        }
    }
}

/// A file that a core says was mapped: its mappings as (range, file offset).
pub(super) struct Mapped<'a> {
    pub path: &'a str,
    pub parts: Vec<(Range<Avma>, u64)>,
}

/// Maps the files that a core names, where this machine still has them. The code in them is
/// what lies under the core's own memory.
pub(super) fn of_core(
    files: &[Mapped<'_>],
    search: &DebugSearch,
    image: &mut Image,
    notes: &mut Vec<String>,
) -> Symbolizer {
    let mut symbols = Symbolizer::new();
    for mapped in files {
        let Ok(bytes) = SharedBytes::map_file(Path::new(mapped.path)) else {
            notes.push(format!(
                "{} is not on this machine: its symbols are unknown",
                mapped.path
            ));
            continue;
        };
        let segments = loads(&bytes);
        let first = mapped.parts.iter().find(|(_, offset)| *offset == 0);
        let Some((lowest, (base, _))) = lowest(&segments).zip(first) else {
            continue;
        };
        let bias = base.start.0.wrapping_sub(lowest.0 & !(PAGE_SIZE - 1));
        for (range, offset) in &mapped.parts {
            if let Some(part) = bytes.slice(
                *offset
                    ..offset
                        .saturating_add(range.end - range.start)
                        .min(bytes.len() as u64),
            ) {
                image.add(Section {
                    start: range.start,
                    bytes: Arc::new(part),
                });
            }
        }
        let ranges = mapped.parts.iter().map(|(range, _)| range.clone()).collect();
        let search = search.clone().beside_file(Path::new(mapped.path));
        let file = open(bytes, mapped.path, &search, notes);
        add(&mut symbols, ranges, bias, mapped.path, file);
    }
    symbols
}
