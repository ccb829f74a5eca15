//! Reads the `PT_LOAD` segments of an ELF file, and determines where the file is loaded.

use backtrail_pt::Avma;
use object::LittleEndian;
use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::File;

/// More program headers than any loader accepts (the limit of the kernel is 1170).
const MAX_HEADERS: u16 = 4096;

/// The `PT_LOAD` segments of a file.
#[derive(Clone, Debug, Default)]
pub struct LoadSegments {
    /// The page of the lowest stated address.
    lowest: u64,
    /// Executable segments: the page of the file offset, the offset after the last byte, and the
    /// page of the stated address.
    executable: Vec<(u64, u64, u64)>,
}

impl LoadSegments {
    /// Reads the headers of a file, or returns `None` if it is not an ELF file or has no such
    /// segment.
    #[must_use]
    pub fn read(file: &File) -> Option<Self> {
        let data = ReadCache::new(file);
        let header = FileHeader64::<LittleEndian>::parse(&data).ok()?;
        let endian = header.endian().ok()?;
        if header.e_phnum(endian) > MAX_HEADERS {
            return None;
        }
        let page = |address: u64| address & !(crate::PAGE - 1);
        let segments = header.program_headers(endian, &data).ok()?;
        let loads = || segments.iter().filter(|load| load.p_type(endian) == PT_LOAD);
        Some(Self {
            lowest: page(loads().map(|load| load.p_vaddr(endian)).min()?),
            executable: loads()
                .filter(|load| load.p_flags(endian).0 & PF_X.0 != 0)
                .map(|load| {
                    let start = load.p_offset(endian);
                    let end = start.saturating_add(load.p_filesz(endian));
                    (page(start), end, page(load.p_vaddr(endian)))
                })
                .collect(),
        })
    }

    /// Returns the address of the page of the lowest `PT_LOAD`, if file offset `offset` is mapped
    /// executable at `start`. Returns `None` if no executable segment contains the offset.
    #[must_use]
    pub fn base(&self, start: u64, offset: u64) -> Option<Avma> {
        let holds = |(from, end, _): &&(u64, u64, u64)| *from <= offset && offset < *end;
        let (from, _, address) = self.executable.iter().find(holds)?;
        let stated = address.wrapping_add(offset.wrapping_sub(*from)) & !(crate::PAGE - 1);
        Some(Avma(start.wrapping_sub(stated).wrapping_add(self.lowest)))
    }

    /// Returns how many bytes above its own addresses the file is loaded, as [`Self::base`] does.
    #[must_use]
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        Some(self.base(start, offset)?.0.wrapping_sub(self.lowest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps;

    #[test]
    fn base_of_the_running_program_is_its_lowest_mapping() {
        let program = std::env::current_exe().unwrap();
        let segments = LoadSegments::read(&File::open(&program).unwrap()).unwrap();
        let pid = std::process::id() as crate::RawTid;
        let ours = |map: &maps::Map| map.path == program.to_string_lossy();
        let mapped = maps::maps(pid);
        let lowest = mapped.iter().find(|map| ours(map)).unwrap().start;
        let code = mapped.iter().find(|map| ours(map) && map.executable).unwrap();
        assert_eq!(segments.base(code.start, code.offset), Some(Avma(lowest)));
        assert_eq!(segments.base(code.start, 1 << 40), None);
    }

    #[test]
    fn non_elf_file_has_no_load_segments() {
        assert!(LoadSegments::read(&File::open("/proc/self/status").unwrap()).is_none());
        assert!(LoadSegments::read(&tempfile_of(b"\x7fELF\x02\x01")).is_none());
    }

    fn tempfile_of(bytes: &[u8]) -> File {
        use std::io::Write;
        let path = std::env::temp_dir().join(format!("backtrail-load-{}", std::process::id()));
        File::create(&path).unwrap().write_all(bytes).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }
}
