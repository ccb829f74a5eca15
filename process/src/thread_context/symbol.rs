//! How code of an ELF file computes the address of the variable `otel_thread_ctx_v1`.
//!
//! The loader stores what the code needs in a word or two of the file's data, which a relocation
//! names. The type of the relocation is the access model ("System V ABI for x86-64" and
//! "Thread-Local Storage Descriptors"):
//!
//! | relocation | stored words |
//! |---|---|
//! | `R_X86_64_TLSDESC` | a function, and its argument (general dynamic, GNU2 dialect) |
//! | `R_X86_64_DTPMOD64` | a module, and an offset in its block (general dynamic, GNU dialect) |
//! | `R_X86_64_TPOFF64` | an offset from the thread pointer (initial exec) |
//! | none, in an executable | the offset is known to the linker (local exec) |
//!
//! A relocation names the symbol. If the linker binds the symbol to the file itself, there is no
//! name. The addend is then the variable's place in the file's block.

use object::LittleEndian;
use object::elf::{
    DF_1_PIE, DT_FLAGS_1, ET_EXEC, FileHeader64, PT_INTERP, PT_TLS, R_X86_64_DTPMOD64, R_X86_64_TLSDESC,
    R_X86_64_TPOFF64, SHN_UNDEF, SHT_DYNSYM, SHT_RELA, SHT_SYMTAB, STT_TLS,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, SectionTable, Sym};
use object::read::{ReadRef, SectionIndex};

/// The name of the variable.
const NAME: &[u8] = b"otel_thread_ctx_v1";
/// The size of the variable, a pointer.
const SIZE: u64 = 8;
/// Maximum bytes of a symbol table, string table or relocation section that is read.
const MAX_SECTION: u64 = 64 << 20;
/// Maximum number of sections, as in [`crate::load_segments`] of program headers.
const MAX_SECTIONS: usize = 4096;

type Header = FileHeader64<LittleEndian>;
type Section = <Header as FileHeader>::SectionHeader;
const ENDIAN: LittleEndian = LittleEndian;

/// An access model of the variable. Addresses are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsAccess {
    /// The descriptor at this address has the argument in its second word.
    Descriptor {
        /// The address of the descriptor.
        address: u64,
    },
    /// The two words at this address are a module, and an offset in its block.
    ModuleAndOffset {
        /// The address of the first word.
        address: u64,
        /// The required offset, if the relocation does not name the variable.
        offset: Option<u64>,
    },
    /// The word at this address is the offset from the thread pointer.
    StoredOffset {
        /// The address of the word.
        address: u64,
    },
    /// The offset from the thread pointer.
    FixedOffset(i64),
}

/// Finds the access model of the variable in a file, or returns `None` if the file does not use the
/// variable, or in another way.
pub fn find<'data>(data: impl ReadRef<'data>) -> Option<TlsAccess> {
    let header = Header::parse(data).ok()?;
    let sections = header.sections(ENDIAN, data).ok()?;
    if sections.len() > MAX_SECTIONS {
        return None;
    }
    let dynamic = find_symbol(&sections, data, SHT_DYNSYM);
    if let Some((table, symbol)) = &dynamic
        && let Some(access) = by_relocation(&sections, data, *table, symbol)
    {
        return Some(access);
    }
    if !is_executable(header, data) {
        return None;
    }
    // A static executable has no dynamic symbols.
    let symbol = dynamic.map(|(_, symbol)| symbol);
    let symbol = symbol.or_else(|| Some(find_symbol(&sections, data, SHT_SYMTAB)?.1))?;
    let segments = header.program_headers(ENDIAN, data).ok()?;
    let block = segments.iter().find(|segment| segment.p_type(ENDIAN) == PT_TLS)?;
    fixed_offset(
        symbol.value?,
        block.p_vaddr(ENDIAN),
        block.p_memsz(ENDIAN),
        block.p_align(ENDIAN),
    )
}

/// The variable in a symbol table.
struct Variable {
    index: usize,
    /// The offset in the block of the file, if the file defines the variable.
    value: Option<u64>,
}

fn is_small(section: &Section) -> bool {
    section.sh_size(ENDIAN) <= MAX_SECTION
}

/// Finds the variable in the symbol tables of a type, with the index of the table.
fn find_symbol<'data, R: ReadRef<'data>>(
    sections: &SectionTable<'data, Header, R>,
    data: R,
    kind: object::elf::SectionType,
) -> Option<(SectionIndex, Variable)> {
    let (table, section) = sections
        .enumerate()
        .find(|(_, section)| section.sh_type(ENDIAN) == kind)?;
    let strings = sections.section(section.link(ENDIAN)).ok()?;
    if !is_small(section) || !is_small(strings) {
        return None;
    }
    // Most files do not have the name, so their symbols are not read.
    let strings = strings.data(ENDIAN, data).ok()?;
    let names: Vec<usize> = memchr::memmem::find_iter(strings, NAME)
        .filter(|at| strings.get(at + NAME.len()) == Some(&0))
        .take(16)
        .collect();
    if names.is_empty() {
        return None;
    }
    let symbols: &[<Header as FileHeader>::Sym] = section.data_as_array(ENDIAN, data).ok()?;
    let is_variable = |symbol: &&<Header as FileHeader>::Sym| {
        symbol.st_type() == STT_TLS && names.contains(&(symbol.st_name(ENDIAN) as usize))
    };
    let index = symbols.iter().position(|symbol| is_variable(&symbol))?;
    let symbol = symbols.get(index)?;
    let is_defined = symbol.st_shndx(ENDIAN) != SHN_UNDEF;
    if is_defined && symbol.st_size(ENDIAN) != SIZE {
        return None;
    }
    let value = is_defined.then(|| symbol.st_value(ENDIAN));
    Some((table, Variable { index, value }))
}

