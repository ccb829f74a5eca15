//! Reads an ELF core.

use super::layout::{self, OWNER_CORE, OWNER_LINUX};
use super::{CoreContents, CoreThread, Segment, SigInfo};
use crate::elf::{Elf, Load, Note};
use crate::{Error, Result, SharedBytes};
use backtrail_pt::{Avma, Tid};
use object::elf::{PF_R, PF_W, PF_X};
use std::collections::HashMap;

/// The largest accepted size of all notes: those of about 20,000 threads with all registers.
pub(super) const MAX_NOTES: u64 = 256 << 20;

/// A core whose notes were parsed and whose memory can be read.
#[derive(Clone, Debug)]
pub struct Core {
    contents: CoreContents,
    /// The saved bytes of each segment, in the order of `contents.segments`.
    memory: Vec<SharedBytes>,
    /// Indexes into `contents.threads`. If several threads have the same id, the first one is
    /// listed.
    by_tid: HashMap<Tid, usize>,
}

impl Core {
    /// The largest accepted size of a core's headers and notes.
    pub const MAX_HEAD: u64 = 256 << 20;

    /// Returns how many bytes at the start of a core hold headers and notes. `first` holds at least
    /// the core's first 128 bytes. Returns `None` if they are not a core as the kernel writes it.
    #[must_use]
    pub fn head_size(first: &[u8]) -> Option<u64> {
        /// `Elf64_Phdr.p_type`, `p_offset` and `p_filesz` of the first program header, which
        /// follows `Elf64_Ehdr`.
        const KIND: usize = 64;
        const OFFSET: usize = 64 + 8;
        const FILE_SIZE: usize = 64 + 32;
        const PT_NOTE: u64 = 4;
        let word = |at: usize| Some(u64::from_le_bytes(first.get(at..at + 8)?.try_into().ok()?));
        let is_core = first.starts_with(b"\x7fELF\x02\x01") && first.get(16..18)? == [4, 0];
        let notes_first = word(32)? == 64 && word(KIND)? & 0xffff_ffff == PT_NOTE;
        let size = word(OFFSET)?.checked_add(word(FILE_SIZE)?)?;
        (is_core && notes_first && size <= Self::MAX_HEAD).then_some(size)
    }

    /// Reads the headers and notes of a core ([`Self::head_size`]) without its memory.
    /// [`Segment::saved`] is the size that the headers state.
    ///
    /// # Errors
    /// Fails as [`Self::parse`] does.
    pub fn parse_head(bytes: SharedBytes, place: impl ToString) -> Result<CoreContents> {
        let place = place.to_string();
        let (elf, mut contents) = read_notes(&bytes, &place)?;
        contents.segments = elf
            .loads()
            .map(|load| segment(&load, load.file_size.min(load.mem_size)))
            .collect();
        contents.segments.sort_by_key(|segment| segment.start);
        refuse_overlaps(&contents.segments, &place)?;
        Ok(contents)
    }

    /// Reads the notes and the memory map. `place` names the file in errors.
    ///
    /// # Errors
    /// Fails if the file is not a core, if a note is truncated, if areas overlap, or if there is no
    /// thread. Memory missing from a truncated file is not an error: it counts as not saved.
    pub fn parse(bytes: SharedBytes, place: impl ToString) -> Result<Self> {
        let place = place.to_string();
        let (elf, mut contents) = read_notes(&bytes, &place)?;
        let mut areas: Vec<(Segment, SharedBytes)> = elf
            .loads()
            .map(|load| {
                let end = load
                    .offset
                    .0
                    .saturating_add(load.file_size.min(load.mem_size))
                    .min(bytes.len() as u64);
                let saved = bytes
                    .slice(load.offset.0.min(end)..end)
                    .unwrap_or_else(|| Vec::new().into());
                (segment(&load, saved.len() as u64), saved)
            })
            .collect();
        areas.sort_by_key(|(segment, _)| segment.start);
        let memory;
        (contents.segments, memory) = areas.into_iter().unzip();
        refuse_overlaps(&contents.segments, &place)?;
        let mut by_tid = HashMap::with_capacity(contents.threads.len());
        for (index, thread) in contents.threads.iter().enumerate() {
            by_tid.entry(thread.tid).or_insert(index);
        }
        Ok(Self {
            contents,
            memory,
            by_tid,
        })
    }

    /// Returns the contents of the notes and headers.
    #[must_use]
    pub fn contents(&self) -> &CoreContents {
        &self.contents
    }

    /// Returns the thread that received the signal. The kernel writes it first.
    #[must_use]
    pub fn crashed_thread(&self) -> Option<&CoreThread> {
        self.contents.threads.first().filter(|thread| thread.signal != 0)
    }

