//! Encodes and decodes the notes of an x86-64 Linux core.
//!
//! Sources: `linux/elf.h` (note types), `linux/elfcore.h` (`elf_prstatus`, `elf_prpsinfo`),
//! `fs/binfmt_elf.c` (`fill_files_note`).

use super::registers::COUNT;
use super::{CoreThread, MappedFile, ProcessInfo, Registers};
use backtrail_pt::{Avma, FileOffset, Tid};

pub(super) const NT_PRSTATUS: u32 = 1;
pub(super) const NT_FPREGSET: u32 = 2;
pub(crate) const NT_PRPSINFO: u32 = 3;
pub(super) const NT_AUXV: u32 = 6;
pub(super) const NT_SIGINFO: u32 = 0x5349_4749;
pub(crate) const NT_FILE: u32 = 0x4649_4c45;
pub(super) const NT_X86_XSTATE: u32 = 0x202;

/// The owner of notes that the kernel's generic code writes.
pub(super) const OWNER_CORE: &[u8] = b"CORE";
/// The owner of notes that are specific to an architecture.
pub(super) const OWNER_LINUX: &[u8] = b"LINUX";

/// Offsets in `struct elf_prstatus`.
mod prstatus {
    pub(super) const SIZE: usize = 336;
    pub(super) const SIGNO: usize = 0;
    pub(super) const CURSIG: usize = 12;
    pub(super) const PID: usize = 32;
    pub(super) const PPID: usize = 36;
    pub(super) const REGISTERS: usize = 112;
    pub(super) const FP_VALID: usize = 328;
}

/// Offsets in `struct elf_prpsinfo`.
mod prpsinfo {
    pub(super) const SIZE: usize = 136;
    pub(super) const STATE_NAME: usize = 1;
    pub(super) const UID: usize = 16;
    pub(super) const GID: usize = 20;
    pub(super) const PID: usize = 24;
    pub(super) const PPID: usize = 28;
    pub(super) const NAME: usize = 40;
    pub(super) const NAME_LEN: usize = 16;
    pub(super) const ARGUMENTS: usize = 56;
    pub(super) const ARGUMENTS_LEN: usize = 80;
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    read(bytes, at).map(u32::from_le_bytes)
}

fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    read(bytes, at).map(u64::from_le_bytes)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Encodes the `NT_PRSTATUS` note of a thread of `process`.
pub(super) fn encode_prstatus(thread: &CoreThread, process: &ProcessInfo) -> Vec<u8> {
    let mut bytes = vec![0; prstatus::SIZE];
    put(&mut bytes, prstatus::SIGNO, &thread.signal.to_le_bytes());
    put(
        &mut bytes,
        prstatus::CURSIG,
        &(thread.signal as i16).to_le_bytes(),
    );
    put(&mut bytes, prstatus::PID, &thread.tid.0.to_le_bytes());
    put(&mut bytes, prstatus::PPID, &process.ppid.to_le_bytes());
    for (index, word) in thread.registers.to_array().into_iter().enumerate() {
        put(&mut bytes, prstatus::REGISTERS + 8 * index, &word.to_le_bytes());
    }
    put(
        &mut bytes,
        prstatus::FP_VALID,
        &u32::from(!thread.fpregs.is_empty()).to_le_bytes(),
    );
    bytes
}

/// Decodes an `NT_PRSTATUS` note, which begins a thread. Returns `None` if it is truncated.
pub(super) fn decode_prstatus(bytes: &[u8]) -> Option<CoreThread> {
    let mut words = [0; COUNT];
    for (index, word) in words.iter_mut().enumerate() {
        *word = read_u64(bytes, prstatus::REGISTERS + 8 * index)?;
    }
    Some(CoreThread {
        tid: Tid(read_u32(bytes, prstatus::PID)?),
        signal: i16::from_le_bytes(read(bytes, prstatus::CURSIG)?).into(),
        registers: Registers::from_array(words),
        ..CoreThread::default()
    })
}

/// Encodes an `NT_PRPSINFO` note.
pub(super) fn encode_prpsinfo(process: &ProcessInfo) -> Vec<u8> {
    let mut bytes = vec![0; prpsinfo::SIZE];
    put(&mut bytes, prpsinfo::STATE_NAME, b"R");
    put(&mut bytes, prpsinfo::UID, &process.uid.to_le_bytes());
    put(&mut bytes, prpsinfo::GID, &process.gid.to_le_bytes());
    put(&mut bytes, prpsinfo::PID, &process.pid.to_le_bytes());
    put(&mut bytes, prpsinfo::PPID, &process.ppid.to_le_bytes());
    // Both strings end in at least one NUL.
    put(
        &mut bytes,
        prpsinfo::NAME,
        truncated(&process.name, prpsinfo::NAME_LEN - 1),
    );
    put(
        &mut bytes,
        prpsinfo::ARGUMENTS,
        truncated(&process.arguments, prpsinfo::ARGUMENTS_LEN - 1),
    );
    bytes
}

/// Decodes an `NT_PRPSINFO` note. Returns `None` if it is truncated.
pub(super) fn decode_prpsinfo(bytes: &[u8]) -> Option<ProcessInfo> {
    Some(ProcessInfo {
        pid: read_u32(bytes, prpsinfo::PID)?,
        ppid: read_u32(bytes, prpsinfo::PPID)?,
        uid: read_u32(bytes, prpsinfo::UID)?,
        gid: read_u32(bytes, prpsinfo::GID)?,
        name: until_nul(&read::<{ prpsinfo::NAME_LEN }>(bytes, prpsinfo::NAME)?),
        // The kernel leaves a space after the last argument.
        arguments: until_nul(&read::<{ prpsinfo::ARGUMENTS_LEN }>(bytes, prpsinfo::ARGUMENTS)?)
            .trim_end()
            .to_owned(),
    })
}

