//! Writes a core: headers and notes first, then the memory, copied through a small buffer.

use super::layout::{self, OWNER_CORE, OWNER_LINUX, encode_note};
use super::{CoreContents, Segment};
use crate::PAGE_SIZE;
use crate::sparse::write_sparse;
use backtrail_pt::Avma;
use std::io::{self, Seek, SeekFrom, Write};

/// `sizeof(Elf64_Ehdr)`.
const EHDR_SIZE: u64 = 64;
/// `sizeof(Elf64_Phdr)`.
const PHDR_SIZE: u64 = 56;
/// `sizeof(Elf64_Shdr)`.
const SHDR_SIZE: u64 = 64;
/// The value of `e_phnum` when section 0 holds the number (`linux/elf.h`).
const PN_XNUM: u16 = 0xffff;
/// The size of the copy buffer.
const CHUNK: usize = 1 << 20;

/// The source of a core's memory.
pub trait Memory {
    /// Copies memory from an address, and returns how many bytes were read.
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize;

    /// Returns how many of the next `size` bytes are certainly zero, without reading them: pages
    /// that were never touched.
    fn zeros(&mut self, _address: Avma, _size: u64) -> u64 {
        0
    }
}

impl<F: FnMut(Avma, &mut [u8]) -> usize> Memory for F {
    fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
        self(address, out)
    }
}

/// Writes a core of `contents` to `out`, from its current position, which must be 0.
///
/// `memory` supplies the first [`Segment::saved`] bytes of each segment. If a read fails, the rest
/// of that segment counts as not saved. Returns the number of bytes saved.
///
/// # Errors
/// Fails if writing to `out` fails.
pub fn write<W: Write + Seek>(
    out: &mut W,
    contents: &CoreContents,
    mut memory: impl Memory,
) -> io::Result<u64> {
    let notes = notes(contents);
    let count = contents.segments.len() as u64 + 1;
    let extended = count >= u64::from(PN_XNUM);
    let notes_at = EHDR_SIZE + PHDR_SIZE * count + if extended { SHDR_SIZE } else { 0 };
    let mut at = (notes_at + notes.len() as u64).next_multiple_of(PAGE_SIZE);

    // The memory is written first, because the headers state how much of each segment could be
    // read.
    let mut buffer = vec![0; CHUNK];
    let mut headers = vec![note_header(notes_at, notes.len() as u64)];
    let mut total = 0;
    for segment in &contents.segments {
        out.seek(SeekFrom::Start(at))?;
        let saved = copy(out, segment, &mut buffer, &mut memory)?;
        headers.push(load_header(segment, at, saved));
        total += saved;
        at = (at + saved).next_multiple_of(PAGE_SIZE);
    }
    // Write a byte, because a trailing hole would not extend the file.
    out.seek(SeekFrom::Start(at))?;
    out.write_all(&[0])?;
    out.seek(SeekFrom::Start(0))?;
    out.write_all(&file_header(
        if extended { PN_XNUM } else { count as u16 },
        PHDR_SIZE * count,
    ))?;
    for header in headers {
        out.write_all(&header)?;
    }
    if extended {
        out.write_all(&section_zero(count))?;
    }
    out.write_all(&notes)?;
    out.seek(SeekFrom::End(0))?;
    out.flush()?;
    Ok(total)
}

/// Copies the readable part of the segment, and returns its size.
fn copy<W: Write + Seek>(
    out: &mut W,
    segment: &Segment,
    buffer: &mut [u8],
    memory: &mut impl Memory,
) -> io::Result<u64> {
    let wanted = segment.saved.min(segment.size);
    let mut done = 0;
    while done < wanted {
        let zeros = memory
            .zeros(segment.start + done, wanted - done)
            .min(wanted - done);
        if zeros != 0 {
            // A segment is smaller than the address space, so its size fits.
            out.seek_relative(zeros as i64)?;
            done += zeros;
            continue;
        }
        let len = buffer
            .len()
            .min(usize::try_from(wanted - done).unwrap_or(usize::MAX));
        let Some(chunk) = buffer.get_mut(..len) else { break };
        let got = memory.read(segment.start + done, chunk).min(len);
        write_sparse(out, chunk.get(..got).unwrap_or_default())?;
        done += got as u64;
        if got < len {
            break;
        }
    }
    Ok(done)
}

