//! The modules of a core, from its file map.

use super::binaries::{self, Binary, Found, NotesByFile, Wanted};
use super::instances::{Instance, instances};
use super::modules::{self, loads};
use backtrail_bundle::core::{Core, FileBuild, MappedBuild, MappedFile, Segment};
use backtrail_bundle::module_file::{self, FileIdentity};
use backtrail_decoder::{Image, Section};
use backtrail_pt::Avma;
use backtrail_symbolizer::{DebugSearch, Module, SymbolFile, Symbolizer};
use std::collections::HashMap;
use std::sync::Arc;

/// The most mappings of a file's first page that are compared with a file.
const MAX_FIRST_PAGES: usize = 16;

/// The files of a core, each opened once.
pub(super) struct CoreModules<'a> {
    core: &'a Core,
    search: &'a DebugSearch,
    /// The memory areas that can be executed, in address order.
    executable: Vec<Segment>,
    /// A core may name one file by any number of paths.
    known: HashMap<FileIdentity, Option<Arc<SymbolFile>>>,
    refused: NotesByFile,
    unverified: NotesByFile,
    missing: NotesByFile,
    /// Other notes.
    notes: Vec<String>,
}

/// The modules of a core, and notes about them.
pub(super) struct MappedCore {
    pub symbols: Symbolizer,
    /// Files that are not used, or that may be wrong.
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
}

/// A file that a core lists: its mappings in the order of the list, which is that of addresses.
struct ListedFile<'a> {
    path: &'a str,
    mappings: Vec<MappedFile>,
}

impl ListedFile<'_> {
    /// Returns the addresses of the file's first page. There are several if the file was loaded
    /// several times, or if it was also mapped to be read.
    fn first_pages(&self) -> impl Iterator<Item = Avma> {
        let first = self.mappings.iter().filter(|mapping| mapping.offset.0 == 0);
        first.map(|mapping| mapping.start).take(MAX_FIRST_PAGES)
    }

    /// Returns all mappings as one module without symbols.
    fn unnamed(&self) -> Vec<Instance> {
        let ranges = self.mappings.iter().map(|mapping| mapping.start..mapping.end);
        vec![Instance {
            bias: self.mappings.first().map_or(0, |mapping| mapping.start.0),
            ranges: ranges.collect(),
        }]
    }
}

impl<'a> CoreModules<'a> {
    /// Returns the files of `core`; `search` has the directories of binaries and debug files.
    pub fn new(core: &'a Core, search: &'a DebugSearch) -> Self {
        let segments = core.contents().segments.iter().copied();
        Self {
            core,
            search,
            executable: segments.filter(|segment| segment.executable).collect(),
            known: HashMap::new(),
            refused: NotesByFile::default(),
            unverified: NotesByFile::default(),
            missing: NotesByFile::default(),
            notes: Vec::new(),
        }
    }

    /// Maps the files. Their code is added to `image`, where the core has no memory.
    pub fn map(mut self, image: &mut Image) -> MappedCore {
        let mut mapped = Vec::new();
        for file in by_path(&self.core.contents().files) {
            let (instances, symbols) = self.open(&file, image);
            let name: Arc<str> = file.path.into();
            for Instance { bias, ranges } in instances {
                mapped.extend(ranges.into_iter().map(|range| Module {
                    range,
                    bias,
                    name: Arc::clone(&name),
                    file: symbols.clone(),
                }));
            }
        }
        let mut symbols = Symbolizer::new();
        symbols.add_modules(mapped);
        let mut warnings = self.refused.finish("are other builds, and are not used");
        warnings.extend(
            self.unverified
                .finish("cannot be compared with those of this machine"),
        );
        self.notes.extend(self.missing.finish("are not on this machine"));
        MappedCore {
            symbols,
            warnings,
            notes: self.notes,
        }
    }

    /// Finds a file. Returns where it was loaded and its symbols. A file of data is not a module.
    fn open(&mut self, file: &ListedFile<'_>, image: &mut Image) -> (Vec<Instance>, Option<Arc<SymbolFile>>) {
        let unnamed = |is_module: bool| (if is_module { file.unnamed() } else { Vec::new() }, None);
        if file.first_pages().next().is_none() {
            return unnamed(self.is_code(file));
        }
        let found = match self.find(file) {
            Found::Binary(found) => found,
            Found::Refused { path, mapped, found } => {
                let is_module = self.may_be_code(file);
                if is_module {
                    self.refused
                        .add(|| binaries::refusal(file.path, &path, &mapped, &found));
                }
                return unnamed(is_module);
            }
            Found::Missing => {
                let (path, is_module) = (file.path, self.may_be_code(file));
                if is_module {
                    self.missing
                        .add(|| format!("{path} is not on this machine; its symbols are unknown"));
                }
                return unnamed(is_module);
            }
        };
        let segments = loads(&found.bytes);
        let placed = instances(&segments, &file.mappings, !found.is_debug_only, |mapping| {
            self.may_be_executed(mapping)
        });
        if placed.is_empty() {
            let is_module = self.is_code(file);
            if is_module {
                let problem = match segments.is_empty() {
                    true => "is not an ELF file",
                    false => "does not fit the mappings of the process",
                };
                let path = found.path.display();
                self.notes
                    .push(format!("{path} {problem}; its symbols are unknown"));
            }
            return unnamed(is_module);
        }
        let has_code = segments.iter().any(|segment| segment.executable);
        if !found.is_verified && has_code && self.may_be_code(file) {
            let path = found.path.display().to_string();
            self.unverified.add(|| {
                format!(
                    "{path} may be another build than the one in the process: the core does not have \
                     the headers of its files (coredump_filter)"
                )
            });
        }
        if !found.is_debug_only {
            add_code(file, &found, image);
        }
        (placed, self.symbols(file, found))
    }

