//! Finds and copies the ELF files that were mapped into a process.

use super::record::RecordedMapping;
use crate::error::Result;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{Mapping, Module};
use backtrail_bundle::module_file::Allowance;
use backtrail_process::beneath::{self, FileId, FileStatus};
use backtrail_process::load_segments::LoadSegments;
use backtrail_pt::{Avma, FileOffset, Pid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The file of a mapping.
#[derive(Debug)]
pub struct FoundModule {
    /// The file, open for reading.
    pub file: File,
    /// An existing copy of the file, to be moved into the bundle.
    pub ready: Option<PathBuf>,
}

/// Finds the file of a mapping. `None`: it no longer exists.
pub type FindModule<'a> = dyn FnMut(Pid, &RecordedMapping, &mut Allowance) -> Option<FoundModule> + 'a;

/// Returns the modules of a process from its mappings, and copies those that are found. Adds a note
/// for each missing one.
pub(super) fn modules(
    writer: &Writer,
    pid: Pid,
    mappings: &[RecordedMapping],
    find: &mut FindModule<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Module>> {
    let mut allowance = Allowance::UNLIMITED;
    let mut modules: Vec<Module> = Vec::new();
    let mut known: BTreeMap<(&str, Avma), usize> = BTreeMap::new();
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for mapped in mappings.iter().filter(|mapped| is_file(&mapped.path)) {
        let path = &mapped.path;
        let found = find(pid, mapped, &mut allowance);
        let is_other = found.as_ref().is_some_and(|found| !mapped.may_be(&found.file));
        let found = found.filter(|_| !is_other).and_then(|found| {
            let segments = LoadSegments::read(&found.file)?;
            Some((segments.base(mapped.start, mapped.offset)?, found))
        });
        // Most files map their first page at the lowest address.
        let base = found.as_ref().map_or_else(
            || Avma(mapped.start.wrapping_sub(mapped.offset)),
            |(base, _)| *base,
        );
        let mapping = Mapping {
            start: Avma(mapped.start),
            offset: FileOffset(mapped.offset),
            size: mapped.size,
            ..Mapping::default()
        };
        let index = known.entry((path, base)).or_insert(modules.len());
        if let Some(module) = modules.get_mut(*index) {
            module.mappings.push(mapping);
            continue;
        }
        let reported = mapped.build_id();
        let added = found.map(|(_, found)| {
            writer.add_module_file(&found.file, path, found.ready.as_deref(), &mut allowance)
        });
        let (file, build_id) = match added {
            Some(Ok((file, build_id))) => (Some(file), build_id.or(reported)),
            Some(Err(error)) => {
                notes.push(format!("{path} could not be copied: {error}"));
                (None, reported)
            }
            None if is_other => {
                if others.insert(path) {
                    notes.push(format!(
                        "{path} was replaced; the bundle does not contain the traced file"
                    ));
                }
                (None, reported)
            }
            None => {
                notes.push(format!("{path} of process {pid} no longer exists"));
                (None, reported)
            }
        };
        modules.push(Module {
            path: path.clone(),
            file,
            build_id,
            base,
            mappings: vec![mapping],
            ..Module::default()
        });
    }
    Ok(modules)
}

/// Returns whether the name of a mapping is that of a file.
#[must_use]
pub fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !["//anon", "/dev/zero", "/memfd:", "/SYSV"]
            .iter()
            .any(|prefix| path.starts_with(prefix))
}

/// Opens the files that may be the mapped one: those with its name below the process's root and
/// below this process's root. Returns at most two files, and no file twice.
///
/// If the kernel reported device and inode, only that file is opened. If it reported a build id,
/// check the file with [`RecordedMapping::may_be`], because this function reads no content.
/// Otherwise, no file is opened. `admits` excludes files by their status, before they are opened.
///
/// The kernel reports names without symbolic links, so none is followed. Only names in the kernel's
/// directory cache are resolved (`RESOLVE_CACHED` of openat2(2), Linux 5.12), so that no file
/// server is contacted.
#[must_use]
pub fn candidates(
    procfs: &Path,
    pid: Pid,
    mapped: &RecordedMapping,
    admits: &dyn Fn(&FileStatus) -> bool,
) -> Vec<File> {
    let Ok(host) = File::open("/") else {
        return Vec::new();
    };
    let process_root = beneath::open_path(host.as_fd(), &procfs.join(format!("{pid}/root")), 0).ok();
    let mut known: Vec<FileId> = Vec::new();
    let mut files = Vec::new();
    for root in [process_root, Some(host.into())].into_iter().flatten() {
        let Ok(handle) = beneath::cached_in_root(root.as_fd(), Path::new(&mapped.path)) else {
            continue;
        };
        let Ok(status) = beneath::status(&handle) else {
            continue;
        };
        let is_identified = match mapped.id() {
            Some(id) => id == status.id,
            None => mapped.build_id().is_some(),
        };
        if is_identified && !known.contains(&status.id) && admits(&status) {
            known.push(status.id);
            files.extend(beneath::reopen(&handle).ok());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    /// Returns a mapping as a snapshot stores it.
    fn mapping(path: &Path, build_id: Option<&[u8]>, id: Option<FileId>) -> RecordedMapping {
        let value = serde_json::json!({
            "start": 0x1000,
            "size": 0x1000,
            "offset": 0,
            "path": path,
            "build_id": build_id,
            "id": id.map(|id| (id.device, id.inode)),
        });
        serde_json::from_value(value).unwrap()
    }

    fn inodes(mapping: &RecordedMapping) -> Vec<u64> {
        let files = candidates(Path::new("/proc"), Pid(std::process::id()), mapping, &|_| true);
        files.iter().map(|file| file.metadata().unwrap().ino()).collect()
    }

    #[test]
    fn only_the_identified_file_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("tool");
        std::fs::write(&path, "first").unwrap();
        let first = beneath::status(File::open(&path).unwrap()).unwrap().id;
        assert_eq!(inodes(&mapping(&path, None, Some(first))), [first.inode]);
        assert!(
            inodes(&mapping(&path, None, None)).is_empty(),
            "it is not identified"
        );
        let nobody = |_: &FileStatus| false;
        let wanted = mapping(&path, None, Some(first));
        assert!(candidates(Path::new("/proc"), Pid(std::process::id()), &wanted, &nobody).is_empty());

        // Another file replaces the name, and then a link to the first file does.
        let original = path.with_file_name("kept");
        std::fs::rename(&path, &original).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert!(inodes(&wanted).is_empty());
        std::fs::remove_file(&path).unwrap();
        symlink(&original, &path).unwrap();
        assert!(inodes(&wanted).is_empty());
    }

    #[test]
    fn file_with_another_build_id_does_not_count() {
        let program = std::env::current_exe().unwrap().canonicalize().unwrap();
        let file = File::open(&program).unwrap();
        let reported = backtrail_bundle::module_file::build_id(&file, "program")
            .unwrap()
            .unwrap();
        let same = mapping(&program, Some(reported.as_bytes()), None);
        let other = mapping(&program, Some(&[7; 20]), None);
        for mapping in [&same, &other] {
            let inode = file.metadata().unwrap().ino();
            assert_eq!(inodes(mapping), [inode], "a build id is looked at later");
        }
        assert!(same.may_be(&file) && !other.may_be(&file));
    }
}
