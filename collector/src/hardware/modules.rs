//! The ELF files that were mapped into a process, found again and copied.

use super::world::Mapped;
use crate::Result;
use backtrail_bundle::Writer;
use backtrail_bundle::manifest::{Mapping, Module};
use backtrail_pt::{Avma, Pid};
use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

const PAGE: u64 = 4096;

/// The modules of a process by what was mapped into it; those that are found are copied. What is missing is noted.
pub(super) fn modules(
    writer: &Writer,
    procfs: &Path,
    pid: Pid,
    mappings: &[Mapped],
    notes: &mut Vec<String>,
) -> Result<Vec<Module>> {
    let mut modules: Vec<Module> = Vec::new();
    let mut known: BTreeMap<(String, Avma), usize> = BTreeMap::new();
    for mapped in mappings.iter().filter(|mapped| is_file(&mapped.file.path)) {
        let path = &mapped.file.path;
        let found = find(procfs, pid, mapped);
        // Most files map their first page lowest.
        let base = found.as_ref().map_or_else(
            || Avma(mapped.start.0.wrapping_sub(mapped.offset.0)),
            |(_, base)| *base,
        );
        let mapping = Mapping {
            start: mapped.start,
            offset: mapped.offset,
            size: mapped.size,
        };
        let index = known.entry((path.clone(), base)).or_insert(modules.len());
        if let Some(module) = modules.get_mut(*index) {
            module.mappings.push(mapping);
            continue;
        }
        let added = found.map(|(place, _)| writer.add_module(&place, path));
        let (file, build_id) = match added {
            Some(Ok((_, Some(found)))) if mapped.file.build_id.as_ref().is_some_and(|id| *id != found) => {
                notes.push(format!("{path} is another file now than the one that was traced"));
                (None, mapped.file.build_id.clone())
            }
            Some(Ok((file, build_id))) => (Some(file), build_id.or_else(|| mapped.file.build_id.clone())),
            Some(Err(error)) => {
                notes.push(format!("{path} could not be copied: {error}"));
                (None, mapped.file.build_id.clone())
            }
            None => {
                notes.push(format!("{path} of process {pid} is not there any longer"));
                (None, mapped.file.build_id.clone())
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

/// Names of mappings that are no files.
fn is_file(path: &str) -> bool {
    path.starts_with('/')
        && !["//anon", "/dev/zero", "/memfd:", "/SYSV"]
            .iter()
            .any(|prefix| path.starts_with(prefix))
}

/// The file as the process sees it, or as we do, with where it lies in the process.
fn find(procfs: &Path, pid: Pid, mapped: &Mapped) -> Option<(PathBuf, Avma)> {
    let path = &mapped.file.path;
    let seen = procfs.join(format!("{pid}/root{path}"));
    [seen, PathBuf::from(path)]
        .into_iter()
        .filter(|place| place.is_file())
        .find_map(|place| {
            let base = base(&File::open(&place).ok()?, mapped)?;
            Some((place, base))
        })
}

/// Where the page of the file's lowest `PT_LOAD` lies, when its code lies as mapped.
fn base(file: &File, mapped: &Mapped) -> Option<Avma> {
    let data = ReadCache::new(file);
    let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
    let endian = header.endian().ok()?;
    let loads: Vec<_> = header
        .program_headers(endian, &data)
        .ok()?
        .iter()
        .filter(|load| load.p_type(endian) == PT_LOAD)
        .collect();
    let page = |address: u64| address & !(PAGE - 1);
    let lowest = page(loads.iter().map(|load| load.p_vaddr(endian)).min()?);
    let offset = mapped.offset.0;
    let code = loads.iter().find(|load| {
        let start = page(load.p_offset(endian));
        let end = load.p_offset(endian).saturating_add(load.p_filesz(endian));
        load.p_flags(endian).0 & PF_X.0 != 0 && (start..end).contains(&offset)
    })?;
    let stated = page(code.p_vaddr(endian)).wrapping_add(offset.wrapping_sub(page(code.p_offset(endian))));
    Some(Avma(mapped.start.0.wrapping_sub(stated).wrapping_add(lowest)))
}
