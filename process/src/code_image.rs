//! The code image of a process: every ELF file that was mapped executable, and code outside files.

use crate::maps::{self, Map};
use crate::module_file::{ModuleFile, ModuleFiles};
use crate::{RawTid, beneath, memory, status};
use backtrail_bundle::manifest::{Module, RawImage};
use backtrail_bundle::{BundlePath, Error, Writer};
use backtrail_pt::{Avma, FileOffset};
use std::fs::File;
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
    /// Adds the current executable mappings, and reads code without files again.
    pub fn update(&mut self, pid: RawTid) {
        let maps = maps::maps(pid);
        let code = |map: &&Map| map.executable && map.path != "[vsyscall]";
        let added = self.added.clone();
        for map in maps.iter().filter(code).filter(|map| !within(&added, map.start)) {
            let known = map.is_file() && (self.has_module_of(map) || self.add_module(pid, map));
            if !known || map.writable {
                self.add_raw(pid, map);
            }
        }
    }

    /// Returns whether the mapping belongs to a known module.
    fn has_module_of(&self, map: &Map) -> bool {
        let same_file = |module: &&LoadedModule| module.inode == map.inode && module.path == map.path;
        self.modules
            .iter()
            .filter(same_file)
            .any(|module| module.file.base_of(map) == Some(module.base))
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

    /// Copies the image into a bundle. `name` returns the path of a raw image for a suggested name.
    ///
    /// # Errors
    /// Fails if the bundle cannot be written. A file that cannot be copied is reported as missing.
    pub fn save<E: From<Error>>(
        self,
        writer: &Writer,
        pid: u32,
        mut name: impl FnMut(&str) -> Result<BundlePath, E>,
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
            });
        }
        for raw in self.raw {
            let file = name(&format!("images/{pid}-{:x}.bin", raw.start))?;
            writer.add_bytes(&file, &raw.bytes)?;
            saved.images.push(RawImage {
                start: raw.start,
                file,
                offset: FileOffset(0),
                size: raw.bytes.len() as u64,
            });
        }
        Ok(saved)
    }
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
fn open(pid: RawTid, map: &Map) -> Option<File> {
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
        image.update(pid);
        let before = image.modules.len();
        image.update(pid);
        assert_eq!(image.modules.len(), before, "nothing is added twice");
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
}
