//! Reads the parts of an ELF file that a bundle needs: load segments, notes and build id.

use crate::{Error, Result, SharedBytes};
use backtrail_pt::{BuildId, FileOffset, Svma};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

/// An x86-64 ELF file whose program headers were parsed.
pub(crate) struct Elf<'a> {
    header: &'a FileHeader64<LittleEndian>,
    segments: &'a [elf::ProgramHeader64<LittleEndian>],
    bytes: &'a SharedBytes,
    place: String,
}

/// A `PT_LOAD` segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// `p_vaddr`.
    pub(crate) svma: Svma,
    /// `p_offset`.
    pub(crate) offset: FileOffset,
    /// `p_filesz`.
    pub(crate) file_size: u64,
    /// `p_memsz`.
    pub(crate) mem_size: u64,
    /// `p_flags`.
    pub(crate) flags: u32,
}

/// An ELF note.
pub(crate) struct Note<'a> {
    /// The name of the note's owner, without the NUL.
    pub(crate) owner: &'a [u8],
    /// `n_type`.
    pub(crate) kind: u32,
    /// The note's contents (`n_desc`).
    pub(crate) contents: &'a [u8],
}

const ENDIAN: LittleEndian = LittleEndian;

/// Returns whether these bytes begin like an ELF file.
pub(crate) fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(&elf::ELFMAG)
}

impl<'a> Elf<'a> {
    /// Reads the headers. `place` names the file in errors.
    pub(crate) fn parse(bytes: &'a SharedBytes, place: impl ToString) -> Result<Self> {
        let place = place.to_string();
        let data: &[u8] = bytes;
        let refuse = |problem: String| Error::malformed(&place, problem);
        if !is_elf(data) {
            return Err(refuse("this is not an ELF file".to_owned()));
        }
        if data
            .get(4..6)
            .is_some_and(|kind| kind != [elf::ELFCLASS64.0, elf::ELFDATA2LSB.0])
        {
            return Err(Error::unsupported(
                &place,
                "only 64-bit little-endian ELF files can be traced",
            ));
        }
        let bad = |error: object::read::Error| refuse(format!("the ELF headers are damaged ({error})"));
        let header = FileHeader64::<LittleEndian>::parse(data).map_err(bad)?;
        if header.e_machine(ENDIAN) != elf::EM_X86_64 {
            return Err(Error::unsupported(&place, "this ELF file is not for x86-64"));
        }
        let segments = header.program_headers(ENDIAN, data).map_err(bad)?;
        Ok(Self {
            header,
            segments,
            bytes,
            place,
        })
    }

    /// Returns whether the file is a core.
    pub(crate) fn is_core(&self) -> bool {
        self.header.e_type(ENDIAN) == elf::ET_CORE
    }

    /// Returns the `PT_LOAD` segments, in the order of the program headers.
    pub(crate) fn loads(&self) -> impl Iterator<Item = Load> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type(ENDIAN) == elf::PT_LOAD)
            .map(|segment| Load {
                svma: Svma(segment.p_vaddr(ENDIAN)),
                offset: FileOffset(segment.p_offset(ENDIAN)),
                file_size: segment.p_filesz(ENDIAN),
                mem_size: segment.p_memsz(ENDIAN),
                flags: segment.p_flags(ENDIAN).0,
            })
    }

    /// Returns the stated address of the lowest `PT_LOAD`.
    pub(crate) fn lowest_load(&self) -> Result<Svma> {
        let lowest = self.loads().map(|load| load.svma).min();
        lowest.ok_or_else(|| Error::malformed(&self.place, "this ELF file has no PT_LOAD segment"))
    }

    /// Returns the size of all `PT_NOTE` segments in bytes.
    pub(crate) fn notes_size(&self) -> u64 {
        let notes = self.segments.iter();
        let notes = notes.filter(|segment| segment.p_type(ENDIAN) == elf::PT_NOTE);
        notes.fold(0, |total: u64, segment| {
            total.saturating_add(segment.p_filesz(ENDIAN))
        })
    }

    /// Calls `visit` for each note of the `PT_NOTE` segments until it returns `false`. A file may
    /// have millions of notes.
    ///
    /// # Errors
    /// Fails if a note is truncated, or if `visit` fails.
    pub(crate) fn each_note(&self, mut visit: impl FnMut(Note<'a>) -> Result<bool>) -> Result<()> {
        let data: &'a [u8] = self.bytes;
        let damaged = |_| Error::malformed(&self.place, "a note of this ELF file is truncated");
        // Segments that share bytes could yield any number of notes from a small file.
        if self.notes_size() > data.len() as u64 {
            return Err(Error::malformed(
                &self.place,
                "its notes are larger than the file",
            ));
        }
        for segment in self.segments {
            let Some(mut notes) = segment.notes(ENDIAN, data).map_err(damaged)? else {
                continue;
            };
            while let Some(note) = notes.next().map_err(damaged)? {
                let goes_on = visit(Note {
                    owner: note.name(),
                    kind: note.n_type(ENDIAN).0,
                    contents: note.desc(),
                })?;
                if !goes_on {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns the build id, if the file has one.
    pub(crate) fn build_id(&self) -> Option<BuildId> {
        const NT_GNU_BUILD_ID: u32 = 3;
        let mut found = None;
        let take = |note: Note<'_>| {
            let is_id = note.owner == b"GNU" && note.kind == NT_GNU_BUILD_ID;
            if is_id {
                found = BuildId::new(note.contents);
            }
            Ok(!is_id)
        };
        self.each_note(take).ok()?;
        found
    }
}
