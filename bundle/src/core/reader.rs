//! Reading a core.

use super::layout::{self, OWNER_CORE, OWNER_LINUX};
use super::{CoreContents, CoreThread, Segment, SigInfo};
use crate::elf::{Elf, Note};
use crate::{Error, Result, SharedBytes};
use backtrail_pt::{Avma, Tid};
use object::elf::{PF_R, PF_W, PF_X};

/// A core, its notes read and its memory at hand.
#[derive(Clone, Debug)]
pub struct Core {
    contents: CoreContents,
    /// The saved bytes of each segment, in the order of `contents.segments`.
    memory: Vec<SharedBytes>,
}

impl Core {
    /// Reads the notes and the memory map; `place` names the file in errors.
    ///
    /// # Errors
    /// Malformed, when this is no core, a note is cut short, areas overlap, or there is no thread.
    /// Memory that a cut file lacks is no error: it counts as not saved.
    pub fn parse(bytes: SharedBytes, place: impl ToString) -> Result<Self> {
        let place = place.to_string();
        let elf = Elf::parse(&bytes, &place)?;
        if !elf.is_core() {
            return Err(Error::malformed(&place, "this ELF file is not a core"));
        }
        let mut contents = CoreContents::default();
        for Note {
            owner,
            kind,
            contents: note,
        } in elf.notes()?
        {
            read_note(&mut contents, owner, kind, note).ok_or_else(|| {
                Error::malformed(
                    &place,
                    format!("the note of type {kind:#x} is cut short or impossible"),
                )
            })?;
        }
        if contents.threads.is_empty() {
            return Err(Error::malformed(&place, "this core has no thread"));
        }
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
                let segment = Segment {
                    start: Avma(load.svma.0),
                    size: load.mem_size,
                    saved: saved.len() as u64,
                    readable: load.flags & PF_R.0 != 0,
                    writable: load.flags & PF_W.0 != 0,
                    executable: load.flags & PF_X.0 != 0,
                };
                (segment, saved)
            })
            .collect();
        areas.sort_by_key(|(segment, _)| segment.start);
        for pair in areas.windows(2) {
            if let [(first, _), (second, _)] = pair
                && second.start - first.start < first.size
            {
                let problem = format!("two memory areas overlap at {}", second.start);
                return Err(Error::malformed(&place, problem));
            }
        }
        let memory;
        (contents.segments, memory) = areas.into_iter().unzip();
        Ok(Self { contents, memory })
    }

    /// What the notes and headers say.
    #[must_use]
    pub fn contents(&self) -> &CoreContents {
        &self.contents
    }

    /// The thread that took the signal: the kernel writes it first.
    #[must_use]
    pub fn crashed_thread(&self) -> Option<&CoreThread> {
        self.contents.threads.first().filter(|thread| thread.signal != 0)
    }

    /// The thread with this id.
    #[must_use]
    pub fn thread(&self, tid: Tid) -> Option<&CoreThread> {
        self.contents.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Copies memory from `address` into `out`; the result says how many bytes were saved without
    /// a gap, 0 when `address` itself was not.
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

    /// The saved bytes of each memory area that has any.
    pub fn saved(&self) -> impl Iterator<Item = (&Segment, &SharedBytes)> {
        self.contents
            .segments
            .iter()
            .zip(&self.memory)
            .filter(|(segment, _)| segment.saved != 0)
    }

    /// What was saved from `address` to the end of its area.
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

/// Adds what a note says; `None`: cut short, or its numbers cannot be.
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
