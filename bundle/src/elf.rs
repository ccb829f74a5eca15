//! Reads the parts of an ELF file that a bundle needs: load segments, notes and build id.

use crate::{Error, Result, SharedBytes};
use backtrail_pt::{BuildId, FileOffset, Svma};
use object::LittleEndian;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};

/// An x86 ELF file whose program headers were parsed: of 64-bit code, or of 32-bit code.
pub(crate) struct Elf<'a> {
    is_core: bool,
    segments: Segments<'a>,
    bytes: &'a SharedBytes,
    place: String,
}

/// The program headers in the layout of the file's class.
enum Segments<'a> {
    Bits32(&'a [elf::ProgramHeader32<LittleEndian>]),
    Bits64(&'a [elf::ProgramHeader64<LittleEndian>]),
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
        let bad = |error: object::read::Error| refuse(format!("the ELF headers are damaged ({error})"));
        let class = Class::of(data.get(4..6).unwrap_or_default());
        let (kind, machine, segments) = match class {
            Some(Class::Bits32) => {
                let header = FileHeader32::<LittleEndian>::parse(data).map_err(bad)?;
                let segments = header.program_headers(ENDIAN, data).map_err(bad)?;
                (
                    header.e_type(ENDIAN),
                    header.e_machine(ENDIAN),
                    Segments::Bits32(segments),
                )
            }
            Some(Class::Bits64) => {
                let header = FileHeader64::<LittleEndian>::parse(data).map_err(bad)?;
                let segments = header.program_headers(ENDIAN, data).map_err(bad)?;
                (
                    header.e_type(ENDIAN),
                    header.e_machine(ENDIAN),
                    Segments::Bits64(segments),
                )
            }
            // A file may end before the class.
            None if data.len() < 6 => {
                return Err(refuse("the ELF headers are damaged (truncated)".to_owned()));
            }
            None => return Err(Error::unsupported(&place, Class::UNSUPPORTED)),
        };
        if !class.is_some_and(|class| class.fits(machine.0)) {
            return Err(Error::unsupported(&place, Class::OTHER_MACHINE));
        }
        Ok(Self {
            is_core: kind == elf::ET_CORE,
            segments,
            bytes,
            place,
        })
    }

    /// Returns whether the file is a core.
    pub(crate) fn is_core(&self) -> bool {
        self.is_core
    }

    /// Returns whether the file has 32-bit headers.
    pub(crate) fn is_32_bit(&self) -> bool {
        matches!(self.segments, Segments::Bits32(_))
    }

    /// Returns the `PT_LOAD` segments, in the order of the program headers.
    pub(crate) fn loads(&self) -> impl Iterator<Item = Load> {
        let (short, long) = match self.segments {
            Segments::Bits32(segments) => (segments, &[][..]),
            Segments::Bits64(segments) => (&[][..], segments),
        };
        short.iter().filter_map(load).chain(long.iter().filter_map(load))
    }

    /// Returns the stated address of the lowest `PT_LOAD`.
    pub(crate) fn lowest_load(&self) -> Result<Svma> {
        let lowest = self.loads().map(|load| load.svma).min();
        lowest.ok_or_else(|| Error::malformed(&self.place, "this ELF file has no PT_LOAD segment"))
    }

    /// Returns the size of all `PT_NOTE` segments in bytes.
    pub(crate) fn notes_size(&self) -> u64 {
        match self.segments {
            Segments::Bits32(segments) => notes_size(segments),
            Segments::Bits64(segments) => notes_size(segments),
        }
    }

    /// Calls `visit` for each note of the `PT_NOTE` segments until it returns `false`. A file may
    /// have millions of notes.
    ///
    /// # Errors
    /// Fails if a note is truncated, or if `visit` fails.
    pub(crate) fn each_note(&self, visit: impl FnMut(Note<'a>) -> Result<bool>) -> Result<()> {
        match self.segments {
            Segments::Bits32(segments) => self.notes_of(segments, visit),
            Segments::Bits64(segments) => self.notes_of(segments, visit),
        }
    }

    fn notes_of<P: ProgramHeader<Endian = LittleEndian>>(
        &self,
        segments: &'a [P],
        mut visit: impl FnMut(Note<'a>) -> Result<bool>,
    ) -> Result<()> {
        let data: &'a [u8] = self.bytes;
        let damaged = |_| Error::malformed(&self.place, "a note of this ELF file is truncated");
        // Segments that share bytes could yield any number of notes from a small file.
        if self.notes_size() > data.len() as u64 {
            return Err(Error::malformed(
                &self.place,
                "its notes are larger than the file",
            ));
        }
        for segment in segments {
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

/// Returns the size of the `PT_NOTE` segments among these.
fn notes_size<P: ProgramHeader<Endian = LittleEndian>>(segments: &[P]) -> u64 {
    let notes = segments
        .iter()
        .filter(|segment| segment.p_type(ENDIAN) == elf::PT_NOTE);
    notes.fold(0, |total: u64, segment| {
        total.saturating_add(segment.p_filesz(ENDIAN).into())
    })
}

/// Returns a segment as a [`Load`], if it is one.
fn load<P: ProgramHeader<Endian = LittleEndian>>(segment: &P) -> Option<Load> {
    (segment.p_type(ENDIAN) == elf::PT_LOAD).then(|| Load {
        svma: Svma(segment.p_vaddr(ENDIAN).into()),
        offset: FileOffset(segment.p_offset(ENDIAN).into()),
        file_size: segment.p_filesz(ENDIAN).into(),
        mem_size: segment.p_memsz(ENDIAN).into(),
        flags: segment.p_flags(ENDIAN).0,
    })
}

/// The class of an ELF file for an x86 processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 32-bit headers: of 32-bit code, or of 64-bit code with 32-bit pointers (x32).
    Bits32,
    /// 64-bit headers.
    Bits64,
}

impl Class {
    /// The problem of a file without such a class.
    pub(crate) const UNSUPPORTED: &str = "only little-endian ELF files can be traced";
    /// The problem of a file for another machine.
    pub(crate) const OTHER_MACHINE: &str = "this ELF file is not for x86-64 or i386";

    /// Returns the class that `e_ident[EI_CLASS..=EI_DATA]` states, if it is supported.
    pub(crate) fn of(ident: &[u8]) -> Option<Self> {
        match *ident {
            [class, data] if data == elf::ELFDATA2LSB.0 => match class {
                class if class == elf::ELFCLASS32.0 => Some(Self::Bits32),
                class if class == elf::ELFCLASS64.0 => Some(Self::Bits64),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns whether files of this class may state the machine `e_machine`.
    pub(crate) fn fits(self, machine: u16) -> bool {
        machine == elf::EM_X86_64.0 || self == Self::Bits32 && machine == elf::EM_386.0
    }
}
