//! Finds the files that symbols come from: the module, its debug file, the supplementary file and
//! split DWARF.

use crate::debug_ids::{file_name, find_by_id};
use crate::source::{Elf, FileBytes, Source, SplitFile, has_dwarf, map_file};
use crate::supplementary::{self, SupplementaryLink};
use crate::{DebugSearch, Error, mini_debug, split_files};
use object::{Object, ObjectKind};
use std::path::{Path, PathBuf};

/// Every file whose bytes the tables borrow.
pub(crate) struct Sources {
    /// The module itself.
    pub module: Source,
    /// The separate debug file.
    pub debug: Option<Source>,
    /// The symbols in the module's own packed section, if there is no debug file.
    pub mini_debug: Option<Source>,
    /// The supplementary file, to which `dwz` moved shared entries (`.gnu_debugaltlink`).
    pub supplementary: Option<Source>,
    /// The split DWARF files.
    pub split: Vec<SplitFile>,
    /// The reason why a named debug file is missing.
    pub missing: Option<String>,
}

impl Sources {
    /// Reads the module's headers, and opens the files that belong to it.
    pub fn gather(bytes: FileBytes, search: &DebugSearch) -> Result<Self, Error> {
        let module = Source::load(bytes)?;
        let mut sources = Self {
            module,
            debug: None,
            mini_debug: None,
            supplementary: None,
            split: Vec::new(),
            missing: None,
        };
        let elf = sources.module.elf()?;
        // Files made by `dwz` are relocatable; modules are not.
        if !matches!(elf.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
            return Err(Error::Unsupported(
                "an ELF file that is not linked (an object or core file)",
            ));
        }
        let mut holder_path = search.module.clone();
        if !has_dwarf(&elf) {
            match find_debug(&elf, search) {
                Ok(Some((found, path))) => {
                    sources.debug = Some(found);
                    let is_foreign = |root: &PathBuf| path.starts_with(root);
                    holder_path = Some(path.clone()).filter(|_| !search.confined.iter().any(is_foreign));
                }
                Ok(None) => {}
                Err(missing) => sources.missing = Some(missing),
            }
        }
        if sources.debug.is_none() {
            sources.mini_debug = mini_debug::find(&sources.module, &elf);
        }
        let holder = sources.debug.as_ref().unwrap_or(&sources.module);
        if let Some(link) = SupplementaryLink::of(holder, &holder.elf()?) {
            let found = supplementary::find(&link, holder_path.as_deref(), search);
            if found.is_none() {
                sources.missing = Some(format!(
                    "the supplementary debug file {} was not found",
                    link.shown()
                ));
            }
            sources.supplementary = found;
        }
        let id = elf.build_id().ok().flatten().and_then(backtrail_pt::BuildId::new);
        sources.split = split_files::find(sources.dwarf_holder(), id.as_ref(), search);
        Ok(sources)
    }

    /// Returns the file with the DWARF: the debug file, or the module itself.
    pub fn dwarf_holder(&self) -> &Source {
        self.debug.as_ref().unwrap_or(&self.module)
    }
}

/// Finds the separate debug file and its path. Returns `Ok(None)` if none is named, and the reason
/// if it is missing.
fn find_debug(elf: &Elf, search: &DebugSearch) -> Result<Option<(Source, PathBuf)>, String> {
    let id = elf.build_id().ok().flatten();
    let (by_id, refused) = match id {
        Some(id) => find_by_id(id, search),
        None => (None, None),
    };
    if by_id.is_some() {
        return Ok(by_id);
    }
    let mut refused: Option<PathBuf> = refused;
    let Some((name, crc)) = elf.gnu_debuglink().ok().flatten() else {
        return refused.map_or(Ok(None), |path| Err(of_another_build(&path)));
    };
    let shown = String::from_utf8_lossy(name);
    let Some(name) = file_name(name) else {
        return Err(format!("the debug file name {shown:?} is not a plain file name"));
    };
    for directory in &search.beside {
        for path in [directory.join(name), directory.join(".debug").join(name)] {
            let Ok(bytes) = map_file(&path, search.max_file_size) else {
                continue;
            };
            let is_named = crc32((*bytes).as_ref()) == crc;
            match Source::load(bytes) {
                Ok(source) if is_named && !has_other_id(&source, id) => return Ok(Some((source, path))),
                _ => refused = refused.or(Some(path)),
            }
        }
    }
    Err(match refused {
        Some(path) => of_another_build(&path),
        None => format!("the debug file {shown} was not found"),
    })
}

/// Returns whether a debug file states a build id other than that of the module.
fn has_other_id(source: &Source, id: Option<&[u8]>) -> bool {
    let found = source.elf().ok();
    let found = found.as_ref().and_then(|elf| elf.build_id().ok().flatten());
    found.zip(id).is_some_and(|(found, id)| found != id)
}

fn of_another_build(path: &Path) -> String {
    format!(
        "the debug file {} belongs to another build, and is not used",
        path.display()
    )
}

/// Returns the checksum of `.gnu_debuglink`: CRC-32 as in zlib (GDB manual, "Separate Debug
/// Files").
fn crc32(data: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    0xedb8_8320 ^ (value >> 1)
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !data
        .iter()
        .fold(!0, |crc, byte| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_equals_that_of_zlib() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
