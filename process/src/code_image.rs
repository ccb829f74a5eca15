//! The code image of a process: every ELF file that was mapped executable, and code outside files.

use crate::maps::{self, Map};
use crate::module_file::{FileState, ModuleFile, ModuleFiles};
use crate::{RawTid, beneath, memory, status};
use backtrail_bundle::manifest::{Module, RawImage};
use backtrail_bundle::{BundlePath, Error, Writer};
use backtrail_pt::{Avma, FileOffset};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Larger code areas without a file are not saved, such as the reserve of a JIT compiler.
const MAX_RAW: u64 = 256 << 20;

/// An ELF file that was mapped executable.
#[derive(Debug)]
pub struct LoadedModule {
    /// The path in the traced system.
    pub path: String,
    /// The file, which stays readable after it is deleted.
    pub file: Arc<ModuleFile>,
    /// The address of the page of the lowest `PT_LOAD`.
    pub base: Avma,
    inode: u64,
    /// The known executable mappings.
    code: Vec<CodeRange>,
    /// The version of the code from which the module is mapped.
    mapped_from: u32,
    /// The version from which other code is mapped in its place.
    mapped_until: Option<u32>,
    /// The version from which memory that is still empty is mapped in its place.
    covered_since: Option<u32>,
}

/// The content of a mapping that covers a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoverContent {
    /// The module's own code. Some programs move it into large pages.
    Copy,
    /// Zeros.
    Nothing,
    /// Another file, or generated code.
    Other,
}

/// An executable mapping of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeRange {
    start: u64,
    end: u64,
    /// The offset in the file.
    offset: u64,
}

/// Executable memory without an ELF file.
#[derive(Debug)]
pub struct RawCode {
    /// The start address.
    pub start: Avma,
    /// The last known content.
    pub bytes: Vec<u8>,
    /// Whether the program may rewrite the code.
    pub writable: bool,
}

/// All code that a process could execute.
#[derive(Debug, Default)]
pub struct CodeImage {
    /// The ELF files.
    pub modules: Vec<LoadedModule>,
    /// Executable memory without ELF files.
    pub raw: Vec<RawCode>,
    /// Messages about missing parts.
    pub notes: Vec<String>,
    /// The start and size of memory that the recorder has added.
    pub added: Vec<(u64, u64)>,
    /// The open files, which other processes may have mapped too.
    pub files: ModuleFiles,
}

impl CodeImage {
    /// Reads the code image of a forked process, whose parent has this image. `added` is the start
    /// and size of memory that the recorder has added to the child.
    ///
    /// The child has inherited mappings, so the parent's files are not opened again.
    #[must_use]
    pub fn of_child(&self, pid: RawTid, added: Vec<(u64, u64)>) -> Self {
        let mut child = Self {
            added,
            files: self.files.clone(),
            ..Self::default()
        };
        let maps = maps::maps(pid);
        child.modules = self
            .modules
            .iter()
            .filter_map(|module| module.inherited(&maps))
            .collect();
        child.update_from(pid, &maps, 0, None);
        child
    }

    /// Adds the current executable mappings, and reads code without files again.
    ///
    /// A module that other code has replaced ends at `version`, where the other code begins.
    /// `mapped` is the address of a new mapping, whose file may have been overwritten since it was
    /// mapped before. Returns the address ranges at which modules were replaced.
    pub fn update(&mut self, pid: RawTid, version: u32, mapped: Option<u64>) -> Vec<Range<u64>> {
        self.update_from(pid, &maps::maps(pid), version, mapped)
    }

    fn update_from(
        &mut self,
        pid: RawTid,
        maps: &[Map],
        version: u32,
        mapped: Option<u64>,
    ) -> Vec<Range<u64>> {
        let code = |map: &&Map| map.executable && map.path != "[vsyscall]";
        let added = self.added.clone();
        let mut replaced = Vec::new();
        for map in maps.iter().filter(code).filter(|map| !within(&added, map.start)) {
            let is_new = mapped.is_some_and(|at| (map.start..map.end).contains(&at));
            if is_new && map.is_file() {
                self.end_overwritten(pid, map, version);
            }
            let known = map.is_file() && (self.has_module_of(map) || self.add_module(pid, map));
            let ended = self.end_others(pid, map, version);
            if self.add_mapping(map, version) || ended {
                replaced.push(map.start..map.end);
            }
            if !known || map.writable {
                self.add_raw(pid, map);
            }
        }
        replaced
    }

