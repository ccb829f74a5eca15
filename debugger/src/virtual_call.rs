//! Which class a virtual call meant: whose table of virtual functions has, where the call took it
//! from, what was called.

use crate::session::{Process, Session, Thread};
use crate::unwind::Memory;
use backtrail_pt::Avma;
use backtrail_symbolizer::Symbolizer;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedRegister};
use serde::Serialize;

/// The limit of table words that are read.
const MAX_WORDS: usize = 1 << 20;
/// No more classes are named.
const MAX_CLASSES: usize = 16;
const WORD: u64 = 8;
/// The limit of instructions between loading a function's address and the call through the
/// register.
const LOAD_WITHIN: u64 = 16;

/// A call through a table of virtual functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VirtualCall {
    /// The function's number in the table.
    pub slot: u64,
    /// The classes whose vtables have the function at this slot, according to the symbols. The
    /// object is of one of them.
    pub classes: Vec<String>,
}

/// Returns the virtual function that the call or jump at an index of a thread's history called, by
/// the vtables.
pub fn virtual_call(session: &Session, process: &Process, thread: &Thread, site: u64) -> Option<VirtualCall> {
    let offset = offset_of(process, thread, site)?;
    let function = thread.history.pc(site.checked_add(1)?)?;
    let mut tables = Tables {
        session,
        process,
        symbols: session.symbols_at(thread, site)?,
        left: MAX_WORDS,
    };
    let mut classes = tables.with(function, offset);
    classes.sort();
    classes.dedup();
    classes.truncate(MAX_CLASSES);
    (!classes.is_empty()).then_some(VirtualCall {
        slot: offset / WORD,
        classes,
    })
}

/// Returns the offset from an object's address point at which the call at an index reads the
/// function's address, directly or by an earlier load.
fn offset_of(process: &Process, thread: &Thread, site: u64) -> Option<u64> {
    let call = process.decoded(thread, site)?;
    if !call.is_call_near_indirect() && !call.is_jmp_near_indirect() {
        return None;
    }
    if call.op0_kind() == OpKind::Memory {
        return table_offset(&call);
    }
    let mut info = InstructionInfoFactory::new();
    for index in (site.saturating_sub(LOAD_WITHIN)..site).rev() {
        let before = process.decoded(thread, index)?;
        let loads = before.mnemonic() == Mnemonic::Mov && before.op1_kind() == OpKind::Memory;
        if loads && before.op0_register() == call.op0_register() {
            return table_offset(&before);
        }
        let mut used = info.info(&before).used_registers().iter();
        let same = |used: &UsedRegister| used.register().full_register() == call.op0_register();
        if used.any(|used| same(used) && used.access() != OpAccess::Read) {
            return None;
        }
    }
    None
}

/// The displacement of a memory operand that may be one of a table of functions.
fn table_offset(instruction: &Instruction) -> Option<u64> {
    let may_be = !instruction.is_ip_rel_memory_operand()
        && instruction.memory_base() != Register::None
        && instruction.memory_base() != Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.segment_prefix() == Register::None;
    let offset = instruction.memory_displacement64();
    (may_be && offset.is_multiple_of(WORD) && offset < u64::from(u16::MAX)).then_some(offset)
}

/// The vtables of a process (Itanium C++ ABI, section 2.5.2).
///
/// The functions follow the address point. The type and the offset to the top of the object precede
/// it.
struct Tables<'a> {
    session: &'a Session,
    process: &'a Process,
    /// The symbols of the modules that were mapped at the call.
    symbols: &'a Symbolizer,
    left: usize,
}

impl Tables<'_> {
    /// Returns the classes whose vtables have a function at this offset from the address point.
    fn with(&mut self, function: Avma, offset: u64) -> Vec<String> {
        let mut classes = Vec::new();
        let mut seen: Vec<*const backtrail_symbolizer::SymbolFile> = Vec::new();
        for module in self.symbols.modules() {
            let Some(file) = &module.file else { continue };
            let this = std::sync::Arc::as_ptr(file);
            if seen.contains(&this) {
                continue;
            }
            seen.push(this);
            for table in file.vtables() {
                let start = table.start.to_avma(module.bias);
                if self.has(start, table.size, function, offset) {
                    classes.push(table.name.to_string());
                }
            }
        }
        classes
    }

    /// A table, or one of the tables of its bases that follow, has the function there.
    fn has(&mut self, start: Avma, size: u64, function: Avma, offset: u64) -> bool {
        let first = 2 * WORD;
        let Some(of_type) = self.word(start + WORD) else {
            return false;
        };
        // A table ends where the next of the same type begins.
        let mut point = first;
        for next in (first + WORD..=size).step_by(WORD as usize) {
            let Some(left) = self.left.checked_sub(1) else {
                return false;
            };
            self.left = left;
            let begins = of_type != 0 && self.word(start + (next - WORD)) == Some(of_type);
            if begins || next + WORD > size {
                let end = if begins { next - first } else { size };
                if point + offset < end && self.word(start + (point + offset)) == Some(function.0) {
                    return true;
                }
                point = next;
            }
        }
        false
    }

    fn word(&self, at: Avma) -> Option<u64> {
        let core = self.session.core();
        let saved = core.and_then(|core| Memory::new(core, &self.process.image).word(at));
        saved.or_else(|| {
            let module = self.symbols.module_at(at)?;
            let mut word = [0; WORD as usize];
            let read = module
                .file
                .as_ref()?
                .read_constant(at.to_svma(module.bias), &mut word);
            (read == word.len()).then(|| u64::from_le_bytes(word))
        })
    }
}
