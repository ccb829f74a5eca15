//! `backtrail dump instructions` and `dump blocks`: executed code in order, with the events
//! between.

use super::range::Range;
use crate::args::Dump;
use crate::exit::Failure;
use crate::output::Output;
use crate::terminal::plain;
use backtrail_debugger::session::Thread;
use backtrail_decoder::{Instruction, Mark, MarkKind, Resumed};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct InstructionRow {
    position: String,
    pc: String,
    length: u8,
    function: Option<String>,
    tsc: Option<u64>,
}

#[derive(Serialize)]
struct BlockRow {
    position: String,
    start: String,
    end: String,
    instructions: u64,
    function: Option<String>,
}

#[derive(Serialize)]
struct MarkRow {
    position: String,
    mark: String,
}

/// Prints one line per instruction.
pub fn instructions(range: &Range, args: &Dump, output: &mut Output) -> Result<(), Failure> {
    for thread in range.threads() {
        let mut index = range.from(thread)?;
        let mut left = range.count;
        for instruction in thread.history.walk(index) {
            if left == 0 {
                break;
            }
            left -= 1;
            marks(thread, index, index + 1, args, output)?;
            instruction_row(range, thread, index, instruction, args, output)?;
            index += 1;
        }
        if left > 0 {
            marks(thread, index, index + 1, args, output)?;
        }
    }
    Ok(())
}

fn instruction_row(
    range: &Range,
    thread: &Thread,
    index: u64,
    instruction: Instruction,
    args: &Dump,
    output: &mut Output,
) -> Result<(), Failure> {
    let position = thread.position(index).to_string();
    let function = function(range, thread, index, instruction);
    if args.json {
        let row = InstructionRow {
            position,
            pc: instruction.pc.to_string(),
            length: instruction.len,
            function,
            tsc: thread.history.time(index).map(|time| time.tsc.0),
        };
        return output.json("backtrail-instruction/1", &row);
    }
    writeln!(
        output,
        "{position:<20} {:#018x}  {}",
        instruction.pc,
        plain(&function.unwrap_or_default())
    )?;
    Ok(())
}

/// Prints one line per basic block, which ends with the instruction that changes the flow.
pub fn blocks(range: &Range, args: &Dump, output: &mut Output) -> Result<(), Failure> {
    for thread in range.threads() {
        let mut left = range.count;
        let mut index = range.from(thread)?;
        let mut walker = thread.history.walk(index).peekable();
        while left > 0 {
            let Some(first) = walker.next() else { break };
            left -= 1;
            let (start, mut last) = (index, first);
            index += 1;
            marks(thread, start, start + 1, args, output)?;
            while !last.cofi.ends_block() && thread.history.marks_in(index..index + 1).is_empty() {
                let Some(next) = walker.next_if(|next| next.pc == last.pc + u64::from(last.len)) else {
                    break;
                };
                last = next;
                index += 1;
            }
            let position = thread.position(start).to_string();
            let function = function(range, thread, start, first);
            let (end, instructions) = (last.pc + u64::from(last.len), index - start);
            if args.json {
                let (start, end) = (first.pc.to_string(), end.to_string());
                output.json(
                    "backtrail-block/1",
                    &BlockRow {
                        position,
                        start,
                        end,
                        instructions,
                        function,
                    },
                )?;
            } else {
                let name = plain(&function.unwrap_or_default());
                writeln!(
                    output,
                    "{position:<20} {:#018x}..{end:#018x} {instructions:>4}  {name}",
                    first.pc
                )?;
            }
        }
        if left > 0 {
            marks(thread, index, index + 1, args, output)?;
        }
    }
    Ok(())
}

fn function(range: &Range, thread: &Thread, index: u64, instruction: Instruction) -> Option<String> {
    let symbols = range.session.symbols_at(thread, index)?;
    let function = symbols.function_at(instruction.pc)?;
    let offset = instruction.pc - function.range.start;
    Some(if offset == 0 {
        function.name.to_string()
    } else {
        format!("{}+{offset:#x}", function.name)
    })
}

/// Prints the events between instructions, each before the instruction that follows it.
fn marks(thread: &Thread, from: u64, to: u64, args: &Dump, output: &mut Output) -> Result<(), Failure> {
    for mark in thread.history.marks_in(from..to) {
        let position = thread.position(mark.index).to_string();
        let text = describe(mark);
        if args.json {
            output.json("backtrail-mark/1", &MarkRow { position, mark: text })?;
        } else {
            writeln!(output, "{position:<20} -- {}", plain(&text))?;
        }
    }
    Ok(())
}

fn describe(mark: &Mark) -> String {
    match &mark.kind {
        MarkKind::Gap(gap) => format!("gap: {}", gap.cause),
        MarkKind::LeftUser {
            resumed: Resumed::After,
            ..
        } => "left user code and returned".to_owned(),
        MarkKind::LeftUser {
            resumed: Resumed::Again,
            ..
        } => "left user code; the instruction is executed again".to_owned(),
        MarkKind::LeftUser {
            resumed: Resumed::Elsewhere(at),
            ..
        } => {
            format!("left user code and returned at {at}")
        }
        MarkKind::Interrupted { from, .. } => format!("interrupted before {from}"),
        MarkKind::Descheduled { .. } => "off-CPU".to_owned(),
        MarkKind::Ptwrite(value) => format!("ptwrite {value:#x}"),
        other => format!("mark of an unknown kind: {other:?}"),
    }
}