/// Encodes all notes in the kernel's order: those of the first thread, those of the process, then
/// those of the other threads.
fn notes(contents: &CoreContents) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, thread) in contents.threads.iter().enumerate() {
        let status = layout::encode_prstatus(thread, &contents.process);
        encode_note(&mut out, OWNER_CORE, layout::NT_PRSTATUS, &status);
        if index == 0 {
            encode_note(
                &mut out,
                OWNER_CORE,
                layout::NT_PRPSINFO,
                &layout::encode_prpsinfo(&contents.process),
            );
        }
        if let Some(info) = thread.siginfo {
            encode_note(&mut out, OWNER_CORE, layout::NT_SIGINFO, &info.0);
        }
        if index == 0 {
            encode_note(
                &mut out,
                OWNER_CORE,
                layout::NT_AUXV,
                &layout::encode_auxv(&contents.auxv),
            );
            encode_note(
                &mut out,
                OWNER_CORE,
                layout::NT_FILE,
                &layout::encode_files(&contents.files),
            );
        }
        if !thread.fpregs.is_empty() {
            encode_note(&mut out, OWNER_CORE, layout::NT_FPREGSET, &thread.fpregs);
        }
        if !thread.xstate.is_empty() {
            encode_note(&mut out, OWNER_LINUX, layout::NT_X86_XSTATE, &thread.xstate);
        }
    }
    out
}

/// Builds `Elf64_Ehdr`. A section table, if any, follows the program headers.
fn file_header(phnum: u16, headers_size: u64) -> Vec<u8> {
    let extended = phnum == PN_XNUM;
    let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header.extend(4u16.to_le_bytes()); // ET_CORE
    header.extend(62u16.to_le_bytes()); // EM_X86_64
    header.extend(1u32.to_le_bytes());
    header.extend(0u64.to_le_bytes());
    header.extend(EHDR_SIZE.to_le_bytes());
    header.extend(if extended { EHDR_SIZE + headers_size } else { 0 }.to_le_bytes());
    header.extend(0u32.to_le_bytes());
    let shentsize = if extended { SHDR_SIZE as u16 } else { 0 };
    let counts = [
        EHDR_SIZE as u16,
        PHDR_SIZE as u16,
        phnum,
        shentsize,
        u16::from(extended),
        0,
    ];
    header.extend(counts.into_iter().flat_map(u16::to_le_bytes));
    header
}

/// Builds section header 0 (`Elf64_Shdr`), whose `sh_info` is the true number of program headers.
fn section_zero(phnum: u64) -> Vec<u8> {
    let mut section = vec![0; SHDR_SIZE as usize];
    section[32..40].copy_from_slice(&1u64.to_le_bytes()); // sh_size: one section
    section[44..48].copy_from_slice(&(phnum as u32).to_le_bytes());
    section
}

fn program_header(kind: u32, flags: u32, fields: [u64; 6]) -> Vec<u8> {
    let fields = fields.into_iter().flat_map(u64::to_le_bytes);
    [kind.to_le_bytes(), flags.to_le_bytes()]
        .into_iter()
        .flatten()
        .chain(fields)
        .collect()
}

fn note_header(offset: u64, size: u64) -> Vec<u8> {
    program_header(4, 0, [offset, 0, 0, size, 0, 4])
}

fn load_header(segment: &Segment, offset: u64, saved: u64) -> Vec<u8> {
    let flags =
        u32::from(segment.executable) | u32::from(segment.writable) << 1 | u32::from(segment.readable) << 2;
    program_header(
        1,
        flags,
        [offset, segment.start.0, 0, saved, segment.size, PAGE_SIZE],
    )
}

#[cfg(test)]
mod tests {
    use super::super::reader::MAX_NOTES;
    use super::super::{Core, CoreThread, MappedFile, ProcessInfo, Registers, SigInfo};
    use super::*;
    use backtrail_pt::{FileOffset, Tid};

    fn sample() -> CoreContents {
        let thread = |tid, signal| CoreThread {
            tid: Tid(tid),
            signal,
            registers: Registers {
                rip: 0x40_1000,
                rsp: 0x7fff_0000,
                ..Registers::default()
            },
            siginfo: (signal != 0).then(|| SigInfo::new(signal, 1, Avma(0x10))),
            fpregs: vec![1; 512],
            xstate: vec![2; 832],
        };
        let segment = |start, size, saved, executable: bool| Segment {
            start: Avma(start),
            size,
            saved,
            readable: true,
            writable: !executable,
            executable,
        };
        CoreContents {
            process: ProcessInfo {
                pid: 10,
                name: "demo".to_owned(),
                ..ProcessInfo::default()
            },
            threads: vec![thread(11, 11), thread(10, 0)],
            auxv: vec![(6, 4096)],
            files: vec![MappedFile {
                start: Avma(0x40_0000),
                end: Avma(0x40_2000),
                offset: FileOffset(0),
                path: "/bin/demo".to_owned(),
            }],
            segments: vec![
                segment(0x40_0000, 0x2000, 0x1000, true),
                segment(0x60_0000, 0x20_1000, 0x20_1000, false),
                segment(0x90_0000, 0x3000, 0x3000, false),
            ],
        }
    }

    /// Memory whose bytes depend on their address. It is unreadable from 0x901800 on.
    fn memory(address: Avma, out: &mut [u8]) -> usize {
        let end = if address.0 >= 0x90_0000 {
            0x90_1800u64.saturating_sub(address.0)
        } else {
            u64::MAX
        };
        let len = out.len().min(end as usize);
        for (index, byte) in out[..len].iter_mut().enumerate() {
            *byte = ((address.0 + index as u64) >> 12) as u8;
        }
        len
    }

