//! Reads the files of modules: build ids and unwind tables.
//!
//! The paths come from other users' processes. A file is only used if it is regular, and has the
//! build id or the inode of the mapping.

use crate::elf_sections::ElfSections;
use crate::module_key::{FileKey, MappedAt, ModuleKey};
use crate::python::PythonBuild;
use crate::unwind_table::UnwindTable;
use backtrail_process::maps::Map;
use backtrail_profile::file_hash_id;
use backtrail_pt::{BuildId, Pid};
use nix::sys::stat::{major, minor};
use object::ReadCache;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Builds the unwind table of a module's file, and finds its Python interpreter.
pub(crate) fn read(key: &ModuleKey, mapped: Option<&MappedAt>) -> (Option<UnwindTable>, Option<PythonBuild>) {
    let Some(file) = open(key, mapped) else {
        return (None, None);
    };
    let cache = ReadCache::new(file);
    (UnwindTable::of_elf(&cache), PythonBuild::of_elf(&cache))
}

/// Returns the build id of the file of a mapping.
pub(crate) fn identify(path: &str, file: FileKey, mapped: &MappedAt) -> Option<BuildId> {
    build_id(open_mapped(path, file, mapped)?)
}

/// Opens the file of a mapping.
pub(crate) fn open_mapping(pid: Pid, map: &Map) -> Option<File> {
    let file = FileKey {
        device: map.device,
        inode: map.inode,
    };
    let range = map.start..map.end;
    open_mapped(&map.path, file, &MappedAt { pid, range })
}

fn open_mapped(path: &str, file: FileKey, mapped: &MappedAt) -> Option<File> {
    candidates(path, Some(mapped)).into_iter().find_map(|candidate| {
        let found = open_regular(&candidate.path)?;
        (candidate.is_mapping || key_of(&found) == Some(file)).then_some(found)
    })
}

/// Returns the build id of a file.
#[cfg(test)]
pub(crate) fn build_id_of_path(path: &str) -> Option<BuildId> {
    build_id(open_regular(path)?)
}

/// Returns the build id of an ELF file, or else the id made of its contents.
fn build_id(file: File) -> Option<BuildId> {
    let cache = ReadCache::new(file);
    let noted = ElfSections::parse(&cache)?.build_id().and_then(BuildId::new);
    noted.or_else(|| file_hash_id(&mut cache.into_inner()).ok())
}

/// Opens the file of a module, if it is the one that was mapped.
fn open(key: &ModuleKey, mapped: Option<&MappedAt>) -> Option<File> {
    let is_module = |file: &File, is_mapping: bool| match (&key.build_id, key.file) {
        (Some(build_id), _) => {
            let copy = file.try_clone().ok();
            copy.and_then(self::build_id).as_ref() == Some(build_id)
        }
        (None, Some(wanted)) => is_mapping || key_of(file) == Some(wanted),
        (None, None) => false,
    };
    candidates(&key.path, mapped).into_iter().find_map(|candidate| {
        open_regular(&candidate.path).filter(|file| is_module(file, candidate.is_mapping))
    })
}

/// A path that may lead to the file of a mapping.
struct Candidate {
    path: String,
    /// Whether the path leads to the file of the mapping and to no other.
    is_mapping: bool,
}

/// Returns the paths that the file of a mapping may have here.
fn candidates(path: &str, mapped: Option<&MappedAt>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    if let Some(MappedAt { pid, range }) = mapped {
        candidates.push(Candidate {
            path: format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end),
            is_mapping: true,
        });
        candidates.push(Candidate {
            path: format!("/proc/{pid}/root{path}"),
            is_mapping: false,
        });
    }
    candidates.push(Candidate {
        path: path.to_owned(),
        is_mapping: false,
    });
    candidates
}

/// Opens a regular file. Others could block.
fn open_regular(path: &str) -> Option<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = options.open(path).ok()?;
    let is_regular = file.metadata().is_ok_and(|metadata| metadata.is_file());
    is_regular.then_some(file)
}

fn key_of(file: &File) -> Option<FileKey> {
    let metadata = file.metadata().ok()?;
    let number = |number: u64| u32::try_from(number).ok();
    Some(FileKey {
        device: (number(major(metadata.dev()))?, number(minor(metadata.dev()))?),
        inode: metadata.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_at_the_path_is_not_used() {
        let exe = std::env::current_exe().unwrap().display().to_string();
        let key = |build_id, file| ModuleKey {
            path: exe.as_str().into(),
            build_id,
            file,
        };
        let right = build_id_of_path(&exe);
        let inode = key_of(&File::open(&exe).unwrap());
        assert!(right.is_some());
        assert!(open(&key(right, None), None).is_some());
        assert!(open(&key(BuildId::new(&[1]), None), None).is_none());
        assert!(open(&key(None, None), None).is_none());
        assert!(open(&key(None, inode), None).is_some());
        let other = key_of(&File::open("/proc/self/maps").unwrap());
        assert!(open(&key(None, other), None).is_none());
    }

    #[test]
    fn pipes_are_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open_regular(pipe.to_str().unwrap()).is_none());
    }
}
