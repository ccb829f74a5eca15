//! Reads bytes of a file that no program may change while it runs.

use crate::source::Elf;
use object::LittleEndian;
use object::elf::{DF_TEXTREL, DT_FLAGS, DT_TEXTREL, PF_W, PT_DYNAMIC, PT_LOAD};
use object::read::elf::{Dyn, ProgramHeader};

/// The segments mapped without write permission (ELF specification, part 2, "Program Header"),
/// ordered by address. Empty if the dynamic linker writes to them anyway (`DT_TEXTREL`).
#[derive(Default)]
pub(crate) struct Constants<'d> {
    segments: Vec<(u64, &'d [u8])>,
}

impl<'d> Constants<'d> {
    pub fn of(elf: &Elf<'d>) -> Self {
        if is_relocated(elf) {
            return Self::default();
        }
        let headers = elf.elf_program_headers().iter();
        let constant = headers.filter(|header| {
            header.p_type(LittleEndian) == PT_LOAD && header.p_flags(LittleEndian).0 & PF_W.0 == 0
        });
        let mut segments: Vec<_> = constant
            .filter_map(|header| {
                let bytes = header.data(LittleEndian, elf.data()).ok()?;
                Some((header.p_vaddr(LittleEndian), bytes))
            })
            .collect();
        segments.sort_by_key(|(start, _)| *start);
        Self { segments }
    }

    /// Returns the bytes from `at` to the end of the segment.
    pub fn from(&self, at: u64) -> Option<&'d [u8]> {
        let next = self.segments.partition_point(|(start, _)| *start <= at);
        let (start, bytes) = self.segments.get(next.checked_sub(1)?)?;
        let rest = bytes.get(usize::try_from(at - start).ok()?..)?;
        Some(rest).filter(|rest| !rest.is_empty())
    }
}

/// Returns whether the dynamic linker changes read-only segments.
fn is_relocated(elf: &Elf) -> bool {
    let mut headers = elf.elf_program_headers().iter();
    let dynamic = headers.find(|header| header.p_type(LittleEndian) == PT_DYNAMIC);
    let entries = dynamic.and_then(|header| header.dynamic(LittleEndian, elf.data()).ok().flatten());
    entries.unwrap_or_default().iter().any(|entry| {
        let tag = entry.d_tag(LittleEndian);
        tag == DT_TEXTREL || tag == DT_FLAGS && entry.d_val(LittleEndian) & DF_TEXTREL.0 != 0
    })
}
