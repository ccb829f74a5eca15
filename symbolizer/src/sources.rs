//! Finds the files that symbols come from: the module, its debug file, the supplementary file and
//! split DWARF.

use crate::source::{Elf, FileBytes, Source, SplitFile, has_dwarf, map_file};
use crate::{DebugSearch, Error, split_files};
use object::{Object, ObjectKind};
use std::path::{Path, PathBuf};

/// Every file whose bytes the tables borrow.
pub(crate) struct Sources {
    /// The module itself.
    pub module: Source,
    /// The separate debug file.
    pub debug: Option<Source>,
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
        if !has_dwarf(&elf) {
            match find_debug(&elf, search) {
                Ok(found) => sources.debug = found,
                Err(missing) => sources.missing = Some(missing),
            }
        }
        let holder = sources.debug.as_ref().unwrap_or(&sources.module);
        if let Some((path, id)) = holder.elf()?.gnu_debugaltlink().ok().flatten() {
            let found = find_by_id(id, search).or_else(|| find_supplementary(path, id, search));
            if found.is_none() {
                let path = String::from_utf8_lossy(path);
                sources.missing = Some(format!("the supplementary debug file {path} was not found"));
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

/// Finds the separate debug file. Returns `Ok(None)` if none is named, and the reason if it is
/// missing.
fn find_debug(elf: &Elf, search: &DebugSearch) -> Result<Option<Source>, String> {
    let id = elf.build_id().ok().flatten();
    if let Some(found) = id.and_then(|id| find_by_id(id, search)) {
        return Ok(Some(found));
    }
    let Some((name, crc)) = elf.gnu_debuglink().ok().flatten() else {
        return Ok(None);
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
            if crc32((*bytes).as_ref()) != crc {
                continue;
            }
            if let Ok(source) = Source::load(bytes) {
                return Ok(Some(source));
            }
        }
    }
    Err(format!("the debug file {shown} was not found"))
}

/// Opens `ROOT/.build-id/xx/yyyy.debug`, whose own build id must be the same.
fn find_by_id(id: &[u8], search: &DebugSearch) -> Option<Source> {
    let id = backtrail_pt::BuildId::new(id)?;
    let digits = id.to_string();
    let (first, rest) = digits.split_at_checked(2)?;
    search.roots.iter().find_map(|root| {
        let path = root.join(".build-id").join(first).join(format!("{rest}.debug"));
        load_with_id(&path, id.as_bytes(), search)
    })
}

/// Finds the supplementary file. `.gnu_debugaltlink` states its path on the build machine. Its file
/// name is searched in each `ROOT/.dwz` and one directory below, as Debian has a directory for each
/// architecture.
fn find_supplementary(path: &[u8], id: &[u8], search: &DebugSearch) -> Option<Source> {
    let path = PathBuf::from(std::str::from_utf8(path).ok()?);
    let name = file_name(path.file_name()?.as_encoded_bytes())?;
    let architecture = path.parent().and_then(Path::file_name);
    let below_roots = search.roots.iter().map(|root| root.join(".dwz"));
    below_roots
        .chain(search.beside.iter().cloned())
        .find_map(|directory| {
            let nested = architecture.map(|architecture| directory.join(architecture).join(name));
            let mut candidates = [Some(directory.join(name)), nested].into_iter().flatten();
            candidates.find_map(|candidate| load_with_id(&candidate, id, search))
        })
}

fn load_with_id(path: &Path, id: &[u8], search: &DebugSearch) -> Option<Source> {
    let source = Source::load(map_file(path, search.max_file_size).ok()?).ok()?;
    let same = source.elf().ok()?.build_id().ok().flatten() == Some(id);
    same.then_some(source)
}

/// Returns a name of one component, which cannot leave its directory.
fn file_name(name: &[u8]) -> Option<&str> {
    let name = std::str::from_utf8(name).ok()?;
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
    plain.then_some(name)
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

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\0b"] {
            assert_eq!(file_name(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(file_name(b"foo.debug"), Some("foo.debug"));
    }
}