    /// Returns whether the mapping belongs to a known module that no other has replaced.
    fn has_module_of(&self, map: &Map) -> bool {
        self.modules.iter().any(|module| module.is_mapped_by(map))
    }

    /// Ends the other modules that were at the addresses of a mapping. Returns whether there are
    /// any that it does not hold a copy of.
    fn end_others(&mut self, pid: RawTid, map: &Map, version: u32) -> bool {
        let mut covered = false;
        for module in &mut self.modules {
            if module.mapped_until.is_some() || !module.overlaps(map) || module.is_of(map) {
                continue;
            }
            let content = module.content_of(pid, map);
            covered |= content != CoverContent::Copy;
            let since = module.covered_since.unwrap_or(version);
            match content {
                CoverContent::Copy => module.covered_since = None,
                CoverContent::Nothing => module.covered_since = Some(since),
                CoverContent::Other => module.mapped_until = Some(since),
            }
        }
        covered
    }

    /// Adds a mapping to its module. Returns whether the module is new, and other code was at these
    /// addresses before.
    fn add_mapping(&mut self, map: &Map, version: u32) -> bool {
        let mut modules = self.modules.iter();
        let replaces = modules.any(|module| module.mapped_until.is_some() && module.overlaps(map));
        let mut modules = self.modules.iter_mut();
        let Some(module) = modules.find(|module| module.is_mapped_by(map)) else {
            return false;
        };
        let begins = module.code.is_empty() && replaces;
        if begins {
            module.mapped_from = version;
        }
        let code = CodeRange {
            start: map.start,
            end: map.end,
            offset: map.offset,
        };
        if !module.code.contains(&code) {
            module.code.push(code);
        }
        begins
    }

    /// Ends the module of a new mapping if its file was overwritten since the module was mapped.
    fn end_overwritten(&mut self, pid: RawTid, map: &Map, version: u32) {
        let mut modules = self.modules.iter_mut();
        let Some(module) = modules.find(|module| module.is_mapped_by(map)) else {
            return;
        };
        let now = open(pid, map).and_then(|file| FileState::of(&file));
        if now.is_some_and(|now| !module.file.is_still(now)) {
            module.mapped_until = Some(version);
        }
    }

    /// Adds the module of a mapping. Returns `false` if it is not an ELF file, or not accessible.
    fn add_module(&mut self, pid: RawTid, map: &Map) -> bool {
        let file = open(pid, map);
        if file.is_none() && ModuleFiles::is_exhausted() {
            self.note(
                "all file descriptors of Backtrail were in use (ulimit -n): \
                 the bundle has some binaries only as they were in memory"
                    .to_owned(),
            );
        }
        let found = file
            .and_then(|file| self.files.share(file))
            .and_then(|file| Some((file.base_of(map)?, file)));
        let Some((base, file)) = found else { return false };
        self.modules.push(LoadedModule {
            path: map.path.clone(),
            file,
            base,
            inode: map.inode,
            code: Vec::new(),
            mapped_from: 0,
            mapped_until: None,
            covered_since: None,
        });
        true
    }

    fn add_raw(&mut self, pid: RawTid, map: &Map) {
        if map.size() > MAX_RAW {
            self.note(format!(
                "{} MiB of executable memory at {:#x} are not in the bundle",
                map.size() >> 20,
                map.start
            ));
            return;
        }
        let mut bytes = vec![0; map.size() as usize];
        let read = memory::read(pid, map.start, &mut bytes);
        bytes.truncate(read);
        if bytes.is_empty() {
            return;
        }
        let start = Avma(map.start);
        let raw = RawCode {
            start,
            bytes,
            writable: map.writable,
        };
        match self.raw.iter_mut().find(|raw| raw.start == start) {
            // A shorter area would lose code that ran before a part was unmapped.
            Some(old) if old.bytes.len() <= raw.bytes.len() => *old = raw,
            Some(old) => old
                .bytes
                .iter_mut()
                .zip(raw.bytes)
                .for_each(|(old, new)| *old = new),
            None => self.raw.push(raw),
        }
    }

    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

impl LoadedModule {
    /// Returns this module for a forked process, if its mappings contain the module's code.
    fn inherited(&self, maps: &[Map]) -> Option<Self> {
        let mut code = maps.iter().filter(|map| map.executable);
        code.any(|map| self.is_mapped_by(map)).then(|| Self {
            path: self.path.clone(),
            file: Arc::clone(&self.file),
            base: self.base,
            inode: self.inode,
            code: Vec::new(),
            mapped_from: 0,
            mapped_until: None,
            covered_since: None,
        })
    }