    #[test]
    fn core_round_trips_and_omits_unreadable_memory() {
        let contents = sample();
        let mut file = io::Cursor::new(Vec::new());
        let saved = write(&mut file, &contents, memory).unwrap();
        assert_eq!(saved, 0x1000 + 0x20_1000 + 0x1800);
        let core = Core::parse(file.into_inner().into(), "core").unwrap();
        let mut expected = contents;
        expected.segments[2].saved = 0x1800;
        assert_eq!(core.contents(), &expected);
        assert_eq!(core.crashed_thread().unwrap().tid, Tid(11));

        let mut bytes = [0; 0x20];
        assert_eq!(core.memory(Avma(0x70_0ff0), &mut bytes), 0x20);
        assert_eq!(
            (bytes[0], bytes[0x1f]),
            (0x00, 0x01),
            "a page of zeros is there, though a hole"
        );
        assert_eq!(
            core.memory(Avma(0x90_17f0), &mut bytes),
            0x10,
            "up to where reading failed"
        );
        assert_eq!(core.memory(Avma(0x40_1000), &mut bytes), 0, "mapped, not saved");
        assert_eq!(core.memory(Avma(0x1000), &mut bytes), 0, "not mapped");
    }

    /// Memory that is all zeros from 0x600000 on, and must not be read there.
    struct Untouched;

    impl Memory for Untouched {
        fn read(&mut self, address: Avma, out: &mut [u8]) -> usize {
            assert!(address.0 < 0x60_0000, "{address} is said to be zeros");
            memory(address, out)
        }

        fn zeros(&mut self, address: Avma, size: u64) -> u64 {
            if address.0 < 0x60_0000 {
                0
            } else {
                size.min(0x3000)
            }
        }
    }

    #[test]
    fn zero_pages_are_saved_without_reading() {
        let mut file = io::Cursor::new(Vec::new());
        let saved = write(&mut file, &sample(), Untouched).unwrap();
        assert_eq!(saved, 0x1000 + 0x20_1000 + 0x3000);
        let core = Core::parse(file.into_inner().into(), "core").unwrap();
        let mut bytes = [1; 16];
        assert_eq!((core.memory(Avma(0x70_0000), &mut bytes), bytes), (16, [0; 16]));
    }

    #[test]
    fn head_of_core_describes_the_whole_core() {
        let mut file = io::Cursor::new(Vec::new());
        write(&mut file, &sample(), memory).unwrap();
        let whole = file.into_inner();
        let size = Core::head_size(&whole[..128]).unwrap();
        assert!(size < whole.len() as u64);
        let head = whole[..size as usize].to_vec();
        let expected = Core::parse(whole.clone().into(), "core").unwrap();
        assert_eq!(
            &Core::parse_head(head.into(), "core").unwrap(),
            expected.contents()
        );
        assert!(Core::parse_head(whole[..200].to_vec().into(), "core").is_err());
        for byte in 0..128 {
            let mut spoilt = whole[..128].to_vec();
            spoilt[byte] ^= 0xff;
            // The result is bounded for any input.
            assert!(Core::head_size(&spoilt).is_none_or(|size| size <= Core::MAX_HEAD));
        }
    }

    #[test]
    fn truncated_core_is_read_or_refused() {
        let mut contents = sample();
        contents.segments.truncate(1);
        let mut file = io::Cursor::new(Vec::new());
        write(&mut file, &contents, memory).unwrap();
        let bytes = file.into_inner();
        let mut refused = 0;
        // The last byte of the file follows all memory.
        for end in 0..bytes.len() - 1 {
            match Core::parse(bytes[..end].to_vec().into(), "core") {
                Ok(core) => assert!(core.contents().segments[0].saved < 0x1000),
                Err(error) => {
                    assert!(error.is_malformed(), "{error}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 1000);
    }

    #[test]
    fn huge_notes_are_refused() {
        let mut file = io::Cursor::new(Vec::new());
        write(&mut file, &sample(), memory).unwrap();
        let mut bytes = file.into_inner();
        // `p_filesz` of the first program header, as a sparse file would state it.
        bytes[96..104].copy_from_slice(&(MAX_NOTES + 1).to_le_bytes());
        let error = Core::parse(bytes.into(), "core").unwrap_err();
        assert!(error.to_string().contains("bytes of notes"), "{error}");
    }

    #[test]
    fn more_segments_than_e_phnum_holds_are_kept() {
        let segment = |index: u64| Segment {
            start: Avma(index * 0x1000),
            size: 0x1000,
            ..Segment::default()
        };
        let segments: Vec<Segment> = (0..70_000).map(segment).collect();
        let contents = CoreContents { segments, ..sample() };
        let mut file = io::Cursor::new(Vec::new());
        write(&mut file, &contents, memory).unwrap();
        let core = Core::parse(file.into_inner().into(), "core").unwrap();
        assert_eq!(core.contents().segments.len(), 70_000);
    }
}