    /// Returns the thread with this id.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&CoreThread> {
        self.contents.threads.get(*self.by_tid.get(&tid)?)
    }

    /// Copies memory at `address` into `out`. Returns how many contiguous bytes were saved there,
    /// or 0 if `address` was not saved.
    pub fn memory(&self, address: Avma, out: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let saved = self.saved_from(address + filled as u64);
            let count = saved.len().min(rest.len());
            if count == 0 {
                break;
            }
            if let (Some(to), Some(from)) = (rest.get_mut(..count), saved.get(..count)) {
                to.copy_from_slice(from);
            }
            filled += count;
        }
        filled
    }

    /// Returns each memory area that has saved bytes, and those bytes.
    pub fn saved(&self) -> impl Iterator<Item = (&Segment, &SharedBytes)> {
        self.contents
            .segments
            .iter()
            .zip(&self.memory)
            .filter(|(segment, _)| segment.saved != 0)
    }

    /// Returns the bytes saved from `address` to the end of its area.
    fn saved_from(&self, address: Avma) -> &[u8] {
        let index = self
            .contents
            .segments
            .partition_point(|segment| segment.start <= address);
        let found = index.checked_sub(1).and_then(|index| {
            let (segment, memory) = (self.contents.segments.get(index)?, self.memory.get(index)?);
            memory.get(usize::try_from(address - segment.start).ok()?..)
        });
        found.unwrap_or_default()
    }
}

/// Parses the file and its notes.
fn read_notes<'a>(bytes: &'a SharedBytes, place: &str) -> Result<(Elf<'a>, CoreContents)> {
    let elf = Elf::parse(bytes, place)?;
    if !elf.is_core() {
        return Err(Error::malformed(place, "this ELF file is not a core"));
    }
    // A sparse file, such as an unpacked one, may be much larger than its data.
    if elf.notes_size() > MAX_NOTES {
        let problem = format!("this core has more than {MAX_NOTES} bytes of notes");
        return Err(Error::malformed(place, problem));
    }
    if elf.is_32_bit() {
        let problem = "this is the core of a 32-bit process; only cores of 64-bit processes can be read";
        return Err(Error::unsupported(place, problem));
    }
    let mut contents = CoreContents::default();
    elf.each_note(
        |Note {
             owner,
             kind,
             contents: note,
         }| {
            let read = read_note(&mut contents, owner, kind, note);
            read.map(|()| true).ok_or_else(|| {
                let problem = format!("the note of type {kind:#x} is truncated or malformed");
                Error::malformed(place, problem)
            })
        },
    )?;
    if contents.threads.is_empty() {
        return Err(Error::malformed(place, "this core has no thread"));
    }
    Ok((elf, contents))
}

fn segment(load: &Load, saved: u64) -> Segment {
    Segment {
        start: Avma(load.svma.0),
        size: load.mem_size,
        saved,
        readable: load.flags & PF_R.0 != 0,
        writable: load.flags & PF_W.0 != 0,
        executable: load.flags & PF_X.0 != 0,
    }
}

/// Refuses overlapping areas. `segments` are in address order.
fn refuse_overlaps(segments: &[Segment], place: &str) -> Result<()> {
    for pair in segments.windows(2) {
        if let [first, second] = pair
            && second.start - first.start < first.size
        {
            let problem = format!("two memory areas overlap at {}", second.start);
            return Err(Error::malformed(place, problem));
        }
    }
    Ok(())
}

/// Adds a note's contents. Returns `None` if the note is truncated or its numbers are impossible.
///
/// The notes of a thread follow its `NT_PRSTATUS`.
fn read_note(contents: &mut CoreContents, owner: &[u8], kind: u32, note: &[u8]) -> Option<()> {
    let thread = contents.threads.last_mut();
    match (owner, kind) {
        (OWNER_CORE, layout::NT_PRSTATUS) => contents.threads.push(layout::decode_prstatus(note)?),
        (OWNER_CORE, layout::NT_PRPSINFO) => contents.process = layout::decode_prpsinfo(note)?,
        (OWNER_CORE, layout::NT_AUXV) => contents.auxv = layout::decode_auxv(note),
        (OWNER_CORE, layout::NT_FILE) => contents.files = layout::decode_files(note)?,
        (OWNER_CORE, layout::NT_SIGINFO) => {
            let bytes = note.get(..SigInfo::SIZE)?.try_into().ok()?;
            thread?.siginfo = Some(SigInfo(bytes));
        }
        (OWNER_CORE, layout::NT_FPREGSET) => thread?.fpregs = note.to_vec(),
        (OWNER_LINUX, layout::NT_X86_XSTATE) => thread?.xstate = note.to_vec(),
        _ => {}
    }
    Some(())
}
