//! The modules of a process: from a bundle's description, or from a core's file map.

use crate::module_history::ModuleHistory;
use backtrail_bundle::manifest::Module;
use backtrail_bundle::module_file::{self, FileIdentity};
use backtrail_bundle::{Bundle, BundlePath, PAGE_SIZE, SharedBytes};
use backtrail_decoder::{Image, Section, Version};
use backtrail_pt::{Avma, Svma};
use backtrail_symbolizer::{self as symbolizer, DebugSearch, SymbolFile, Symbolizer};
use object::LittleEndian;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A `PT_LOAD` segment of a module's file.
struct LoadSegment {
    at: Svma,
    size: u64,
}

fn loads(bytes: &[u8]) -> Vec<LoadSegment> {
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
        .map(|segment| LoadSegment {
            at: Svma(segment.p_vaddr(LittleEndian)),
            size: segment.p_memsz(LittleEndian),
        })
        .collect()
}

fn lowest(loads: &[LoadSegment]) -> Option<Svma> {
    loads.iter().map(|load| load.at).min()
}

/// The files of a bundle that are modules, each opened once, however many modules name it.
pub(super) struct BundleFiles<'a> {
    bundle: &'a Bundle,
    search: &'a DebugSearch,
    known: HashMap<BundlePath, BundleFile>,
}

/// A module's file.
#[derive(Default)]
struct BundleFile {
    loads: Vec<LoadSegment>,
    symbols: Option<Arc<SymbolFile>>,
}

impl<'a> BundleFiles<'a> {
    /// Returns the files of a bundle; `search` gives the directories of debug files.
    pub fn new(bundle: &'a Bundle, search: &'a DebugSearch) -> Self {
        Self {
            bundle,
            search,
            known: HashMap::new(),
        }
    }

    /// Returns a file, which the traced system had at `name`.
    fn get(&mut self, path: &BundlePath, name: &str, notes: &mut Vec<String>) -> &BundleFile {
        let (bundle, search) = (self.bundle, self.search);
        self.known.entry(path.clone()).or_insert_with(|| {
            let Ok(bytes) = bundle.bytes(path) else {
                return BundleFile::default();
            };
            BundleFile {
                loads: loads(&bytes),
                symbols: open(bytes, name, search, notes),
            }
        })
    }
}

/// The most periods that are distinguished. A program that replaces modules more often has no
/// names in those of the later periods.
const MAX_EPOCHS: usize = 256;

/// Maps the modules of a bundle's process; `notes` receives those without symbols.
pub(super) fn of_bundle(
    files: &mut BundleFiles<'_>,
    modules: &[Module],
    notes: &mut Vec<String>,
) -> ModuleHistory {
    let mut mapped: Vec<(&Module, Vec<symbolizer::Module>)> = Vec::new();
    for module in modules {
        mapped.push((module, pieces(files, module, notes)));
    }
    let mut starts: Vec<u32> = vec![0];
    starts.extend(modules.iter().map(|module| module.mapped_from));
    starts.extend(modules.iter().filter_map(|module| module.mapped_until));
    starts.sort_unstable();
    starts.dedup();
    let of_version = |version: u32| {
        let here = mapped.iter().filter(|(module, _)| {
            module.mapped_from <= version && module.mapped_until.is_none_or(|until| version < until)
        });
        let mut symbols = Symbolizer::new();
        symbols.add_modules(here.flat_map(|(_, pieces)| pieces.iter().cloned()));
        symbols
    };
    if starts.len() == 1 {
        return of_version(0).into();
    }
    if starts.len() > MAX_EPOCHS {
        notes.push(format!(
            "modules were replaced {} times; the names of those after {MAX_EPOCHS} replacements are unknown",
            starts.len() - 1
        ));
    }
    let lasting = |module: &Module| module.mapped_from == 0 && module.mapped_until.is_none();
    let of = |wanted: bool| {
        let modules = mapped.iter().filter(move |(module, _)| lasting(module) == wanted);
        modules.flat_map(|(_, pieces)| pieces.iter().cloned())
    };
    let mut stable = Symbolizer::new();
    stable.add_modules(of(true));
    // Modules that are mapped for a time hide those that last, as they may have replaced a part.
    let replaced: Vec<symbolizer::Module> = of(false).collect();
    stable.add_modules(replaced.iter().map(|piece| symbolizer::Module {
        file: None,
        name: "(replaced modules)".into(),
        ..piece.clone()
    }));
    let known = starts.iter().take(MAX_EPOCHS);
    let mut epochs: Vec<(Version, Symbolizer)> =
        known.map(|&start| (Version(start), of_version(start))).collect();
    if let Some(&next) = starts.get(MAX_EPOCHS) {
        epochs.push((Version(next), stable.clone()));
    }
    let replaced = replaced.into_iter().map(|piece| piece.range).collect();
    ModuleHistory::new(stable, epochs, replaced)
}

/// Returns the mappings of a module.
fn pieces(files: &mut BundleFiles<'_>, module: &Module, notes: &mut Vec<String>) -> Vec<symbolizer::Module> {
    let none = BundleFile::default();
    let file = match &module.file {
        Some(path) => files.get(path, &module.path, notes),
        None => &none,
    };
    let bias = lowest(&file.loads).map_or(module.base.0, |lowest| module.bias(lowest));
    let stated = module.mappings.iter();
    let stated = stated.map(|mapping| mapping.start..mapping.start + mapping.size);
    let loaded = file.loads.iter().filter(|_| module.mappings.is_empty());
    let loaded = loaded.map(|load| load.at.to_avma(bias)..load.at.to_avma(bias) + load.size);
    let name: Arc<str> = module.path.as_str().into();
    let mapped = stated.chain(loaded).map(|range| symbolizer::Module {
        range,
        bias,
        name: Arc::clone(&name),
        file: file.symbols.clone(),
    });
    mapped.collect()
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
pub(super) struct CoreFile<'a> {
    pub path: &'a str,
    pub parts: Vec<(Range<Avma>, u64)>,
}

/// The number of missing files that are listed by name.
const MISSING_NAMED: usize = 20;

/// Maps the files of a core that this machine has. Their code is used where the core has no memory.
pub(super) fn of_core(
    files: &[CoreFile<'_>],
    search: &DebugSearch,
    image: &mut Image,
    notes: &mut Vec<String>,
) -> Symbolizer {
    let mut modules = Vec::new();
    let mut missing = 0;
    // A core may name one file by any number of paths.
    let mut known: HashMap<FileIdentity, Option<Arc<SymbolFile>>> = HashMap::new();
    for mapped in files {
        let path = Path::new(mapped.path);
        let Ok(bytes) = SharedBytes::map_file(path) else {
            missing += 1;
            if missing <= MISSING_NAMED {
                notes.push(format!(
                    "{} is not on this machine; its symbols are unknown",
                    mapped.path
                ));
            }
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
        let open = || open(bytes, mapped.path, &search.clone().beside_file(path), notes);
        let file = match module_file::identity(path) {
            Ok(identity) => known.entry(identity).or_insert_with(open).clone(),
            Err(_) => open(),
        };
        let name: Arc<str> = mapped.path.into();
        modules.extend(mapped.parts.iter().map(|(range, _)| symbolizer::Module {
            range: range.clone(),
            bias,
            name: Arc::clone(&name),
            file: file.clone(),
        }));
    }
    if let Some(more) = missing.checked_sub(MISSING_NAMED).filter(|&more| more != 0) {
        notes.push(format!("{more} more files of the core are not on this machine"));
    }
    let mut symbols = Symbolizer::new();
    symbols.add_modules(modules);
    symbols
}
