//! The DWARF sections of a file.

use crate::source::{Elf, Source};
use gimli::LittleEndian;

/// Bytes of a section.
pub(crate) type Slice<'d> = gimli::EndianSlice<'d, LittleEndian>;

/// The DWARF sections of a file.
pub(super) type Dwarf<'d> = gimli::Dwarf<Slice<'d>>;

/// Returns the DWARF sections of a file.
pub(super) fn load<'d>(source: &'d Source, elf: &Elf<'d>) -> Dwarf<'d> {
    let section = |id: gimli::SectionId| Slice::new(source.section(elf, id.name()), LittleEndian);
    let loaded = Dwarf::load(|id| Ok::<_, std::convert::Infallible>(section(id)));
    match loaded {
        Ok(dwarf) => dwarf,
    }
}
