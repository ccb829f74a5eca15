//! The code image of a process: every ELF file that was ever mapped executable, and code that comes
//! from none.

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

/// Code without a file larger than this is not kept (a JIT compiler's whole reserve).
const MAX_RAW: u64 = 256 << 20;

/// An ELF file mapped executable at some time.
#[derive(Debug)]
pub struct LoadedModule {
    /// Its path in the traced system.
    pub path: String,
    /// The file, which stays readable when it is deleted.
    pub file: Arc<ModuleFile>,
    /// Where the page of its lowest `PT_LOAD` lies.
    pub base: Avma,
    inode: u64,
}

/// Executable memory that no ELF file fills.
#[derive(Debug)]
pub struct RawCode {
    /// The first address.
    pub start: Avma,
    /// As last seen.
    pub bytes: Vec<u8>,
    /// The program may rewrite it.
    pub writable: bool,
}

/// What a process could execute.
#[derive(Debug, Default)]
pub struct CodeImage {
    /// The ELF files.
    pub modules: Vec<LoadedModule>,
    /// What no ELF file fills.
    pub raw: Vec<RawCode>,
    /// What is missing, a sentence each.
    pub notes: Vec<String>,
    /// Start and size of what the recorder itself has added.
    pub added: Vec<(u64, u64)>,
    /// The files that are open, which other processes may have mapped too.
    pub files: ModuleFiles,
}

impl CodeImage {
    /// Adds what is mapped executable now, and reads code that has no file anew.
    pub fn update(&mut self, pid: RawTid) {
        let maps = maps::maps(pid);
        let code = |map: &&Map| map.executable && map.path != "[vsyscall]";
        let added = self.added.clone();
        for map in maps.iter().filter(code).filter(|map| !within(&added, map.start)) {
            let known = map.is_file() && (self.knows(map) || self.add_module(pid, map));
            if !known || map.writable {
                self.add_raw(pid, map);
            }
        }
    }

    /// Whether the mapping lies where a known module has its code.
    fn knows(&self, map: &Map) -> bool {
        let same_file = |module: &&LoadedModule| module.inode == map.inode && module.path == map.path;
        self.modules
            .iter()
            .filter(same_file)
            .any(|module| module.file.base_of(map) == Some(module.base))
    }

    /// `false`: it is no ELF file, or out of reach.
    fn add_module(&mut self, pid: RawTid, map: &Map) -> bool {
        let file = open(pid, map);
        if file.is_none() && ModuleFiles::is_exhausted() {
            self.note(
                "all file descriptors of Backtrail were in use (ulimit -n): \
                 some binaries are kept as they were in memory only"
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
                "{} MiB of executable memory at {:#x} were not kept",
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
            // A shorter one would lose code that ran before the rest was unmapped.
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

/// A [`CodeImage`] as a bundle has it.
#[derive(Debug, Default)]
pub struct SavedImage {
    /// The ELF files.
    pub modules: Vec<Module>,
    /// What no ELF file fills.
    pub images: Vec<RawImage>,
    /// Files that could not be copied, a sentence each.
    pub missing: Vec<String>,
}

impl CodeImage {
    /// Copies the files of its modules into a bundle, and closes them.
    pub fn copy_modules(&self, writer: &Writer) {
        for module in &self.modules {
            // A file that cannot be copied is reported when the image is saved.
            let _ = module.file.copy(writer, &module.path, &self.files);
        }
    }

    /// Copies it into a bundle; `name` makes the path of a raw image out of the one it is given.
    ///
    /// # Errors
    /// When the bundle cannot be written. A file that cannot be copied is told as missing.
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

/// Whether an address lies in one of some areas.
#[must_use]
pub fn within(areas: &[(u64, u64)], address: u64) -> bool {
    areas
        .iter()
        .any(|(start, size)| (*start..start.saturating_add(*size)).contains(&address))
}

/// The mapped file itself: by its mapping, or by its path where it still is the same file.
fn open(pid: RawTid, map: &Map) -> Option<File> {
    let pid = status::with_memory(pid);
    let host = File::open("/").ok()?;
    let place = |path: String| beneath::place(host.as_fd(), Path::new(&path), 0);
    let by_mapping = place(format!("/proc/{pid}/map_files/{:x}-{:x}", map.start, map.end));
    let by_name = || {
        let root = place(format!("/proc/{pid}/root")).ok()?;
        let found = beneath::in_root(root.as_fd(), Path::new(&map.path)).ok()?;
        (beneath::status(&found).ok()?.id.inode == map.inode).then_some(found)
    };
    beneath::reopen(by_mapping.ok().or_else(by_name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_image_has_our_program_and_the_vdso() {
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