    /// Returns whether a mapping is one of this module's file at its address.
    fn is_of(&self, map: &Map) -> bool {
        map.is_file()
            && self.inode == map.inode
            && existing_path(&self.path) == existing_path(&map.path)
            && self.file.base_of(map) == Some(self.base)
    }

    /// Returns whether a mapping is one of this module, which no other code has replaced.
    fn is_mapped_by(&self, map: &Map) -> bool {
        self.mapped_until.is_none() && self.is_of(map)
    }

    fn overlaps(&self, map: &Map) -> bool {
        let mut code = self.code.iter();
        code.any(|code| code.start < map.end && map.start < code.end)
    }

    /// Returns the content of a mapping that covers this module.
    fn content_of(&self, pid: RawTid, map: &Map) -> CoverContent {
        /// The number of bytes that are compared.
        const COMPARED: u64 = 4096;
        let mut code = self.code.iter();
        let overlap = code.find(|code| code.start < map.end && map.start < code.end);
        let Some(code) = overlap.filter(|_| !map.is_file()) else {
            return CoverContent::Other;
        };
        let start = code.start.max(map.start);
        let size = code.end.min(map.end).saturating_sub(start).min(COMPARED) as usize;
        let (mut in_memory, mut in_file) = (vec![0; size], vec![0; size]);
        let offset = code.offset.saturating_add(start - code.start);
        let known = memory::read(pid, start, &mut in_memory) == size;
        if !known || in_memory.iter().all(|byte| *byte == 0) {
            return CoverContent::Nothing;
        }
        match self.file.read(offset, &mut in_file) == size && in_memory == in_file {
            true => CoverContent::Copy,
            false => CoverContent::Other,
        }
    }
}

/// A [`CodeImage`] in a bundle.
#[derive(Debug, Default)]
pub struct SavedImage {
    /// The ELF files.
    pub modules: Vec<Module>,
    /// Executable memory without ELF files.
    pub images: Vec<RawImage>,
    /// Messages about files that could not be copied.
    pub missing: Vec<String>,
}

impl CodeImage {
    /// Copies the module files into a bundle, and closes them.
    pub fn copy_modules(&self, writer: &Writer) {
        for module in &self.modules {
            // A file that cannot be copied is reported when the image is saved.
            let _ = module.file.copy(writer, &module.path, &self.files);
        }
    }

    /// Copies the files of modules with code in a range into a bundle, and closes them.
    pub fn copy_unmapped(&self, range: &Range<u64>, writer: &Writer) {
        let is_in = |code: &CodeRange| code.start < range.end && range.start < code.end;
        for module in self.modules.iter().filter(|module| module.code.iter().any(is_in)) {
            // A file that cannot be copied is reported when the image is saved.
            let _ = module.file.copy(writer, &module.path, &self.files);
        }
    }

