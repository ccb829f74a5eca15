//! The modules of a process from a bundle's description.

use super::binaries::{self, Found, Wanted};
use crate::module_history::ModuleHistory;
use backtrail_bundle::core::{Core, FileBuild};
use backtrail_bundle::manifest::Module;
use backtrail_bundle::{Bundle, BundlePath, SharedBytes, module_file};
use backtrail_decoder::{Section, Version};
use backtrail_pt::{BuildId, Nanos, Svma};
use backtrail_symbolizer::{self as symbolizer, DebugSearch, SymbolFile, Symbolizer};
use object::LittleEndian;
use object::elf::{ELFCLASS32, FileHeader32, FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A `PT_LOAD` segment of a module's file.
pub(crate) struct LoadSegment {
    pub at: Svma,
    pub size: u64,
    /// The part of the file with its contents.
    pub stored: Range<u64>,
    pub executable: bool,
}

/// Returns the `PT_LOAD` segments of an ELF file.
pub(crate) fn loads(bytes: &[u8]) -> Vec<LoadSegment> {
    match bytes.get(4) {
        Some(class) if *class == ELFCLASS32.0 => loads_of::<FileHeader32<LittleEndian>>(bytes),
        _ => loads_of::<FileHeader64<LittleEndian>>(bytes),
    }
}

fn loads_of<H: FileHeader<Endian = LittleEndian>>(bytes: &[u8]) -> Vec<LoadSegment> {
    let Ok(header) = H::parse(bytes) else {
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
            at: Svma(segment.p_vaddr(LittleEndian).into()),
            size: segment.p_memsz(LittleEndian).into(),
            stored: {
                let offset: u64 = segment.p_offset(LittleEndian).into();
                offset..offset.saturating_add(segment.p_filesz(LittleEndian).into())
            },
            executable: segment.p_flags(LittleEndian).0 & PF_X.0 != 0,
        })
        .collect()
}

/// Returns the lowest stated address.
pub(crate) fn lowest(loads: &[LoadSegment]) -> Option<Svma> {
    loads.iter().map(|load| load.at).min()
}

/// The files of a bundle's modules, each opened once, however many modules name it.
pub(super) struct BundleFiles<'a> {
    bundle: &'a Bundle,
    search: &'a DebugSearch,
    known: HashMap<BundlePath, BundleFile>,
    /// Files below the user's directories, of modules that the bundle does not have.
    outside: HashMap<(String, Option<BuildId>), BundleFile>,
    /// Notes about files.
    pub notes: Vec<String>,
    /// Notes about files that are not used, or that may be wrong.
    pub warnings: Vec<String>,
}

/// The modules of a process.
pub(super) struct MappedModules {
    pieces: Vec<Piece>,
}

/// A mapping of a module, and the period in which it held.
struct Piece {
    mapped: symbolizer::Module,
    /// The boundaries of the module.
    versions: (Version, Option<Version>),
    /// The times of the mapping.
    times: (Option<Nanos>, Option<Nanos>),
}

/// A module's file.
#[derive(Default)]
struct BundleFile {
    loads: Vec<LoadSegment>,
    symbols: Option<Arc<SymbolFile>>,
    bytes: Option<SharedBytes>,
    /// Whether it was found outside of the bundle, and has code.
    has_outside_code: bool,
}

