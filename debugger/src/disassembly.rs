//! Disassembly, with names for the targets of jumps and calls.

use crate::session::Process;
use crate::source::SourceLines;
use backtrail_decoder::Version;
use backtrail_pt::Avma;
use backtrail_symbolizer::Symbolizer;
use backtrail_values::code_symbol;
use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, IntelFormatter};
use iced_x86::{SymbolResolver, SymbolResult};
use serde::Serialize;
use std::ops::Range;
use std::sync::Arc;

/// The syntax of disassembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavor {
    /// AT&T, GDB's default.
    #[default]
    Att,
    /// Intel.
    Intel,
}

/// An instruction as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DisassembledLine {
    /// Where.
    pub address: u64,
    /// `main+4`.
    pub symbol: Option<String>,
    /// Its bytes, hexadecimal.
    pub bytes: String,
    /// `mov    %rsp,%rbp`; `(bad)` where the bytes are no instruction.
    pub text: String,
    /// Whether this is the next instruction.
    pub current: bool,
    /// The source line, where the code of another line begins and `disassemble /s` requests it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceLines>,
}

/// No more is disassembled at once.
const MAX_BYTES: u64 = 1 << 20;

struct SymbolNames(Arc<Symbolizer>);

impl SymbolResolver for SymbolNames {
    fn symbol(
        &mut self,
        _instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _size: u32,
    ) -> Option<SymbolResult<'_>> {
        let name = code_symbol(&self.0, Avma(address))?;
        Some(SymbolResult::with_string(
            address,
            format!("{address:#x} <{name}>"),
        ))
    }
}

fn formatter(flavor: Flavor, symbols: &Arc<Symbolizer>) -> Box<dyn Formatter> {
    let names = Some(Box::new(SymbolNames(Arc::clone(symbols))) as Box<dyn SymbolResolver>);
    let mut formatter: Box<dyn Formatter> = match flavor {
        Flavor::Att => Box::new(GasFormatter::with_options(names, None)),
        Flavor::Intel => Box::new(IntelFormatter::with_options(names, None)),
    };
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_space_after_operand_separator(false);
    options.set_first_operand_char_index(7);
    options.set_rip_relative_addresses(false);
    formatter
}

/// The instructions that were in `range` in a version of the code, or until `count` are there; ends
/// early where the code is unknown.
#[must_use]
pub fn disassemble(
    process: &Process,
    version: Version,
    range: Range<Avma>,
    count: usize,
    flavor: Flavor,
    pc: Option<Avma>,
) -> Vec<DisassembledLine> {
    let len = (range.end - range.start)
        .min(MAX_BYTES)
        .min((count as u64).saturating_mul(15));
    let mut code = vec![0; len as usize];
    let known = process.read(version, range.start, &mut code);
    code.truncate(known);
    of_bytes(process, version, range.start, &code, count, flavor, pc)
}

/// The first instructions of bytes that stand at an address.
#[must_use]
pub fn of_bytes(
    process: &Process,
    version: Version,
    start: Avma,
    code: &[u8],
    count: usize,
    flavor: Flavor,
    pc: Option<Avma>,
) -> Vec<DisassembledLine> {
    let symbols = process.symbols_at(version);
    let mut formatter = formatter(flavor, symbols);
    let mut decoder = Decoder::with_ip(process.mode.bits(), code, start.0, DecoderOptions::NONE);
    let mut lines = Vec::new();
    while decoder.can_decode() && lines.len() < count {
        let at = decoder.position();
        let instruction = decoder.decode();
        let bytes = code.get(at..decoder.position()).unwrap_or_default();
        let address = Avma(instruction.ip());
        let mut text = String::new();
        if instruction.is_invalid() {
            text.push_str("(bad)");
        } else {
            formatter.format(&instruction, &mut text);
        }
        lines.push(DisassembledLine {
            address: address.0,
            symbol: code_symbol(symbols, address),
            bytes: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            text,
            current: pc == Some(address),
            source: None,
        });
    }
    lines
}

/// Returns up to `count` instructions before `at`, of which the last ends there; fewer if the code
/// is unknown.
///
/// Instructions of x86 cannot be decoded backward. They are decoded forward from the start of the
/// function, or from the first near byte from which an instruction ends at `at`.
#[must_use]
pub fn disassemble_before(
    process: &Process,
    version: Version,
    at: Avma,
    count: usize,
    flavor: Flavor,
) -> Vec<DisassembledLine> {
    let mut found: Vec<DisassembledLine> = Vec::new();
    let mut end = at;
    while found.len() < count {
        let piece = piece_before(process, version, end, flavor);
        let Some(first) = piece.first() else { break };
        end = Avma(first.address);
        found.splice(0..0, piece);
    }
    let more = found.len().saturating_sub(count);
    found.drain(..more);
    found
}

/// Some instructions of which the last one ends at `end`.
fn piece_before(process: &Process, version: Version, end: Avma, flavor: Flavor) -> Vec<DisassembledLine> {
    /// The number of bytes after which decoding has synchronized with the instruction stream.
    const NEAR: u64 = 64;
    let from = |start: Avma| {
        let lines = disassemble(process, version, start..end, usize::MAX, flavor, None);
        let last = lines
            .last()
            .map(|line| line.address + line.bytes.len() as u64 / 2);
        let whole = lines.iter().all(|line| line.text != "(bad)");
        (last == Some(end.0) && whole).then_some(lines)
    };
    let Some(before) = end.0.checked_sub(1) else {
        return Vec::new();
    };
    let function = process.symbols_at(version).function_at(Avma(before));
    let start = function.map(|function| function.range.start);
    if let Some(lines) = start.and_then(from) {
        return lines;
    }
    let nearest = end.0.saturating_sub(NEAR);
    (nearest..end.0)
        .find_map(|start| from(Avma(start)))
        .unwrap_or_default()
}