/// Returns place and size of the command line in an `NT_PRPSINFO` note.
pub(crate) fn command_line_range(note: &[u8]) -> Option<(usize, usize)> {
    let start = prpsinfo::ARGUMENTS;
    let text = note.get(start..start + prpsinfo::ARGUMENTS_LEN)?;
    let size = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Some((start, size))
}

/// Encodes an `NT_AUXV` note, which ends with `AT_NULL`.
pub(super) fn encode_auxv(auxv: &[(u64, u64)]) -> Vec<u8> {
    let words = auxv.iter().filter(|(kind, _)| *kind != 0).chain([&(0, 0)]);
    words
        .flat_map(|(kind, value)| [kind.to_le_bytes(), value.to_le_bytes()])
        .flatten()
        .collect()
}

/// Returns the pairs of an `NT_AUXV` note before `AT_NULL`.
pub(super) fn decode_auxv(bytes: &[u8]) -> Vec<(u64, u64)> {
    let pair = |chunk: &[u8]| Some((read_u64(chunk, 0)?, read_u64(chunk, 8)?));
    bytes
        .chunks_exact(16)
        .filter_map(pair)
        .take_while(|(kind, _)| *kind != 0)
        .collect()
}

/// Encodes an `NT_FILE` note: count, page size, three words for each file, then the names.
pub(super) fn encode_files(files: &[MappedFile]) -> Vec<u8> {
    let head = [files.len() as u64, crate::PAGE_SIZE];
    let triples = files
        .iter()
        .flat_map(|file| [file.start.0, file.end.0, file.offset.0 / crate::PAGE_SIZE]);
    let mut bytes: Vec<u8> = head
        .into_iter()
        .chain(triples)
        .flat_map(u64::to_le_bytes)
        .collect();
    for file in files {
        bytes.extend(file.path.bytes().filter(|byte| *byte != 0));
        bytes.push(0);
    }
    bytes
}

/// Decodes an `NT_FILE` note. Returns `None` if its numbers are impossible.
pub(super) fn decode_files(bytes: &[u8]) -> Option<Vec<MappedFile>> {
    const HEAD: usize = 16;
    const TRIPLE: usize = 24;
    let count = usize::try_from(read_u64(bytes, 0)?).ok()?;
    let page_size = read_u64(bytes, 8)?;
    let names_at = count.checked_mul(TRIPLE)?.checked_add(HEAD)?;
    let (triples, names) = (bytes.get(HEAD..names_at)?, bytes.get(names_at..)?);
    let mut names = names.split(|byte| *byte == 0);
    let file = |triple: &[u8]| {
        let (start, end) = (Avma(read_u64(triple, 0)?), Avma(read_u64(triple, 8)?));
        let offset = FileOffset(read_u64(triple, 16)?.checked_mul(page_size)?);
        let path = String::from_utf8_lossy(names.next()?).into_owned();
        (start <= end).then_some(MappedFile {
            start,
            end,
            offset,
            path,
        })
    };
    triples.chunks_exact(TRIPLE).map(file).collect()
}

/// Appends a note: header, owner and contents, each padded to 4 bytes.
pub(super) fn encode_note(out: &mut Vec<u8>, owner: &[u8], kind: u32, contents: &[u8]) {
    let lengths = [owner.len() as u32 + 1, contents.len() as u32, kind];
    out.extend(lengths.into_iter().flat_map(u32::to_le_bytes));
    out.extend(owner);
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(contents);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn truncated(text: &str, len: usize) -> &[u8] {
    text.as_bytes().get(..len).unwrap_or(text.as_bytes())
}

fn until_nul(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_decodes_to_what_was_encoded() {
        let process = ProcessInfo {
            pid: 1,
            ppid: 2,
            uid: 3,
            gid: 4,
            name: "demo".to_owned(),
            arguments: "./demo a b".to_owned(),
        };
        assert_eq!(decode_prpsinfo(&encode_prpsinfo(&process)), Some(process.clone()));
        let registers = Registers::from_array(std::array::from_fn(|index| index as u64 * 3 + 1));
        let thread = CoreThread {
            tid: Tid(7),
            signal: 11,
            registers,
            ..CoreThread::default()
        };
        assert_eq!(decode_prstatus(&encode_prstatus(&thread, &process)), Some(thread));
        let file = |start, path: &str| MappedFile {
            start: Avma(start),
            end: Avma(start + 0x2000),
            offset: FileOffset(0x1000),
            path: path.to_owned(),
        };
        let files = vec![file(0x40_0000, "/a b"), file(0x50_0000, "")];
        assert_eq!(decode_files(&encode_files(&files)), Some(files));
        assert_eq!(
            decode_auxv(&encode_auxv(&[(6, 4096), (9, 1)])),
            [(6, 4096), (9, 1)]
        );
    }

    #[test]
    fn truncated_notes_are_none() {
        let process = ProcessInfo::default();
        let status = encode_prstatus(&CoreThread::default(), &process);
        assert!((0..prstatus::FP_VALID).all(|end| decode_prstatus(&status[..end]).is_none()));
        let info = encode_prpsinfo(&process);
        assert!((0..info.len()).all(|end| decode_prpsinfo(&info[..end]).is_none()));
        let huge: Vec<u8> = [u64::MAX, 4096].into_iter().flat_map(u64::to_le_bytes).collect();
        assert_eq!(decode_files(&huge), None);
    }
}
