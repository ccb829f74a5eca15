//! Names the stubs in `.plt`, `.plt.sec` and `.plt.got` by their targets (x86-64 psABI, section
//! "Procedure Linkage Table").

use crate::FunctionKind;
use crate::source::Elf;
use crate::symbol::Symbol;
use object::read::elf::Rela;
use object::{LittleEndian, Object, ObjectSection, elf};
use rustc_hash::FxHashMap;
use std::ops::Range;

/// A PLT stub.
pub(crate) struct Stub<'d> {
    pub range: Range<u64>,
    /// The linkage name of the target function.
    pub target: &'d [u8],
}

/// Returns the stubs of `elf`. `symbols`, sorted by start, name the resolvers of `IRELATIVE` slots.
pub(crate) fn stubs<'d>(elf: &Elf<'d>, symbols: &[Symbol<'d>]) -> Vec<Stub<'d>> {
    let slots = slots(elf, symbols);
    let mut stubs = Vec::new();
    // A genuine file names each target about once.
    let mut name_bytes = elf.data().len();
    for name in [".plt", ".plt.sec", ".plt.got", ".iplt"] {
        let Some(section) = elf.section_by_name(name) else {
            continue;
        };
        let Ok(data) = section.data() else { continue };
        let entry_size = match section.elf_section_header().sh_entsize.get(LittleEndian) {
            8 => 8,
            _ => 16,
        };
        for (number, code) in (0..).zip(data.chunks_exact(entry_size)) {
            let offset = entry_size as u64 * number;
            let Some(address) = section.address().checked_add(offset) else {
                break;
            };
            let Some(end) = address.checked_add(entry_size as u64) else {
                break;
            };
            let target = slot_of(address, code)
                .and_then(|slot| slots.by_address.get(&slot))
                .or_else(|| slots.lazy.get(pushed_index(code)?))
                .or_else(|| is_header(code).then_some(&RESOLVER));
            if let Some(target) = target.filter(|target| !target.is_empty()) {
                let Some(left) = name_bytes.checked_sub(target.len()) else {
                    return stubs;
                };
                name_bytes = left;
                stubs.push(Stub {
                    range: address..end,
                    target,
                });
            }
        }
    }
    stubs
}

/// The names of the symbols in the slots of the global offset table.
#[derive(Default)]
struct GotSlots<'d> {
    by_address: FxHashMap<u64, &'d [u8]>,
    /// Names in the order of `.rela.plt`, by the index that a lazy stub pushes.
    lazy: Vec<&'d [u8]>,
}

fn slots<'d>(elf: &Elf<'d>, symbols: &[Symbol<'d>]) -> GotSlots<'d> {
    let mut slots = GotSlots::default();
    let table = elf.elf_dynamic_symbol_table();
    for section in elf.sections() {
        let name = section.name().unwrap_or_default();
        if !matches!(name, ".rela.plt" | ".rela.dyn" | ".rela.iplt") {
            continue;
        }
        let Ok(Some((relocations, _))) =
            object::read::elf::SectionHeader::rela(section.elf_section_header(), LittleEndian, elf.data())
        else {
            continue;
        };
        for relocation in relocations {
            let target = match relocation.r_type(LittleEndian, false) {
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT => relocation
                    .symbol(LittleEndian, false)
                    .and_then(|index| table.symbol(index).ok())
                    .and_then(|symbol| table.symbol_name(LittleEndian, symbol).ok()),
                elf::R_X86_64_IRELATIVE => resolver_name(symbols, relocation.r_addend(LittleEndian) as u64),
                _ => None,
            };
            let target = target.unwrap_or_default();
            if name == ".rela.plt" {
                slots.lazy.push(target);
            }
            slots.by_address.insert(relocation.r_offset(LittleEndian), target);
        }
    }
    slots
}

/// Returns the public name of the function whose implementation a resolver selects.
fn resolver_name<'d>(symbols: &[Symbol<'d>], resolver: u64) -> Option<&'d [u8]> {
    let first = symbols.partition_point(|symbol| symbol.range.start < resolver);
    let mut here = symbols
        .get(first..)?
        .iter()
        .take_while(|symbol| symbol.range.start == resolver);
    here.find(|symbol| symbol.kind == FunctionKind::IfuncResolver)
        .map(|symbol| symbol.linkage)
}

/// Returns the slot that the stub's `jmp *disp32(%rip)` reads.
fn slot_of(address: u64, code: &[u8]) -> Option<u64> {
    let jump = code
        .windows(6)
        .position(|bytes| bytes.starts_with(&[0xff, 0x25]))?;
    let displacement = i32::from_le_bytes(code.get(jump + 2..jump + 6)?.try_into().ok()?);
    Some(
        address
            .wrapping_add(jump as u64 + 6)
            .wrapping_add_signed(displacement.into()),
    )
}

/// The target of the first entry of a lazy table, which uses a slot of the dynamic linker.
const RESOLVER: &[u8] = b"_dl_runtime_resolve";

/// Returns whether this is the first entry of a lazy table: `push GOT+8(%rip)`, then a jump through
/// `GOT+16`.
fn is_header(code: &[u8]) -> bool {
    code.starts_with(&[0xff, 0x35])
}

/// Returns the index that a lazy stub pushes: `push imm32`, possibly after `endbr64`.
fn pushed_index(code: &[u8]) -> Option<usize> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let number = code.strip_prefix(&[0x68])?.first_chunk()?;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}