    /// Copies the image into a bundle. `store` writes code without a file, which starts at an
    /// address, and returns its path.
    ///
    /// # Errors
    /// Fails if the bundle cannot be written. A file that cannot be copied is reported as missing.
    pub fn save<E: From<Error>>(
        self,
        writer: &Writer,
        mut store: impl FnMut(Avma, Vec<u8>) -> Result<BundlePath, E>,
    ) -> Result<SavedImage, E> {
        let mut saved = SavedImage::default();
        for module in self.modules {
            let (file, build_id) = match module.file.copy(writer, &module.path, &self.files) {
                Ok((file, build_id)) => (Some(file), build_id),
                Err(error) => {
                    let path = &module.path;
                    saved
                        .missing
                        .push(format!("{path} is not in the bundle ({error})"));
                    (None, None)
                }
            };
            saved.modules.push(Module {
                path: module.path,
                file,
                build_id,
                base: module.base,
                mappings: Vec::new(),
                mapped_from: module.mapped_from,
                mapped_until: module.mapped_until,
            });
        }
        for raw in self.raw {
            let size = raw.bytes.len() as u64;
            saved.images.push(RawImage {
                start: raw.start,
                file: store(raw.start, raw.bytes)?,
                offset: FileOffset(0),
                size,
            });
        }
        Ok(saved)
    }
}

/// Returns the path without the mark of a file that was deleted after it was mapped.
fn existing_path(path: &str) -> &str {
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Returns whether an address is in one of the areas, each a start and a size.
#[must_use]
pub fn within(areas: &[(u64, u64)], address: u64) -> bool {
    areas
        .iter()
        .any(|(start, size)| (*start..start.saturating_add(*size)).contains(&address))
}

/// Opens the file of a mapping: through `map_files`, or through its path if that is still the same
/// file.
pub(crate) fn open(pid: RawTid, map: &Map) -> Option<File> {
    let pid = status::thread_with_memory(pid);
    let host = File::open("/").ok()?;
    let open_path = |path: String| beneath::open_path(host.as_fd(), Path::new(&path), 0);
    let by_mapping = open_path(format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end));
    let by_name = || {
        let root = open_path(format!("/proc/{pid}/root")).ok()?;
        let found = beneath::in_root(root.as_fd(), Path::new(&map.path)).ok()?;
        (beneath::status(&found).ok()?.id.inode == map.inode).then_some(found)
    };
    beneath::reopen(by_mapping.ok().or_else(by_name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_image_contains_program_and_vdso() {
        let mut image = CodeImage::default();
        let pid = std::process::id() as RawTid;
        image.update(pid, 0, None);
        let before = image.modules.len();
        let replaced = image.update(pid, 1, None);
        assert_eq!(replaced, []);
        assert_eq!(image.modules.len(), before, "nothing is added twice");
        let child = image.of_child(pid, Vec::new());
        let files = |image: &CodeImage| {
            let places = image
                .modules
                .iter()
                .map(|module| (module.path.clone(), module.base));
            let mut places: Vec<_> = places.collect();
            places.sort();
            places
        };
        assert_eq!(files(&child), files(&image));
        assert!(child.modules.iter().all(|one| {
            image
                .modules
                .iter()
                .any(|other| Arc::ptr_eq(&one.file, &other.file))
        }));
        let program = std::env::current_exe().unwrap();
        let module = image
            .modules
            .iter()
            .find(|module| module.path == program.to_string_lossy())
            .unwrap();
        let lowest = maps::maps(pid)
            .into_iter()
            .find(|map| map.path == module.path)
            .unwrap();
        assert_eq!(module.base, Avma(lowest.start));
        assert!(
            image.raw.iter().any(|raw| raw.bytes.starts_with(b"\x7fELF")),
            "vdso"
        );
    }

    /// The code mapping of the running test.
    fn own_code(pid: RawTid) -> Map {
        let program = std::env::current_exe().unwrap();
        let is_code = |map: &Map| map.executable && map.path == program.to_string_lossy();
        maps::maps(pid).into_iter().find(is_code).unwrap()
    }

    #[test]
    fn module_ends_where_another_is_mapped() {
        let mut image = CodeImage::default();
        let pid = std::process::id() as RawTid;
        image.update(pid, 0, None);
        let code = own_code(pid);
        let other = Map {
            inode: code.inode + 1,
            path: "/other.so".to_owned(),
            ..code.clone()
        };
        assert!(image.end_others(pid, &other, 3));
        let replaced = image.update(pid, 5, None);
        assert!(replaced.len() == 1 && replaced.contains(&(code.start..code.end)));
        let of_program = image.modules.iter().filter(|module| module.path == code.path);
        let periods: Vec<_> = of_program
            .map(|module| (module.mapped_from, module.mapped_until))
            .collect();
        assert_eq!(periods, [(0, Some(3)), (5, None)]);
    }

    #[test]
    fn copy_of_the_code_in_other_memory_is_the_module() {
        let mut image = CodeImage::default();
        let pid = std::process::id() as RawTid;
        image.update(pid, 0, None);
        let copy = Map {
            inode: 0,
            path: String::new(),
            ..own_code(pid)
        };
        assert!(!image.end_others(pid, &copy, 3));
        assert!(image.modules.iter().all(|module| module.mapped_until.is_none()));
    }
}
