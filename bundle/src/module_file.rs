//! Reads ELF files that another user owns: in pieces of bounded size, never by a memory map.
//!
//! The owner may change such a file at any time. Truncating a mapped file raises SIGBUS in its
//! reader; truncating a file during a read is only an error.

use crate::elf::{Class, Elf};
use crate::platform;
use crate::{Error, Result, SharedBytes};
use backtrail_pt::BuildId;
use object::elf::{ELFMAG, NT_GNU_BUILD_ID, PT_NOTE};
use std::fs::File;
use std::io;
use std::path::Path;

/// `sizeof(Elf64_Ehdr)`, the larger of the two.
const HEADER: usize = 64;
/// The most note segments that are read, and the most bytes of each. Linkers place the build id
/// early.
const MAX_NOTE_SEGMENTS: usize = 16;
const MAX_NOTES: u64 = 64 << 10;
/// The number of bytes at each end of a file that its fingerprint covers.
const FINGERPRINT_HEAD: u64 = 1 << 20;
const FINGERPRINT_TAIL: u64 = 64 << 10;
/// The number of bytes copied at once.
const PIECE: usize = 1 << 20;

pub use crate::platform::FileIdentity;

/// Reads what distinguishes the file at `path` from others, and from itself after a change.
///
/// # Errors
/// Fails if the file does not exist or its directory cannot be read.
pub fn identity(path: &Path) -> io::Result<FileIdentity> {
    platform::identity(path)
}

/// Returns the build id of an ELF file, if it has one. `place` names the file in errors.
///
/// # Errors
/// Fails if the file cannot be read, or if it is not an ELF file for x86.
pub fn build_id(file: &File, place: &str) -> Result<Option<BuildId>> {
    let failed = || Error::io("read", place.as_ref());
    let mut header = [0; HEADER];
    let got = read_at(file, &mut header, 0).map_err(failed())?;
    if got < HEADER || !header.starts_with(&ELFMAG) {
        return Err(Error::malformed(place, "this is not an ELF file"));
    }
    let Some(class) = Class::of(header.get(4..6).unwrap_or_default()) else {
        return Err(Error::unsupported(place, Class::UNSUPPORTED));
    };
    if !half(&header, 18).is_some_and(|machine| class.fits(machine)) {
        return Err(Error::unsupported(place, Class::OTHER_MACHINE));
    }
    let layout = Layout::of(class);
    let Some((offset, count)) = layout.table(&header) else {
        return Err(Error::malformed(place, "the ELF headers are damaged"));
    };
    let mut table = vec![0; usize::from(count) * layout.entry_size];
    let got = read_at(file, &mut table, offset).map_err(failed())?;
    if got < table.len() {
        return Err(Error::malformed(place, "the ELF headers are damaged (truncated)"));
    }
    let notes = table
        .chunks_exact(layout.entry_size)
        .filter(|segment| word(segment, 0) == Some(PT_NOTE.0))
        .take(MAX_NOTE_SEGMENTS);
    for segment in notes {
        let number = |at| layout.number(segment, at);
        let (Some(offset), Some(size), Some(align)) = (
            number(layout.offset),
            number(layout.file_size),
            number(layout.align),
        ) else {
            continue;
        };
        let mut bytes = vec![0; usize::try_from(size.min(MAX_NOTES)).unwrap_or(0)];
        let got = read_at(file, &mut bytes, offset).map_err(failed())?;
        let align = if align == 8 { 8 } else { 4 };
        if let Some(id) = build_id_in(bytes.get(..got).unwrap_or_default(), align) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Returns the build id of an ELF file in memory, if it has one. `place` names the file in errors.
///
/// # Errors
/// Fails if it is not an ELF file for x86.
pub fn build_id_of(bytes: &SharedBytes, place: &str) -> Result<Option<BuildId>> {
    Ok(Elf::parse(bytes, place)?.build_id())
}

/// Returns the contents of a section of an ELF file, at most `most` bytes. Returns `None` if it has
/// no such section, or if its headers are damaged.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn section(file: &File, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
    const SECTION_HEADER: usize = 64;
    const MAX_NAMES: u64 = 1 << 20;
    let mut header = [0; HEADER];
    let got = read_at(file, &mut header, 0)?;
    let is_ours = got == HEADER && header.starts_with(&ELFMAG) && half(&header, 58) == Some(64);
    let (Some(offset), Some(count), Some(names)) = (long(&header, 40), half(&header, 60), half(&header, 62))
    else {
        return Ok(None);
    };
    let mut table = vec![0; usize::from(count) * SECTION_HEADER];
    if !is_ours || read_at(file, &mut table, offset)? < table.len() {
        return Ok(None);
    }
    let contents = |entry: &[u8], most: u64| -> io::Result<Option<Vec<u8>>> {
        let (Some(offset), Some(size)) = (long(entry, 24), long(entry, 32)) else {
            return Ok(None);
        };
        let mut bytes = vec![0; usize::try_from(size.min(most)).unwrap_or(0)];
        let got = read_at(file, &mut bytes, offset)?;
        bytes.truncate(got);
        Ok(Some(bytes))
    };
    let entries = || table.chunks_exact(SECTION_HEADER);
    let Some(names) = entries().nth(names.into()) else {
        return Ok(None);
    };
    let Some(names) = contents(names, MAX_NAMES)? else {
        return Ok(None);
    };
    let has_name = |entry: &&[u8]| {
        let at = word(entry, 0).and_then(|at| usize::try_from(at).ok());
        let text = at.and_then(|at| names.get(at..));
        text.is_some_and(|text| {
            text.strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.first() == Some(&0))
        })
    };
    match entries().find(has_name) {
        Some(entry) => contents(entry, most),
        None => Ok(None),
    }
}