    /// Searches a file, and compares each candidate with the mapped one.
    fn find(&self, file: &ListedFile<'_>) -> Found {
        let mut builds = file.first_pages().map(|base| self.core.mapped_build(base));
        let id = builds.find_map(|build| match build {
            MappedBuild::Id(id) => Some(id),
            MappedBuild::Unknown | MappedBuild::WithoutId => None,
        });
        let wanted = Wanted {
            recorded: file.path,
            build_id: id.as_ref(),
            is_local: true,
        };
        // Segments are only where the file was loaded, and its headers may be saved only once.
        let rank = |build: &FileBuild| match build {
            FileBuild::Same => 0,
            FileBuild::Unverified => 1,
            FileBuild::Other { .. } => 2,
        };
        wanted.find(self.search, |bytes| {
            let pages = file.first_pages();
            let compared = pages.map(|base| self.core.compare_file(base, &file.mappings, bytes));
            compared.min_by_key(rank).unwrap_or(FileBuild::Unverified)
        })
    }

    /// Returns whether a part of the file can be executed, as far as the core states that. Files of
    /// data have no symbols.
    fn is_code(&self, file: &ListedFile<'_>) -> bool {
        let mut mappings = file.mappings.iter();
        mappings.any(|mapping| overlaps(&self.executable, mapping))
    }

    /// Returns whether a part of the file can be executed, or may be.
    fn may_be_code(&self, file: &ListedFile<'_>) -> bool {
        file.mappings.iter().any(|mapping| self.may_be_executed(mapping))
    }

    /// Returns whether a mapping can be executed, or may be: GDB omits segments without saved
    /// memory.
    fn may_be_executed(&self, mapping: &MappedFile) -> bool {
        overlaps(&self.executable, mapping) || !overlaps(&self.core.contents().segments, mapping)
    }

    fn symbols(&mut self, file: &ListedFile<'_>, found: Binary) -> Option<Arc<SymbolFile>> {
        let search = self
            .search
            .clone()
            .beside_file(&found.path)
            .recorded_at(file.path);
        let notes = &mut self.notes;
        let open = || modules::open(found.bytes, file.path, &search, notes);
        match module_file::identity(&found.path) {
            Ok(identity) => self.known.entry(identity).or_insert_with(open).clone(),
            Err(_) => open(),
        }
    }
}

/// Returns whether a mapping has addresses in one of these segments, which are in address order.
fn overlaps(segments: &[Segment], mapping: &MappedFile) -> bool {
    let is_before = |segment: &Segment| segment.start.0.saturating_add(segment.size) <= mapping.start.0;
    let next = segments.get(segments.partition_point(is_before));
    next.is_some_and(|segment| segment.start < mapping.end)
}

/// Adds the mapped parts of a file.
fn add_code(file: &ListedFile<'_>, found: &Binary, image: &mut Image) {
    for mapping in &file.mappings {
        let offset = mapping.offset.0;
        let end = offset.saturating_add(mapping.end - mapping.start);
        if let Some(part) = found.bytes.slice(offset..end.min(found.bytes.len() as u64)) {
            image.add(Section {
                start: mapping.start,
                bytes: Arc::new(part),
            });
        }
    }
}

/// Groups the mappings of a core by file, the files in the order of their first mapping.
fn by_path(files: &[MappedFile]) -> Vec<ListedFile<'_>> {
    let mut mapped: Vec<ListedFile<'_>> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let is_file = |file: &&MappedFile| file.path.starts_with('/') && file.start < file.end;
    for file in files.iter().filter(is_file) {
        let index = *known.entry(&file.path).or_insert(mapped.len());
        match mapped.get_mut(index) {
            Some(known) => known.mappings.push(file.clone()),
            None => mapped.push(ListedFile {
                path: &file.path,
                mappings: vec![file.clone()],
            }),
        }
    }
    mapped
}

#[cfg(test)]
mod tests {
    use super::*;
    use backtrail_pt::FileOffset;

    #[test]
    fn mappings_of_one_file_are_one_module() {
        let mapping = |path: &str, start: u64| MappedFile {
            start: Avma(start),
            end: Avma(start + 0x1000),
            offset: FileOffset(0),
            path: path.to_owned(),
        };
        let files = [
            mapping("/b", 0x1000),
            mapping("/a", 0x2000),
            mapping("/b", 0x3000),
            mapping("[vdso]", 0x4000),
        ];
        let grouped: Vec<(&str, usize)> = by_path(&files)
            .iter()
            .map(|file| (file.path, file.mappings.len()))
            .collect();
        assert_eq!(grouped, [("/b", 2), ("/a", 1)]);
    }
}
