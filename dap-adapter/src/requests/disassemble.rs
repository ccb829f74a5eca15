//! `disassemble`: instructions before and after an address.

use super::memory::address;
use crate::failure::{Failure, Result};
use crate::line_numbering::LineNumbering;
use crate::protocol::types::{
    DisassembleArguments, DisassembleResponseBody, DisassembledInstruction,
    DisassembledInstructionPresentationHint,
};
use crate::session::ClientSession;
use backtrail_debugger::disassembly::{self, DisassembledLine};
use backtrail_decoder::Watch;
use backtrail_pt::Avma;

/// The limit of instructions in one response.
const MOST: usize = 10_000;

/// Returns exactly the requested number of instructions. Unknown code is reported as invalid
/// instructions.
pub fn disassemble(
    client: &mut ClientSession,
    arguments: DisassembleArguments,
    _: &Watch<'_>,
) -> Result<DisassembleResponseBody> {
    let numbering = LineNumbering::of(&client.features);
    let debuggee = client.debuggee()?;
    let navigator = &debuggee.navigator;
    let reference = arguments.memory_reference.trim();
    // Clients ask without an address before they know one: what is executed here is meant.
    let at = match reference.is_empty() {
        true => navigator.pc().map(|pc| pc.0),
        false => address(reference, arguments.offset),
    };
    let none = || Failure::Cannot(format!("\"{reference}\" is not an address"));
    let at = at.ok_or_else(none)?;
    let count = usize::try_from(arguments.instruction_count)
        .unwrap_or(0)
        .min(MOST);
    let offset = arguments
        .instruction_offset
        .unwrap_or(0)
        .clamp(-(MOST as i64), MOST as i64);
    let thread = navigator.thread()?;
    let version = thread.history.version(navigator.index());
    let process = navigator.process()?;
    let before_wanted = usize::try_from(-offset).unwrap_or(0);
    let skipped = usize::try_from(offset).unwrap_or(0);
    let mut lines =
        disassembly::disassemble_before(process, version, Avma(at), before_wanted, navigator.flavor);
    let missing = before_wanted - lines.len();
    let lowest = lines.first().map_or(at, |line| line.address);
    let end = Avma(at.saturating_add((skipped + count) as u64 * 15));
    let following = disassembly::disassemble(
        process,
        version,
        Avma(at)..end,
        skipped + count,
        navigator.flavor,
        navigator.pc(),
    );
    let end_of = |line: &DisassembledLine| line.address.saturating_add(line.bytes.len() as u64 / 2);
    // Outside of known code, each byte counts as one instruction.
    let mut next = following.last().map_or(at, end_of);
    next = next.saturating_add(skipped.saturating_sub(following.len()) as u64);
    lines.extend(following.into_iter().skip(skipped));
    let mut instructions: Vec<DisassembledInstruction> = (0..missing)
        .map(|number| nothing(lowest.saturating_sub((missing - number) as u64)))
        .collect();
    let mut last: Option<(String, u32)> = None;
    for line in lines.iter().take(count.saturating_sub(missing)) {
        let mut instruction = described(line);
        // The source is included where it changes.
        let frame = process
            .symbols_at(version)
            .frames_at(Avma(line.address))
            .into_iter()
            .next();
        let location = frame
            .and_then(|frame| frame.location)
            .filter(|location| location.line != 0);
        let here = location.map(|location| (location.file.to_string(), location.line));
        if here.is_some() && here != last {
            if let Some((file, line)) = &here {
                instruction.location = Some(debuggee.sources.describe(navigator, file));
                instruction.line = Some(numbering.write(*line));
            }
            last = here;
        }
        instructions.push(instruction);
    }
    while instructions.len() < count {
        instructions.push(nothing(next));
        next = next.saturating_add(1);
    }
    instructions.truncate(count);
    Ok(DisassembleResponseBody { instructions })
}

fn described(line: &DisassembledLine) -> DisassembledInstruction {
    let bytes: Vec<String> = line
        .bytes
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).into_owned())
        .collect();
    DisassembledInstruction {
        address: format!("{:#x}", line.address),
        instruction: line.text.clone(),
        instruction_bytes: Some(bytes.join(" ")),
        symbol: line.symbol.clone().filter(|symbol| !symbol.contains('+')),
        presentation_hint: (line.text == "(bad)").then_some(DisassembledInstructionPresentationHint::Invalid),
        ..DisassembledInstruction::default()
    }
}

/// Returns a placeholder for unknown code.
fn nothing(at: u64) -> DisassembledInstruction {
    DisassembledInstruction {
        address: format!("{at:#x}"),
        instruction: "(unknown)".to_owned(),
        presentation_hint: Some(DisassembledInstructionPresentationHint::Invalid),
        ..DisassembledInstruction::default()
    }
}