/// The layout of the program headers of a class: the positions of fields.
struct Layout {
    /// The size of addresses and offsets in bytes.
    word: usize,
    /// `e_phoff`, `e_phentsize` and `e_phnum`, in the file's header.
    table: [usize; 3],
    /// `sizeof(Elf32_Phdr)` or `sizeof(Elf64_Phdr)`.
    entry_size: usize,
    /// `p_offset`, in a program header.
    offset: usize,
    /// `p_filesz`.
    file_size: usize,
    /// `p_align`.
    align: usize,
}

impl Layout {
    fn of(class: Class) -> Self {
        match class {
            Class::Bits32 => Self {
                word: 4,
                table: [28, 42, 44],
                entry_size: 32,
                offset: 4,
                file_size: 16,
                align: 28,
            },
            Class::Bits64 => Self {
                word: 8,
                table: [32, 54, 56],
                entry_size: 56,
                offset: 8,
                file_size: 32,
                align: 48,
            },
        }
    }

    /// Returns the file offset of the program headers, and their number.
    fn table(&self, header: &[u8]) -> Option<(u64, u16)> {
        let [offset, entry_size, count] = self.table;
        (usize::from(half(header, entry_size)?) == self.entry_size)
            .then_some((self.number(header, offset)?, half(header, count)?))
    }

    /// Returns an address, an offset or a size.
    fn number(&self, bytes: &[u8], at: usize) -> Option<u64> {
        match self.word {
            4 => word(bytes, at).map(u64::from),
            _ => long(bytes, at),
        }
    }
}

/// Returns the build id among the notes of a segment.
pub(crate) fn build_id_in(mut notes: &[u8], align: usize) -> Option<BuildId> {
    loop {
        let size = |at| word(notes, at).and_then(|size| usize::try_from(size).ok());
        let (name_size, size, kind) = (size(0)?, size(4)?, word(notes, 8)?);
        let name_end = 12usize.checked_add(name_size)?;
        let start = name_end.checked_next_multiple_of(align)?;
        let end = start.checked_add(size)?;
        let (name, contents) = (notes.get(12..name_end)?, notes.get(start..end)?);
        if kind == NT_GNU_BUILD_ID.0 && name.strip_suffix(&[0]) == Some(b"GNU") {
            return BuildId::new(contents);
        }
        notes = notes.get(end.checked_next_multiple_of(align)?..)?;
    }
}

/// Returns a fingerprint of a file without a build id: FNV-1a over its size, its start and its end.
///
/// # Errors
/// Fails if the file cannot be read.
pub(crate) fn fingerprint(file: &File) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut bytes = size.to_le_bytes().to_vec();
    let tail = size
        .saturating_sub(FINGERPRINT_TAIL)
        .max(FINGERPRINT_HEAD.min(size));
    for range in [0..FINGERPRINT_HEAD.min(size), tail..size] {
        let mut piece = vec![0; usize::try_from(range.end - range.start).unwrap_or(0)];
        let got = read_at(file, &mut piece, range.start)?;
        bytes.extend_from_slice(piece.get(..got).unwrap_or_default());
    }
    Ok(bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// A limit on the bytes that copying may still write.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// Bytes of data. Holes cost nothing.
    pub bytes: u64,
}

