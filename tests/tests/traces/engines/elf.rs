//! A static ELF file with given machine code.

use crate::engines::assembler::Segment;

const PAGE: u64 = 0x1000;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;

/// Returns an executable whose segments may be read and executed, with entry point `entry`.
pub fn executable(segments: &[Segment], entry: u64) -> Vec<u8> {
    let count = segments.len();
    let mut file = Vec::new();
    file.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, EM_X86_64, version.
    file.extend_from_slice(&[2, 0, 62, 0, 1, 0, 0, 0]);
    for word in [entry, HEADER as u64, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&[0; 4]);
    for half in [HEADER, PROGRAM_HEADER, count, 64, 0, 0] {
        file.extend_from_slice(&(half as u16).to_le_bytes());
    }
    let mut content: Vec<u8> = Vec::new();
    let base = ((HEADER + count * PROGRAM_HEADER) as u64).next_multiple_of(PAGE);
    for Segment { start, bytes } in segments {
        // A segment has the same offset in its page of the file as in memory.
        let at = (base + content.len() as u64).next_multiple_of(PAGE) + start % PAGE;
        content.resize((at - base) as usize, 0);
        content.extend_from_slice(bytes);
        // PT_LOAD, read and execute.
        file.extend_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]);
        let size = bytes.len() as u64;
        for word in [at, *start, *start, size, size, PAGE] {
            file.extend_from_slice(&word.to_le_bytes());
        }
    }
    file.resize(base as usize, 0);
    file.extend_from_slice(&content);
    file
}