impl<'a> BundleFiles<'a> {
    /// Returns the files of a bundle; `search` gives the directories of debug files.
    pub fn new(bundle: &'a Bundle, search: &'a DebugSearch) -> Self {
        Self {
            bundle,
            search,
            known: HashMap::new(),
            outside: HashMap::new(),
            notes: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Returns a file, which the traced system had at `name`.
    fn get(&mut self, path: &BundlePath, name: &str) -> &BundleFile {
        let (bundle, search, notes) = (self.bundle, self.search, &mut self.notes);
        self.known.entry(path.clone()).or_insert_with(|| {
            let Ok(bytes) = bundle.bytes(path) else {
                return BundleFile::default();
            };
            BundleFile {
                loads: loads(&bytes),
                symbols: open(bytes.clone(), name, &search.clone().recorded_at(name), notes),
                bytes: Some(bytes),
                has_outside_code: false,
            }
        })
    }

    /// Returns the file of a module that the bundle does not have, if the user's directories do.
    fn get_outside(&mut self, module: &Module) -> &BundleFile {
        let Self {
            search,
            outside,
            notes,
            warnings,
            ..
        } = self;
        let key = (module.path.clone(), module.build_id.clone());
        outside.entry(key).or_insert_with(|| {
            let wanted = Wanted {
                recorded: &module.path,
                build_id: module.build_id.as_ref(),
                is_local: false,
            };
            let found = match wanted.find(search, |bytes| compare(module, bytes)) {
                Found::Binary(found) => found,
                Found::Refused { path, mapped, found } => {
                    warnings.push(binaries::refusal(&module.path, &path, &mapped, &found));
                    return BundleFile::default();
                }
                Found::Missing => return BundleFile::default(),
            };
            let path = found.path.display();
            match found.is_verified {
                true => notes.push(format!("{} is read from {path}", module.path)),
                false => warnings.push(format!(
                    "{} is read from {path}, which may be another build: its build id is not recorded",
                    module.path
                )),
            }
            let search = search.clone().beside_file(&found.path).recorded_at(&module.path);
            BundleFile {
                loads: loads(&found.bytes),
                symbols: open(found.bytes.clone(), &module.path, &search, notes),
                has_outside_code: !found.is_debug_only,
                bytes: Some(found.bytes),
            }
        })
    }

    /// Maps the modules of a process, and returns the code of those whose files are not in the
    /// bundle, too. `core` is that of the process.
    pub fn map(&mut self, modules: &[Module], core: Option<&Core>) -> (MappedModules, Vec<Section>) {
        let (mut mapped, mut code) = (Vec::new(), Vec::new());
        for module in modules {
            let refusal = self.refusal(module, core);
            let file = match &module.file {
                Some(path) => self.get(path, &module.path),
                None => self.get_outside(module),
            };
            let bias = lowest(&file.loads).map_or(module.base.0, |lowest| module.bias(lowest));
            let stated = module.mappings.iter();
            let stated = stated.map(|mapping| {
                let range = mapping.start..mapping.start + mapping.size;
                (range, (mapping.from, mapping.until))
            });
            let loaded = file.loads.iter().filter(|_| module.mappings.is_empty());
            let loaded = loaded.map(|load| {
                let range = load.at.to_avma(bias)..load.at.to_avma(bias) + load.size;
                (range, (None, None))
            });
            let name: Arc<str> = module.path.as_str().into();
            let symbols = file.symbols.clone().filter(|_| refusal.is_none());
            mapped.extend(stated.chain(loaded).map(|(range, times)| Piece {
                mapped: symbolizer::Module {
                    range,
                    bias,
                    name: Arc::clone(&name),
                    file: symbols.clone(),
                },
                versions: (Version(module.mapped_from), module.mapped_until.map(Version)),
                times,
            }));
            // The code of a module that was mapped for a time is known from the bundle alone.
            let mut mappings = module.mappings.iter();
            let is_lasting = module.mapped_from == 0
                && module.mapped_until.is_none()
                && mappings.all(|mapping| mapping.from.or(mapping.until).is_none());
            if file.has_outside_code && is_lasting && refusal.is_none() {
                code.extend(sections(file, bias));
            }
            self.warnings.extend(refusal);
        }
        (MappedModules { pieces: mapped }, code)
    }

    /// Returns the note that a module's file is another build than the one in the core.
    fn refusal(&mut self, module: &Module, core: Option<&Core>) -> Option<String> {
        let core = core?;
        // Another module may be at that address by the end.
        let mut listed = core.contents().files.iter();
        listed.find(|file| file.start == module.base && file.path == module.path)?;
        // Without a build id in the core, only the recorder's own description counts.
        let mapped = core.mapped_build_id(module.base)?;
        let file = match &module.file {
            Some(path) => self.get(path, &module.path),
            None => self.get_outside(module),
        };
        let found = module_file::build_id_of(file.bytes.as_ref()?, &module.path).ok()?;
        if found.as_ref() == Some(&mapped) {
            return None;
        }
        let (mapped, found) = (format!("build id {mapped}"), in_words(found));
        Some(match module.file {
            Some(_) => format!(
                "the bundle's file of {} is another build than the one in the core: the process had \
                 {mapped}, the file has {found}; its names are not used, and its instructions may be wrong",
                module.path
            ),
            None => binaries::refusal(&module.path, Path::new(&module.path), &mapped, &found),
        })
    }
}

/// Returns a build id in words.
fn in_words(id: Option<BuildId>) -> String {
    id.map_or("no build id".to_owned(), |id| format!("build id {id}"))
}

/// The most periods that are distinguished. A program that replaces modules more often has no
/// names in those of the later periods.
const MAX_EPOCHS: usize = 256;

impl MappedModules {
    /// Returns the symbols of the modules over time. `since` returns the version of the code that
    /// holds from a time on. `notes` receives what is unknown.
    pub fn over_time(self, since: impl Fn(Nanos) -> Version, notes: &mut Vec<String>) -> ModuleHistory {
        let period = |piece: &Piece| {
            let (from, until) = piece.times;
            let from = from.map(&since).unwrap_or_default().max(piece.versions.0);
            let until = until.map(&since).into_iter().chain(piece.versions.1).min();
            (from, until)
        };
        let pieces: Vec<_> = self
            .pieces
            .into_iter()
            .map(|piece| (period(&piece), piece.mapped))
            .collect();
        let mut starts = vec![Version::default()];
        starts.extend(pieces.iter().map(|((from, _), _)| *from));
        starts.extend(pieces.iter().filter_map(|((_, until), _)| *until));
        starts.sort_unstable();
        starts.dedup();
        let of_version = |version: Version| {
            let holds = |from: Version, until: Option<Version>| {
                from <= version && until.is_none_or(|until| version < until)
            };
            let here = pieces.iter().filter(|((from, until), _)| holds(*from, *until));
            let mut symbols = Symbolizer::new();
            symbols.add_modules(here.map(|(_, mapped)| mapped.clone()));
            symbols
        };
        if starts.len() == 1 {
            return of_version(Version::default()).into();
        }
        if starts.len() > MAX_EPOCHS {
            notes.push(format!(
                "modules were replaced {} times; the names of those after {MAX_EPOCHS} replacements are unknown",
                starts.len() - 1
            ));
        }
        let of = |wanted: bool| {
            let lasts =
                |(from, until): (Version, Option<Version>)| from == Version::default() && until.is_none();
            let pieces = pieces.iter().filter(move |(period, _)| lasts(*period) == wanted);
            pieces.map(|(_, mapped)| mapped.clone())
        };
        let mut stable = Symbolizer::new();
        stable.add_modules(of(true));
        // Modules that are mapped for a time hide those that last. They may have replaced a part.
        stable.add_modules(of(false).map(|mapped| symbolizer::Module {
            file: None,
            name: "(replaced modules)".into(),
            ..mapped
        }));
        let replaced = of(false).map(|mapped| mapped.range).collect();
        let known = starts.iter().take(MAX_EPOCHS);
        let mut epochs: Vec<(Version, Symbolizer)> = known.map(|&start| (start, of_version(start))).collect();
        if let Some(&next) = starts.get(MAX_EPOCHS) {
            epochs.push((next, stable.clone()));
        }
        ModuleHistory::new(stable, epochs, replaced)
    }
}

/// Compares a file with the build id of a module.
fn compare(module: &Module, bytes: &SharedBytes) -> FileBuild {
    let Ok(found) = module_file::build_id_of(bytes, &module.path) else {
        return FileBuild::Other {
            mapped: "an ELF file".to_owned(),
            found: "something else".to_owned(),
        };
    };
    match (&module.build_id, found) {
        (None, _) => FileBuild::Unverified,
        (Some(wanted), Some(found)) if *wanted == found => FileBuild::Same,
        (Some(wanted), found) => FileBuild::Other {
            mapped: format!("build id {wanted}"),
            found: in_words(found),
        },
    }
}

/// Returns the code of a file.
fn sections(file: &BundleFile, bias: u64) -> impl Iterator<Item = Section> {
    let executable = file.loads.iter().filter(|load| load.executable);
    executable.filter_map(move |load| {
        let bytes = file.bytes.as_ref()?.slice(load.stored.clone())?;
        Some(Section {
            start: load.at.to_avma(bias),
            bytes: Arc::new(bytes),
        })
    })
}

/// Opens the symbols of a file; `notes` receives the reason if it has none.
pub(super) fn open(
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