impl Allowance {
    /// No limit.
    pub const UNLIMITED: Self = Self { bytes: u64::MAX };
}

/// Copies a file, including its holes, within the allowance. Calls `proceed` before each piece of 1
/// MiB.
///
/// # Errors
/// Fails if an operation on either file fails, if the allowance is used up, or if `proceed` fails.
pub(crate) fn copy(
    from: &File,
    to: &File,
    allowance: &mut Allowance,
    mut proceed: impl FnMut() -> io::Result<()>,
) -> io::Result<()> {
    let size = from.metadata()?.len();
    to.set_len(size)?;
    let mut piece = vec![0; PIECE];
    let mut at = 0;
    while let Some(data) = platform::next_data(from, at, size) {
        at = data.start;
        while at < data.end {
            proceed()?;
            let wanted = usize::try_from(data.end - at).unwrap_or(PIECE).min(PIECE);
            let room = piece.get_mut(..wanted).unwrap_or_default();
            let got = read_at(from, room, at)?;
            if got == 0 {
                // The file was truncated during the copy.
                return to.set_len(at);
            }
            allowance.bytes = allowance
                .bytes
                .checked_sub(got as u64)
                .ok_or_else(|| io::Error::other("the bundle reached its size limit"))?;
            platform::write_all_at(to, room.get(..got).unwrap_or_default(), at)?;
            at += got as u64;
        }
    }
    Ok(())
}

/// Reads until `out` is full or the file ends.
fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = out.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match platform::read_at(file, rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // No file can have such an offset.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};

    #[test]
    fn build_id_is_the_one_that_a_whole_parse_finds() {
        let program = std::env::current_exe().unwrap();
        let bytes = SharedBytes::map_file(&program).unwrap();
        let whole = Elf::parse(&bytes, "x").unwrap().build_id();
        let read = build_id(&File::open(&program).unwrap(), "x").unwrap();
        assert!(read.is_some() && read == whole, "{read:?} {whole:?}");
    }

    #[test]
    fn damaged_files_are_refused_or_have_no_build_id() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let check = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            build_id(&file, "x")
        };
        assert!(check(b"").is_err() && check(b"#!/bin/sh").is_err());
        for cut in [10, 63, 64, 100, 500] {
            assert!(check(&program[..cut]).is_err(), "{cut}");
        }
        let mut huge = program[..64 << 10].to_vec();
        huge[32..40].fill(0xff);
        assert!(check(&huge).is_err());
        let mut random = crate::module_file::tests::numbers();
        for _ in 0..2000 {
            let mut bytes = program[..8192].to_vec();
            for _ in 0..8 {
                let at = random() as usize % 1024;
                bytes[at] = random() as u8;
            }
            let _ = check(&bytes);
        }
    }

    pub(super) fn numbers() -> impl FnMut() -> u64 {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        }
    }

    #[test]
    fn holes_stay_holes_and_cost_nothing() {
        let from = tempfile::tempfile().unwrap();
        from.set_len(1 << 40).unwrap();
        from.write_all_at(&[7; 5000], 3 << 30).unwrap();
        let to = tempfile::tempfile().unwrap();
        let mut allowance = Allowance { bytes: 64 << 10 };
        copy(&from, &to, &mut allowance, || Ok(())).unwrap();
        let copied = to.metadata().unwrap();
        assert_eq!(copied.len(), 1 << 40);
        assert!(copied.blocks() * 512 < 64 << 10, "{}", copied.blocks());
        let mut bytes = [0; 5002];
        to.read_exact_at(&mut bytes, (3 << 30) - 1).unwrap();
        assert!(bytes[0] == 0 && bytes[1..5001].iter().all(|byte| *byte == 7) && bytes[5001] == 0);
        let mut less = Allowance { bytes: 100 };
        let error = copy(&from, &to, &mut less, || Ok(())).unwrap_err();
        assert!(error.to_string().contains("size limit"), "{error}");
    }

    #[test]
    fn different_files_have_different_fingerprints() {
        let file = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            fingerprint(&file).unwrap()
        };
        let mut long = vec![1; 2 << 20];
        let first = file(&long);
        long[(2 << 20) - 1] = 2;
        assert_ne!(first, file(&long));
        long.push(0);
        assert_ne!(first, file(&long));
        assert_eq!(file(b"x"), file(b"x"));
        assert_ne!(file(b""), file(&[0]));
    }
}