/// Returns the access model of the best relocation of the variable.
fn by_relocation<'data, R: ReadRef<'data>>(
    sections: &SectionTable<'data, Header, R>,
    data: R,
    table: SectionIndex,
    variable: &Variable,
) -> Option<TlsAccess> {
    let of_table = |section: &&Section| {
        section.sh_type(ENDIAN) == SHT_RELA && section.link(ENDIAN) == table && is_small(section)
    };
    let mut found: Option<(u8, TlsAccess)> = None;
    for section in sections.iter().filter(of_table) {
        let relocations: &[<Header as FileHeader>::Rela] = section.data_as_array(ENDIAN, data).ok()?;
        for relocation in relocations {
            let Some(access) = access_of(relocation, variable) else {
                continue;
            };
            if found.is_none_or(|(best, _)| access.0 < best) {
                found = Some(access);
            }
        }
    }
    found.map(|(_, access)| access)
}

/// Returns the access model of a relocation, and its rank. `None`: it is not one of the variable.
fn access_of(relocation: &<Header as FileHeader>::Rela, variable: &Variable) -> Option<(u8, TlsAccess)> {
    let address = relocation.r_offset(ENDIAN);
    let kind = relocation.r_type(ENDIAN, false);
    let symbol = relocation.r_sym(ENDIAN, false);
    let addend = relocation.r_addend(ENDIAN);
    let is_named = symbol as usize == variable.index && addend == 0;
    let is_local = symbol == 0 && variable.value.is_some();
    let is_at_value = is_local && variable.value == u64::try_from(addend).ok();
    match kind {
        R_X86_64_TLSDESC if is_named || is_at_value => Some((0, TlsAccess::Descriptor { address })),
        R_X86_64_DTPMOD64 if is_named => Some((
            1,
            TlsAccess::ModuleAndOffset {
                address,
                offset: None,
            },
        )),
        R_X86_64_TPOFF64 if is_named || is_at_value => Some((2, TlsAccess::StoredOffset { address })),
        // The file's own module: its id is the same for all variables of the file.
        R_X86_64_DTPMOD64 if is_local => {
            let offset = variable.value;
            Some((3, TlsAccess::ModuleAndOffset { address, offset }))
        }
        _ => None,
    }
}

/// Returns the offset of a variable in the block of the executable from the thread pointer. The
/// block ends there, at an address that its alignment allows (variant II of "ELF Handling For
/// Thread-Local Storage").
fn fixed_offset(value: u64, start: u64, size: u64, align: u64) -> Option<TlsAccess> {
    let align = align.max(1);
    if !align.is_power_of_two() || value.checked_add(SIZE)? > size {
        return None;
    }
    let below = size.checked_add(start.wrapping_add(size).wrapping_neg() & (align - 1))?;
    let below = i64::try_from(below).ok()?;
    Some(TlsAccess::FixedOffset(i64::try_from(value).ok()? - below))
}

/// Returns whether this is an executable, and not a library.
fn is_executable<'data>(header: &Header, data: impl ReadRef<'data>) -> bool {
    let Ok(segments) = header.program_headers(ENDIAN, data) else {
        return false;
    };
    if header.e_type(ENDIAN) == ET_EXEC {
        return true;
    }
    segments.iter().any(|segment| {
        let dynamic = segment.dynamic(ENDIAN, data).ok().flatten().unwrap_or_default();
        let is_pie = |entry: &<Header as FileHeader>::Dyn| {
            entry.d_tag(ENDIAN) == DT_FLAGS_1 && entry.d_val(ENDIAN) & DF_1_PIE.0 != 0
        };
        segment.p_type(ENDIAN) == PT_INTERP || dynamic.iter().any(is_pie)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_of_the_executable_ends_at_the_thread_pointer() {
        let offset = |value, start, size, align| match fixed_offset(value, start, size, align) {
            Some(TlsAccess::FixedOffset(offset)) => Some(offset),
            _ => None,
        };
        assert_eq!(offset(0, 0x3db0, 8, 8), Some(-8));
        assert_eq!(offset(0x18, 0x3db0, 0x21, 8), Some(0x18 - 0x28));
        // The start of the block is not aligned: its address has the same remainder.
        assert_eq!(offset(0, 0x10, 0x28, 0x40), Some(-0x30));
        assert_eq!(offset(0, 0, 8, 0), Some(-8));
        assert_eq!(offset(1, 0, 8, 8), None, "outside of the block");
        assert_eq!(offset(u64::MAX, 0, 8, 8), None);
        assert_eq!(offset(0, 0, 8, 3), None);
        assert_eq!(offset(0, 0, u64::MAX, 1), None);
    }

    #[test]
    fn other_files_have_no_variable() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(find(&*program), None);
        for len in [0, 4, 64, 1000, program.len() / 2] {
            assert_eq!(find(&program[..len]), None, "{len}");
        }
        assert_eq!(find(&b"not an ELF file"[..]), None);
    }
}
