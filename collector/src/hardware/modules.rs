//! The ELF files that were mapped into a process, found again and copied.

use super::record::RecordedMapping;
use crate::error::Result;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{Mapping, Module};
use backtrail_bundle::module_file::{self, Allowance};
use backtrail_process::beneath;
use backtrail_process::load_segments::LoadSegments;
use backtrail_pt::{Avma, FileOffset, Pid};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// A file that was found again.
#[derive(Debug)]
pub struct Found {
    /// The file, to be read.
    pub file: File,
    /// A copy of it that was made before, to be moved into the bundle.
    pub ready: Option<PathBuf>,
}

/// Finds the file of a mapping; `None`: it is not there any longer.
pub type FindModule<'a> = dyn FnMut(Pid, &RecordedMapping, &mut Allowance) -> Option<Found> + 'a;

/// The modules of a process by what was mapped into it; those that are found are copied. What is
/// missing is noted.
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
    for mapped in mappings.iter().filter(|mapped| is_file(&mapped.path)) {
        let path = &mapped.path;
        let found = find(pid, mapped, &mut allowance).and_then(|found| {
            let segments = LoadSegments::read(&found.file)?;
            Some((segments.base(mapped.start, mapped.offset)?, found))
        });
        // Most files map their first page lowest.
        let base = found.as_ref().map_or_else(
            || Avma(mapped.start.wrapping_sub(mapped.offset)),
            |(base, _)| *base,
        );
        let mapping = Mapping {
            start: Avma(mapped.start),
            offset: FileOffset(mapped.offset),
            size: mapped.size,
        };
        let index = known.entry((path, base)).or_insert(modules.len());
        if let Some(module) = modules.get_mut(*index) {
            module.mappings.push(mapping);
            continue;
        }
        let told = mapped.build_id();
        let added = found.map(|(_, found)| {
            writer.add_module_file(&found.file, path, found.ready.as_deref(), &mut allowance)
        });
        let (file, build_id) = match added {
            Some(Ok((_, Some(found)))) if told.as_ref().is_some_and(|id| *id != found) => {
                notes.push(format!("{path} is another file now than the one that was traced"));
                (None, told)
            }
            Some(Ok((file, build_id))) => (Some(file), build_id.or(told)),
            Some(Err(error)) => {
                notes.push(format!("{path} could not be copied: {error}"));
                (None, told)
            }
            None => {
                notes.push(format!("{path} of process {pid} is not there any longer"));
                (None, told)
            }
        };
        modules.push(Module {
            path: path.clone(),
            file,
            build_id,
            base,
            mappings: vec![mapping],
        });
    }
    Ok(modules)
}

/// Whether the name of a mapping is that of a file.
#[must_use]
pub fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !["//anon", "/dev/zero", "/memfd:", "/SYSV"]
            .iter()
            .any(|prefix| path.starts_with(prefix))
}

/// Opens the file of a mapping as its process sees it, below its root, or else as this process sees
/// it. The latter may be another file: it counts only if it has the build id that the kernel told.
#[must_use]
pub fn find_by_path(procfs: &Path, pid: Pid, mapped: &RecordedMapping) -> Option<File> {
    let path = Path::new(&mapped.path);
    let below = |root: PathBuf| {
        let root = beneath::open_path(File::open("/").ok()?.as_fd(), &root, 0).ok()?;
        beneath::reopen(beneath::in_root(root.as_fd(), path).ok()?).ok()
    };
    below(procfs.join(format!("{pid}/root"))).or_else(|| {
        let file = below(PathBuf::from("/"))?;
        let same = mapped.build_id().is_some_and(|told| {
            module_file::build_id(&file, &mapped.path).is_ok_and(|found| found == Some(told))
        });
        same.then_some(file)
    })
}
